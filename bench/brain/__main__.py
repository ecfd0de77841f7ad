"""What the edge's brain is worth, one question a command.

    python -m acespec.bench.brain grid --quick
    python -m acespec.bench.brain WHAT --json figures.json

Only the module that answers it is loaded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from acespec.proto.errors import AcespecError

QUESTIONS: dict[str, tuple[str, str]] = {
    "grid": ("grid", "tokens/s of every controller and fixed length against an oracle, over profiles, links and pairs"),
    "live": ("live", "cells of the grid on the live stack, and on a real pair of models"),
    "frontier": ("frontier", "tokens/s and tokens on schedule against verifier time per token"),
    "drift": ("drift", "round trip, rate and acceptance change in the middle of a run: how soon it adapts"),
    "siblings": ("siblings", "what 1, 2, 4, 8 shipped siblings buy at 10, 50 and 250 Kbps"),
    "cache": ("cache", "hits of the branch cache and drafting saved, against the closed form"),
    "age": ("age", "age of drafts under a drafter that floods the link, and what commits wait for"),
    "cpu": ("cpu", "processor time of the brain for each committed token"),
}
"""Each question: its module beside this one, and what it answers."""


class Question(Protocol):
    """A module of this package that answers a question."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""

    def run(self, args: argparse.Namespace) -> int:
        """Print the answer; the status of the process."""


def question(name: str) -> Question:
    """The module that answers `name`: only this one is imported."""
    module: Question = import_module(f"acespec.bench.brain.{QUESTIONS[name][0]}")
    return module


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m acespec.bench.brain",
        description="What the edge's brain is worth, one question a command.",
        epilog="\n".join(f"  {name:9} {text}" for name, (_, text) in QUESTIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=list(QUESTIONS))
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the question: WHAT --help lists them")
    given = parser.parse_args(argv)
    module, text = question(given.what), QUESTIONS[given.what][1]
    own = argparse.ArgumentParser(prog=f"{parser.prog} {given.what}", description=text)
    module.add_arguments(own)
    try:
        return module.run(own.parse_args(given.options))
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
