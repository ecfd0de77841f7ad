"""Makes a failing schedule small: what is not needed for the failure is left out, piece by piece.

Delta debugging in its simplest form (Zeller and Hildebrandt, 2002): drop halves, then quarters, then single items, as
long as the run still fails; then put every setting back to its default if that keeps the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from acespec.sim.schedule import Schedule, Setup

T = TypeVar("T")
Fails = Callable[[Schedule], bool]


def shrink(schedule: Schedule, fails: Fails) -> Schedule:
    """A schedule with as little in it as can be found quickly, for which `fails` still holds."""
    before = None
    while before != schedule:
        before = schedule
        for pass_over in (_fewer_faults, _fewer_asks, _fewer_tokens, _plainer_setup, _earlier_faults):
            schedule = pass_over(schedule, fails)
    return schedule


def _fewer_faults(schedule: Schedule, fails: Fails) -> Schedule:
    kept = _fewer(schedule.faults, lambda faults: fails(replace(schedule, faults=tuple(faults))))
    return replace(schedule, faults=tuple(kept))


def _fewer_asks(schedule: Schedule, fails: Fails) -> Schedule:
    kept = _fewer(schedule.asks, lambda asks: bool(asks) and fails(replace(schedule, asks=tuple(asks))))
    return replace(schedule, asks=tuple(kept))


def _fewer(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    size = len(items)
    while size:
        start = 0
        while start < len(items):
            rest = [*items[:start], *items[start + size :]]
            if fails(rest):
                items = rest
            else:
                start += size
        size //= 2
    return items


def _fewer_tokens(schedule: Schedule, fails: Fails) -> Schedule:
    for index, ask in enumerate(schedule.asks):
        for tokens in (1, ask.tokens // 4, ask.tokens // 2):
            asks = (*schedule.asks[:index], replace(ask, tokens=max(1, tokens)), *schedule.asks[index + 1 :])
            if tokens < ask.tokens and fails(smaller := replace(schedule, asks=asks)):
                schedule = smaller
                break
    return schedule


def _plainer_setup(schedule: Schedule, fails: Fails) -> Schedule:
    default = Setup()
    for field in fields(Setup):
        plainer = replace(schedule, setup=replace(schedule.setup, **{field.name: getattr(default, field.name)}))
        if plainer != schedule and fails(plainer):
            schedule = plainer
    return schedule


def _earlier_faults(schedule: Schedule, fails: Fails) -> Schedule:
    """A fault that may as well come earlier, or last for no time, says less about the cause by when it comes."""
    for index, fault in enumerate(schedule.faults):
        for plainer in (replace(fault, seconds=0.0), replace(fault, at=round(fault.at / 2, 3))):
            faults = (*schedule.faults[:index], plainer, *schedule.faults[index + 1 :])
            moved = replace(schedule, faults=tuple(sorted(faults, key=lambda f: f.at)))
            if moved != schedule and faults == moved.faults and fails(moved):
                schedule = moved
    return schedule
