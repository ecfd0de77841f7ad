"""Where questions are typed on a terminal: several lines, pasted text as it is, a history, commands by Tab."""

from __future__ import annotations

import os
from asyncio import Runner
from collections.abc import Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT = ">>> "
CONTINUED = "... "
PLACEHOLDER = FormattedText([("fg:ansibrightblack", "ask something; /help for more")])
HISTORY_NAME = "chat_history"


class Interrupted(Exception):
    """Ctrl-C at the prompt; a class of its own, because the event loop does not survive a KeyboardInterrupt."""


class Editor:
    """Reads questions within the chat's event loop, so that the session lives on while one types.

    Args:
        commands: completed by Tab at the beginning of a line.
        history: file of the questions of earlier chats, None to remember this chat's only.
    """

    def __init__(self, commands: Sequence[str], history: Path | None) -> None:
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            history=_history(history),
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            key_bindings=_bindings(),
            prompt_continuation=CONTINUED,
            placeholder=PLACEHOLDER,
            enable_history_search=True,
            interrupt_exception=Interrupted,
        )

    def __call__(self, runner: Runner) -> str | None:
        """The next question; None at the end of the input.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        try:
            return runner.run(self._session.prompt_async())
        except EOFError:
            return None
        except Interrupted as interrupted:
            raise KeyboardInterrupt from interrupted


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


def _history(path: Path | None) -> History:
    """Questions are nobody else's business: the file is readable by its owner only."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
