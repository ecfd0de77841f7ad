"""`acespec generate`: one prompt, one answer or several."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing

from acespec.edge.choices import choices as answers
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.report import Json, as_json, as_line
from acespec.edge.run_options import RunOptions
from acespec.edge.tracing.trace_writer import TraceWriter
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import UsageError


def run(options: RunOptions, prompt: str | None, *, raw: bool, as_object: bool, choices: int = 1) -> None:
    """Generate and print.

    Args:
        prompt: the text; "-" or None reads stdin.
        raw: the text as it is, without the chat template.
        as_object: one JSON object on stdout instead of streamed text; of several answers, a list of them.
        choices: how many answers.

    Raises:
        AcespecError: whatever went wrong, in one line.
    """
    options.endpoint()  # Complain about the address before anything is fetched or read.
    text = _prompt(prompt)
    with options.open_trace() as trace:
        if choices == 1:
            asyncio.run(_generate(options, text, raw, as_object, trace))
        else:
            asyncio.run(_several(options, text, raw, as_object, choices, trace))


def alternatives(logprobs: bool, top: int, as_object: bool) -> int | None:
    """What `--logprobs` and `--top-logprobs` ask for: see `TurnRequest.top_logprobs`.

    Raises:
        UsageError: one of them lacks what it needs.
    """
    if top and not logprobs:
        raise UsageError("--top-logprobs needs --logprobs")
    if logprobs and not as_object:
        raise UsageError("--logprobs needs --json, which prints them")
    return top if logprobs else None


async def _generate(options: RunOptions, prompt: str, raw: bool, as_object: bool, trace: TraceWriter | None) -> None:
    tokenizer = options.tokenizer()
    text, ids = encode_prompt(tokenizer, prompt, options.system_prompt, raw)
    async with (
        options.client(tokenizer, trace) as client,
        aclosing(client.stream(ids, options.request(tokenizer), text=text)) as parts,
    ):
        async for part in parts:
            match part:
                case TextDelta() if not as_object:
                    sys.stdout.write(part.text)
                    sys.stdout.flush()
                case Completion() if as_object:
                    _print_json(as_json(part, tokenizer))
                case Completion():
                    _conclude(part)


async def _several(
    options: RunOptions, prompt: str, raw: bool, as_object: bool, n: int, trace: TraceWriter | None
) -> None:
    tokenizer = options.tokenizer()
    text, ids = encode_prompt(tokenizer, prompt, options.system_prompt, raw)
    done = await answers(lambda: options.client(tokenizer, trace), ids, options.request(tokenizer), n, text=text)
    if as_object:
        objects: list[Json] = [as_json(answer, tokenizer) for answer in done]
        _print_json(objects)
        return
    for number, answer in enumerate(done, 1):
        sys.stdout.write(f"--- answer {number} of {n}, seed {answer.seed}\n{answer.text}")
        _conclude(answer)


def encode_prompt(tokenizer: Tokenizer, prompt: str, system: str | None, raw: bool) -> tuple[str | None, list[int]]:
    """(the text that encodes to the ids, if there is one; the ids)."""
    if raw:
        ids = tokenizer.encode(prompt)
        prefix = [] if ids[:1] == list(tokenizer.prefix_ids) else list(tokenizer.prefix_ids)
        return None if prefix else prompt, prefix + ids
    messages = [{"role": "system", "content": system}] if system else []
    text = tokenizer.apply_chat([*messages, {"role": "user", "content": prompt}])
    return text, tokenizer.encode(text)


def _prompt(given: str | None) -> str:
    if given is not None and given != "-":
        text = given
    elif given is None and sys.stdin.isatty():
        raise UsageError("no prompt: give -p TEXT, or -p - to read it from stdin")
    else:
        text = sys.stdin.read()
    if not text:
        raise UsageError("the prompt is empty")
    return text


def _print_json(value: Json) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _conclude(done: Completion) -> None:
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stderr.write(as_line(done) + "\n")
