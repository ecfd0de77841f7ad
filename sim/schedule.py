"""A schedule: what an edge asks, and what happens to its link and its verifiers at which moment.

A schedule is a value: the same one always gives the same run. Its text form is a short script that a person can read,
cut down and run again:

    setup policy=never rate=0 up=0.05 down=0.05 ...
    ask edge=0 kind=new tokens=12 seed=7
    at 0.300 cut edge=0 seconds=0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from acespec.proto.errors import UsageError

ASKS = ("new", "next", "again", "same", "edit", "shared")
"""Kinds of turns.

`new` is another prompt, `next` goes on with what there is, `again` regenerates with another seed, `same` repeats the
last request to the letter, `edit` changes the history, `shared` takes the newest prompt of any edge by name.
"""

FAULTS = {
    "cut": "both ends learn at once that the stream is gone; what is under way is lost",
    "leave_half": "the edge's end breaks; what it wrote reaches the cloud only after some seconds",
    "lose_half": "the cloud's end breaks; the edge learns it some seconds later",
    "stall": "nothing arrives for some seconds, then everything",
    "deafen": "the edge does not read for some seconds",
    "mute": "what the edge writes does not arrive for some seconds",
    "kill": "the verifier dies with all it holds, and is back after some seconds",
    "move": "the edge goes to the other replica; what it wrote reaches the first only after some seconds",
    "drain": "the verifier refuses new streams, ends the others after some seconds, and restarts",
    "cancel": "the user cancels the turn",
    "leave": "the user walks away and asks the next thing on the same stream",
    "flip": "the digest of the next commit is wrong",
    "forge": "the next commit names a node that was never sent",
}
"""What can go wrong, and what it means."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A turn: which edge asks, what kind (see `ASKS`), for how many tokens, with which seed."""

    edge: int
    kind: str
    tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens at a time (seconds) to an edge's link or its verifier; see `FAULTS`."""

    at: float
    kind: str
    edge: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Setup:
    """The world that a schedule runs in. Times in seconds.

    Attributes:
        policy: the verifier's free running.
        rate: tokens/s that edges ask for; 0 is never due.
        up, down: one-way delays.
        step: a verify step of few rows.
        draft: one proposal of the drafter.
        accuracy: chance that a proposal is right.
        ahead: draft length; -1 leaves it to `controller`, 0 is no drafter.
        tree: `--draft-tree` of the edges.
        controller: `--controller` of the edges.
        window: frames that one direction of a stream holds unread.
        grace: how long a verifier keeps a session that no edge speaks for.
        run_ahead: tokens that a verifier commits without acknowledgement.
        pages: KV pages of a verifier: with one, its sessions wait for each other.
        salt: seeds whatever else is drawn.
    """

    policy: str = "idle"
    rate: float = 20.0
    up: float = 0.05
    down: float = 0.05
    step: float = 0.02
    draft: float = 0.005
    accuracy: float = 0.7
    ahead: int = 4
    tree: str = "off"
    controller: str = "rate"
    window: int = 8
    grace: float = 5.0
    run_ahead: int = 32
    pages: int = 10
    salt: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Asks in the order in which each edge makes them, and faults in the order of their times."""

    setup: Setup
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        lines = [f"setup {_words(self.setup)}"]
        lines += [f"ask {_words(ask)}" for ask in self.asks]
        lines += [f"at {f.at!r} {f.kind} edge={f.edge} seconds={f.seconds!r}" for f in self.faults]
        return "\n".join(lines)


T = TypeVar("T", Setup, Ask, Fault)


def parse_schedule(text: str) -> Schedule:
    """The schedule that `str` wrote; blank lines and lines with # are skipped.

    Raises:
        UsageError: a line is not understood.
    """
    setup, asks, faults = Setup(), [], []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        head, *words = line.split()
        if head == "setup":
            setup = _read(Setup, words, line)
        elif head == "ask":
            asks.append(_read(Ask, words, line))
        elif head == "at" and len(words) >= 2:
            faults.append(_read(Fault, [f"at={words[0]}", f"kind={words[1]}", *words[2:]], line))
        elif head[0] != "#":
            raise UsageError(f"not a line of a schedule: {line!r}")
    if any(ask.kind not in ASKS for ask in asks) or any(fault.kind not in FAULTS for fault in faults):
        raise UsageError(f"a schedule knows the asks {', '.join(ASKS)} and the faults {', '.join(FAULTS)}")
    return Schedule(setup, tuple(asks), tuple(faults))


def _words(value: Setup | Ask) -> str:
    return " ".join(f"{field.name}={getattr(value, field.name)}" for field in fields(value))


def _read(kind: type[T], words: Sequence[str], line: str) -> T:
    types: dict[str, Any] = {"int": int, "float": float, "str": str}
    known = {field.name: types[str(field.type)] for field in fields(kind)}
    try:
        return kind(**{name: known[name](value) for name, value in (word.split("=") for word in words)})
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"not a line of a schedule: {line!r} ({error})") from error
