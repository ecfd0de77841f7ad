"""Measures what the brain of an edge session costs: processor time inside the session's methods.

Drafter, link and verifier, which in a simulation run in the same thread, are left out.
"""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from statistics import median

from acespec.edge.events import Committed
from acespec.edge.session import EdgeSession

PARTS = {
    "receive": "a frame of the cloud: decoded and compared, learned from, the tree re-rooted",
    "drafted": "a drafter's guesses: estimated, put into the tree",
    "job": "where to draft next, and whether it is still worth it",
    "ship": "a frame that goes out: drafts chosen, packed, encoded",
    "poll": "no frame goes out yet: when will it be time",
}
METHODS = {
    "receive": "receive",
    "drafted": "drafted",
    "draft_job": "job",
    "is_void": "job",
    "poll": "poll",
    "wake_at": "poll",
}
"""Of a session, and the part that each is of; `poll` is `ship` where it gives a frame."""
TRIALS = 2000
Method = Callable[..., object]


@dataclass(slots=True)
class Spent:
    """What the brain took in all sessions of a run.

    Attributes:
        seconds: processor time by part, without what it took to measure it.
        calls: by part.
        tokens: committed.
        guesses: handed in by drafters.
        peak: most nodes in a tree.
        held: nodes in the tree, summed over the calls of `drafted`.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    tokens: int = 0
    guesses: int = 0
    peak: int = 0
    held: int = 0

    @property
    def total_s(self) -> float:
        """Of all parts."""
        return sum(self.seconds.values())

    @property
    def nodes(self) -> float:
        """Mean of the nodes in the tree, over the calls of `drafted`."""
        return self.held / max(1, self.calls["drafted"])


@contextmanager
def brain_time(spent: Spent) -> Iterator[None]:
    """Times all sessions until the context ends, and adds it up in `spent`."""
    with _wrapped(lambda method, part: _timed(method, part, spent)):
        yield


@contextmanager
def brain_profile(profile: cProfile.Profile) -> Iterator[None]:
    """Profiles all sessions until the context ends."""
    with _wrapped(lambda method, _: _profiled(method, profile)):
        yield


@contextmanager
def _wrapped(wrap: Callable[[Method, str], Method]) -> Iterator[None]:
    own: dict[str, Method] = {name: getattr(EdgeSession, name) for name in METHODS}
    for name, part in METHODS.items():
        setattr(EdgeSession, name, wrap(own[name], part))
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(EdgeSession, name, method)


def _timed(method: Method, part: str, spent: Spent) -> Method:
    def timed(session: EdgeSession, *args: object, **named: object) -> object:
        began = time.thread_time()
        answer = method(session, *args, **named)
        seconds = time.thread_time() - began - _overhead_s()
        at = "ship" if part == "poll" and isinstance(answer, bytes) else part
        spent.seconds[at] += seconds
        spent.calls[at] += 1
        if at == "receive" and isinstance(answer, list):
            spent.tokens += sum(len(event.tokens) for event in answer if isinstance(event, Committed))
        if at == "drafted":
            _count(session, args, spent)
        return answer

    return timed


def _profiled(method: Method, profile: cProfile.Profile) -> Method:
    def profiled(session: EdgeSession, *args: object, **named: object) -> object:
        profile.enable()
        try:
            return method(session, *args, **named)
        finally:
            profile.disable()

    return profiled


def _count(session: EdgeSession, args: tuple[object, ...], spent: Spent) -> None:
    levels = args[1]
    if isinstance(levels, Sequence):
        spent.guesses += sum(len(level) for level in levels)
    spent.held += session.nodes
    spent.peak = max(spent.peak, session.nodes)


@cache
def _overhead_s() -> float:
    """What an empty method takes by this measure."""
    return median(_empty_s(lambda: None) for _ in range(TRIALS))


def _empty_s(method: Callable[[], None]) -> float:
    began = time.thread_time()
    method()
    return time.thread_time() - began
