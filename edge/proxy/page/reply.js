// Reads the chunks of a streamed completion.

// Takes a chunk into `turn`: its text, how many tokens the answer has with it, whose session it is, and the account.
// True if it brought text.
function read(chunk, turn) {
  if (chunk.error) throw new Refused(chunk.error.message);
  turn.session ??= chunk.acespec?.session ?? null;
  const choice = chunk.choices?.[0];
  const text = choice?.delta?.content ?? "";
  if (text) turn.answer.commit(text, chunk.acespec?.tokens ?? null);
  turn.finish = choice?.finish_reason ?? turn.finish;
  turn.account = { ...turn.account, ...pick(chunk, ["usage", "timings", "speculation"]) };
  return text !== "";
}

function pick(chunk, names) {
  return Object.fromEntries(names.filter((name) => chunk[name]).map((name) => [name, chunk[name]]));
}

// A line about a finished answer, of what its account holds.
function account({ usage, timings, speculation }, finish) {
  const rate = timings?.predicted_per_second;
  const parts = [
    usage && `${usage.completion_tokens} tokens`,
    rate && `${digits(rate)} tokens/s`,
    speculation?.acceptance_length !== undefined && `${digits(speculation.acceptance_length)} drafts accepted a step`,
    speculation?.wire !== undefined && `${digits(speculation.wire.bytes_per_token)} bytes a token`,
    finish === "length" && "cut at the most tokens",
  ];
  return parts.filter(Boolean).join(" · ");
}
