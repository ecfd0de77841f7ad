"""`acespec chat`: a conversation. Ctrl-C stops an answer; twice at the prompt ends the chat."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys

from acespec.edge.chat.face import Face
from acespec.edge.chat.plain import PlainFace
from acespec.edge.chat.slash import QUIT, SlashCommands, quits
from acespec.edge.chat.tally import Tally
from acespec.edge.chat_ids import ChatIds
from acespec.edge.client import Client
from acespec.edge.run_options import RunOptions
from acespec.edge.turn_request import TurnRequest
from acespec.proto.errors import Mismatch, ProtocolError, Unauthenticated

WELCOME = "{model} at {verifier}. Dimmed text is a guess; /help for more"


def run(options: RunOptions) -> None:
    """Talk until the input ends.

    Raises:
        AcespecError: whatever went wrong, in one line.
        KeyboardInterrupt: Ctrl-C twice at the prompt.
    """
    options.endpoint()
    tokenizer = options.tokenizer()
    chat, tally = ChatIds(tokenizer, options.system_prompt), Tally()
    commands = SlashCommands(chat, tally)
    # One loop for all turns: the stream and the session's KV in the cloud live on between them.
    with options.open_trace() as trace, asyncio.Runner() as runner:
        client = runner.run(_enter(options.client(tokenizer, trace)))
        try:
            face = choose_face(commands)
            talk = Talk(runner, client, chat, tally, face)
            if face.interactive:
                face.note(WELCOME.format(model=options.model, verifier=options.verifier))
            while (line := _next_line(face, runner)) is not None:
                said = commands.answer(line, strict=face.interactive)
                if said is None:
                    talk.turn(line, options.request(tokenizer))
                else:
                    face.note(said)
        finally:
            runner.run(client.__aexit__(None, None, None))


class Talk:
    """Questions and answers of one conversation."""

    def __init__(self, runner: asyncio.Runner, client: Client, chat: ChatIds, tally: Tally, face: Face) -> None:
        self._runner = runner
        self._client = client
        self._chat = chat
        self._tally = tally
        self._face = face

    def turn(self, question: str, request: TurnRequest) -> None:
        """One question and what comes of it.

        Raises:
            ProtocolError: no answer can be had, and nobody is there to try again.
        """
        shown: list[str] = []
        ids = self._chat.ask(question)
        try:
            done = self._runner.run(self._face.answer(self._client.stream(ids, request), self._client.view, shown))
            if done is not None:
                self._tally.finished(done)
        except KeyboardInterrupt:
            self._tally.stopped(self._answered(ids))
        except ProtocolError as error:
            if not self._face.interactive or isinstance(error, Mismatch | Unauthenticated):
                raise
            self._face.note(f"error: {error}")
        self._face.answered()
        if self._answered(ids):
            self._chat.answered(self._client.session.ids, "".join(shown))
        else:
            self._chat.dropped()

    def _answered(self, ids: list[int]) -> int:
        """Tokens of the answer to `ids`; none if the turn was over before it began."""
        sequence = self._client.session.ids
        return len(sequence) - len(ids) if sequence[: len(ids)] == ids else 0


def choose_face(commands: SlashCommands) -> Face:
    """Guesses are shown where they can be dimmed and taken back; everywhere else text is just text."""
    if not can_draw():
        return PlainFace()
    from acespec.edge.chat.live import LiveFace
    from acespec.edge.chat.plain import read_line

    if not sys.stdin.isatty():
        return LiveFace(lambda _: read_line())
    from acespec.edge.chat.editor import HISTORY_NAME, Editor
    from acespec.models.paths import cache_root

    return LiveFace(Editor(commands.names, cache_root() / HISTORY_NAME))


def can_draw() -> bool:
    """True if stdout is a terminal that takes control sequences, and the user has not asked for plain text."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    if codecs.lookup(sys.stdout.encoding).name != "utf-8":
        return False
    from rich.console import Console

    return not Console().legacy_windows


async def _enter(client: Client) -> Client:
    return await client.__aenter__()


def _next_line(face: Face, runner: asyncio.Runner) -> str | None:
    """The next question or command; None at the end of the input or at `/quit`."""
    interrupted = False
    while True:
        try:
            line = face.ask(runner)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            sys.stderr.write(f"\nCtrl-C once more, or {QUIT[0]}, ends the chat\n")
            continue
        if line is None or quits(line):
            return None
        if line.strip():
            return line
