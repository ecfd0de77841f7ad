"""`acespec chat`: a conversation line by line. Ctrl-C stops an answer; twice at the prompt ends the chat."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextlib import aclosing

from acespec.edge.chat_ids import ChatIds
from acespec.edge.client import Client
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.report import as_line
from acespec.edge.run_options import RunOptions
from acespec.edge.turn_request import TurnRequest

PROMPT = ">>> "
QUIT = "/quit"


def run(options: RunOptions) -> None:
    """Talk until the input ends.

    Raises:
        AcespecError: whatever went wrong, in one line.
        KeyboardInterrupt: Ctrl-C twice at the prompt.
    """
    options.endpoint()
    tokenizer = options.tokenizer()
    chat = ChatIds(tokenizer, options.system_prompt)
    # One loop for all turns: the stream and the session's KV in the cloud live on between them.
    with options.open_trace() as trace, asyncio.Runner() as runner:
        client = runner.run(_enter(options.client(tokenizer, trace)))
        try:
            while (line := _ask()) is not None:
                _turn(runner, client, chat, line, options.request(tokenizer))
        finally:
            runner.run(client.__aexit__(None, None, None))


async def _enter(client: Client) -> Client:
    return await client.__aenter__()


def _turn(runner: asyncio.Runner, client: Client, chat: ChatIds, line: str, request: TurnRequest) -> None:
    shown: list[str] = []
    ids = chat.ask(line)
    with contextlib.suppress(KeyboardInterrupt):
        runner.run(_answer(client, ids, request, shown))
    sys.stdout.write("\n")
    sys.stdout.flush()
    if len(client.session.ids) > len(ids):
        chat.answered(client.session.ids, "".join(shown))
    else:
        chat.dropped()


async def _answer(client: Client, ids: list[int], request: TurnRequest, shown: list[str]) -> None:
    async with aclosing(client.stream(ids, request)) as parts:
        async for part in parts:
            match part:
                case TextDelta():
                    shown.append(part.text)
                    sys.stdout.write(part.text)
                    sys.stdout.flush()
                case Completion():
                    sys.stderr.write(f"\n{as_line(part)}")


def _ask() -> str | None:
    """The next question; None at the end of the input or at `/quit`."""
    interrupted = False
    while True:
        try:
            line = _read_line()
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            sys.stderr.write(f"\nCtrl-C once more, or {QUIT}, ends the chat\n")
            continue
        if line is None or line.strip() == QUIT:
            return None
        if line.strip():
            return line


def _read_line() -> str | None:
    if sys.stdin.isatty():
        try:
            return input(PROMPT)
        except EOFError:
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None
