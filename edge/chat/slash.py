"""What a line of a chat may ask of the program itself: `/help` and its like."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from acespec.edge.chat.tally import Tally
from acespec.edge.chat.transcript import save
from acespec.edge.chat_ids import ChatIds
from acespec.proto.errors import UsageError

QUIT = ("/quit", "/exit", "/bye")
_FORM = re.compile(r"(/[a-z]+)(?:\s+(.*))?", re.DOTALL)

HELP = """\
/system [TEXT]  show the system message, or set it and start over
/reset          start over with the same system message
/save FILE      write the conversation: Markdown, or JSON for *.json
/stats          tokens, bytes and drafts so far
/quit           end (also Ctrl-D, or Ctrl-C twice)
Ctrl-C          stop an answer; what was said of it stays
Alt-Enter       a new line in the question; pasted text keeps its lines
dimmed text     a guess: the model will confirm it, or it is replaced in place"""


class SlashCommands:
    """The commands on one conversation."""

    def __init__(self, chat: ChatIds, tally: Tally) -> None:
        self._chat = chat
        self._tally = tally
        self._commands: dict[str, Callable[[str], str]] = {
            "/help": lambda _: HELP,
            "/system": self._system,
            "/reset": self._reset,
            "/save": self._save,
            "/stats": lambda _: self._tally.report(),
        }

    @property
    def names(self) -> list[str]:
        """All commands, for completion."""
        return [*self._commands, QUIT[0]]

    def answer(self, line: str, *, strict: bool) -> str | None:
        """What to tell the person; None if `line` is a question for the model.

        Args:
            strict: a word like `/sytem` is a slip, and no question.
        """
        if (form := _FORM.fullmatch(line.strip())) is None:
            return None
        name, rest = form.group(1), (form.group(2) or "").strip()
        command = self._commands.get(name)
        if command is not None:
            return command(rest)
        return f"no command {name}: /help lists them" if strict else None

    def _system(self, text: str) -> str:
        if not text:
            return self._chat.system or "no system message: /system TEXT sets one"
        self._chat.restart(text)
        return "system message set; the conversation starts over"

    def _reset(self, _: str) -> str:
        self._chat.restart(self._chat.system)
        return "the conversation starts over"

    def _save(self, name: str) -> str:
        if not name:
            return "say where: /save FILE"
        try:
            save(Path(name).expanduser(), self._chat.messages)
        except UsageError as error:
            return str(error)
        return f"saved to {name}"


def quits(line: str) -> bool:
    """True if the line ends the chat."""
    return line.strip() in QUIT
