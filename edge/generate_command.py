"""`acespec generate`: one prompt, one answer."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing

from acespec.edge.completion import Completion, TextDelta
from acespec.edge.report import as_json, as_line
from acespec.edge.run_options import RunOptions
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import UsageError


def run(options: RunOptions, prompt: str | None, *, raw: bool, as_object: bool) -> None:
    """Generate and print.

    Args:
        prompt: the text; "-" or None reads stdin.
        raw: the text as it is, without the chat template.
        as_object: one JSON object on stdout instead of streamed text.

    Raises:
        AcespecError: whatever went wrong, in one line.
    """
    options.endpoint()  # Complain about the address before anything is fetched or read.
    text = _prompt(prompt)
    asyncio.run(_generate(options, text, raw, as_object))


async def _generate(options: RunOptions, prompt: str, raw: bool, as_object: bool) -> None:
    tokenizer = options.tokenizer()
    text, ids = encode_prompt(tokenizer, prompt, options.system_prompt, raw)
    async with (
        options.client(tokenizer) as client,
        aclosing(client.stream(ids, options.request(tokenizer), text=text)) as parts,
    ):
        async for part in parts:
            match part:
                case TextDelta() if not as_object:
                    sys.stdout.write(part.text)
                    sys.stdout.flush()
                case Completion():
                    _conclude(part, as_object)


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


def _conclude(done: Completion, as_object: bool) -> None:
    if as_object:
        sys.stdout.write(json.dumps(as_json(done), ensure_ascii=False) + "\n")
        sys.stdout.flush()
        return
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stderr.write(as_line(done) + "\n")
