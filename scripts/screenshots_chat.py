"""Draw docs/pictures/chat.svg: the chat in the middle of an answer, guesses dimmed.

The chat is the real one, in a tmux window whose content becomes the picture once there is enough to see. Behind it
stand the shaped link `wan50` and the replayed model of `screenshots_page.py`. Needs tmux, and what that script needs.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.ansi import AnsiDecoder
from rich.console import Console
from screenshots_page import ANSWER, MODEL, PICTURES, QUESTION, PlausibleDrafter, text, verifier

from acespec.edge.drafters.replay import REPLAY_KINDS
from acespec.edge.drafters.replay_accuracy import Accuracy
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.replay_text import ReplayText
from acespec.sim.processes import free_port, serving

SOCKET = "acespec-screenshot"
WIDTH, HEIGHT = 88, 24
TIMEOUT_S = 120.0
TALK = "talk"
DIM = re.compile(r"\x1b\[(?:0;)?2m([^\x1b]*)")
WEB_FONTS = re.compile(r"@font-face \{\{.*?\}\}\n", re.DOTALL)
"""The picture asks nobody for a font."""


class Window:
    """A terminal window in tmux."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "chat", *keys)

    def say(self, line: str) -> None:
        self.keys("-l", line)
        self.keys("Enter")

    def content(self) -> str:
        """What can be seen, with its styles as escape sequences."""
        return self._tmux("capture-pane", "-e", "-p", "-t", "chat")

    def wait(self, seen: re.Pattern[str], *, more: int = 0) -> str:
        """The content, once it matches and has that many dimmed characters in its guesses."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            content = self.content()
            if seen.search(content) and guessed(content) >= more:
                return content
            time.sleep(0.02)
        raise SystemExit(f"nothing like {seen.pattern} was to be seen in {TIMEOUT_S:.0f} s:\n{self.content()}")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def guessed(content: str) -> int:
    """Dimmed characters above the status line, in the lines of the answer."""
    lines = [line for line in content.splitlines() if line.strip()]
    return sum(len(found) for line in lines[-3:-1] for found in DIM.findall(line)) if lines else 0


@contextmanager
def window(command: Sequence[str]) -> Iterator[Window]:
    """Run `command` in a window of its own until the context ends."""
    size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
    start = ["tmux", "-L", SOCKET, "-f", "/dev/null", "new-session", "-d", "-s", "chat", *size, *command]
    subprocess.run(start, check=True)
    try:
        subprocess.run(["tmux", "-L", SOCKET, "set-option", "-g", "status", "off"], check=True)
        yield Window(SOCKET)
    finally:
        subprocess.run(["tmux", "-L", SOCKET, "kill-server"], check=False)


def command(link: str, home: Path) -> list[str]:
    """The chat's command line, in a process of this script that knows the picture's drafter."""
    arguments = ["--verifier", link, "--insecure", "--model", MODEL, "--seed", "0", "-m", "400"]
    arguments += ["--drafter", "plausible", "--acceptance", "0.86", "--replay-ids", str(home / "text.jsonl")]
    settings = [f"XDG_CONFIG_HOME={home}", "OMP_NUM_THREADS=1", "ACESPEC_LOG_LEVEL=error"]
    return ["env", *settings, sys.executable, __file__, TALK, "chat", *arguments]


def talk() -> None:
    """Be `acespec`, with one more drafter."""
    from acespec.edge.cli import main as acespec

    def plausible(known: ReplayText, accuracy: Accuracy, token_s: float) -> PlausibleDrafter:
        tokenizer = Tokenizer.load(resolve(MODEL))
        drafter = PlausibleDrafter(known, accuracy, token_s)
        drafter.words = tuple(sorted({i for word in ANSWER.split() for i in tokenizer.encode(f" {word}")[:1]}))
        return drafter

    REPLAY_KINDS["plausible"] = plausible  # type: ignore[assignment]
    acespec()


def picture(content: str) -> str:
    """An SVG of a terminal's content."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in AnsiDecoder().decode(content.rstrip("\n")):
        console.print(line, no_wrap=True, overflow="crop")
    drawn = console.export_svg(title="acespec chat", code_format=WEB_FONTS.sub("", CONSOLE_SVG_FORMAT))
    return "".join(line.rstrip() + "\n" for line in drawn.splitlines())


def capture(address: str, home: Path) -> str:
    """What is to be seen in the middle of an answer."""
    with window(command(address, home)) as terminal:
        terminal.wait(re.compile("ask something"))
        terminal.say("/help")
        terminal.wait(re.compile("replaced in place"))
        terminal.say(QUESTION)
        return terminal.wait(re.compile(r"1[2-9]\d tokens \d+/s .* AL .* load"), more=40)


async def scene(preset: str) -> str:
    """The window's content, with the stack around it."""
    tokenizer = Tokenizer.load(resolve(MODEL))
    with tempfile.TemporaryDirectory() as name:
        home, link = Path(name), free_port()
        ids = [text(tokenizer).token(0, at, 0) for at in range(len(tokenizer.encode(ANSWER)))]
        (home / "text.jsonl").write_text(json.dumps({"ids": ids}), encoding="utf-8")
        async with verifier(tokenizer) as port:
            shape = ["link", "--preset", preset, "--listen", f"127.0.0.1:{link}", "--to", f"127.0.0.1:{port}"]
            with serving("acespec.sim.cli", [*shape, "--log", str(home / "link.jsonl")], home / "link.log"):
                return await asyncio.to_thread(capture, f"127.0.0.1:{link}", home)


if __name__ == "__main__":
    if sys.argv[1:2] == [TALK]:
        del sys.argv[1]
        talk()
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--preset", default="wan50")
        parser.add_argument("--out", type=Path, default=PICTURES / "chat.svg")
        options = parser.parse_args()
        if shutil.which("tmux") is None:
            raise SystemExit("tmux is not there: install it")
        options.out.write_text(picture(asyncio.run(scene(options.preset))), encoding="utf-8")
