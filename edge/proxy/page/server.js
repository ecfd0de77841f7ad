// Talks to the endpoint that served this page. The key lives in this tab only.
const KEY = "acespec.key";
const NEW_KEY = "acespec-key";

class Refused extends Error {}
class Locked extends Refused {}

class Server {
  #askForKey;
  #asking = null;

  // `askForKey(again)` resolves to a key, or null if the person declines.
  constructor(askForKey) {
    this.#askForKey = askForKey;
  }

  async ask(path, init = {}) {
    for (;;) {
      const key = sessionStorage.getItem(KEY);
      const headers = { ...init.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
      const response = await fetch(path, { ...init, headers, cache: "no-store" });
      if (response.ok) return response;
      if (response.status !== 401) throw new Refused(await complaint(response));
      await this.#newKey(key);
    }
  }

  post(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    return this.ask(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  }

  // One question, however many requests wait for its answer.
  async #newKey(old) {
    if (sessionStorage.getItem(KEY) !== old) return;
    this.#asking ??= this.#askForKey(old !== null).finally(() => (this.#asking = null));
    const key = await this.#asking;
    if (!key) throw new Locked("This endpoint asks for a key. Send again to give one.");
    sessionStorage.setItem(KEY, key);
    dispatchEvent(new Event(NEW_KEY));
  }
}

async function complaint(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The endpoint answered ${response.status}. ${text.slice(0, 200)}`;
  }
}

// The data of a stream of server-sent events, one parsed object each; comments as `{comment}`.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      if (block.startsWith(":")) yield { comment: block.slice(1).trim() };
      if (!block.startsWith("data:")) continue;
      const data = block.slice(5).trimStart();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// Calls `show(live)` for each picture of the sessions, and `lost()` while there is none. Goes on for ever.
async function follow(server, show, lost) {
  for (let failures = 0; ; failures++) {
    try {
      for await (const live of events(await server.ask("/acespec/live"))) {
        failures = 0;
        show(live);
      }
    } catch (error) {
      if (error instanceof Locked) await new Promise((again) => addEventListener(NEW_KEY, again, { once: true }));
    }
    lost();
    await new Promise((wake) => setTimeout(wake, Math.min(500 * 2 ** failures, 5000)));
  }
}
