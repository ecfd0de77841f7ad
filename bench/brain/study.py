"""What the studies of this package share: a bare link, a way to decode over it, one run, tables and files.

The links here have a rate and a delay and nothing else: no jitter, no losses. So what differs between two runs is what
was changed, and closed forms can stand beside the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from acespec.bench.brain.cells import FOREVER_S, TRACES, in_parallel
from acespec.proto.errors import UsageError
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec, Value
from acespec.sim.world.world import run

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KBPS, RTT_MS = 50.0, 100.0
SHAPES = ("off", "siblings:4", "on")


@dataclass(frozen=True, slots=True)
class Setting:
    """One run. `acceptance` is what `--acceptance` takes, or `code` or `prose`, the recorded pairs.

    Attributes:
        free_run, rate: the operator's policy and the rate that each session is granted; 0 is never due.
        edges: users, each with a link of its own, who begin within two seconds if they are several.
        tokens: of each user's answer.
        link: further fields of the link.
    """

    rtt_ms: float = RTT_MS
    kbps: float = KBPS
    acceptance: str = "0.8"
    free_run: str = "always"
    rate: float = 0.0
    tree: str = "on"
    draft: str = "rate"
    strategy: str = "ours"
    edges: int = 1
    tokens: int = 300
    profile: str = "theory-25ms"
    token_ms: float = 5.0
    kind: str = "replay"
    seed: int = 1
    link: Mapping[str, object] = field(default_factory=dict)

    def but(self, **changes: Any) -> Setting:
        """The same with other fields."""
        return replace(self, **changes)

    def scenario(self) -> Scenario:
        """For the world."""
        drafting: dict[str, Value] = {"draft": self.draft, "tree": self.tree} if self.strategy == "ours" else {}
        line = {"rate_up_kbps": self.kbps, "rate_down_kbps": self.kbps, "delay_ms": self.rtt_ms / 2}
        return Scenario(
            seed=self.seed,
            duration_s=FOREVER_S,
            link=LinkChoice(None, overrides=line | dict(self.link)),
            target=TargetSpec(profile=self.profile, free_run=self.free_run, target_rate=self.rate),
            drafter=DrafterSpec(
                self.kind, token_ms=self.token_ms, acceptance=TRACES.get(self.acceptance, self.acceptance)
            ),
            load=LoadSpec(edges=self.edges, tokens=self.tokens, start_spread_s=0.0 if self.edges == 1 else 2.0),
            strategy=StrategySpec(self.strategy, drafting),
        )


def run_setting(setting: Setting) -> Result:
    """Run it in the world."""
    return run(setting.scenario())


T = TypeVar("T")
R = TypeVar("R")


def run_all(work: Callable[[T], R], items: Sequence[T], jobs: int) -> list[R]:
    """What `work` makes of each item, in their order, with word of the progress where somebody watches."""
    done: dict[int, R] = {}
    for (number, _), result in in_parallel(_Numbered(work), list(enumerate(items)), jobs):
        done[number] = result
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(done)} of {len(items)} ")
    if sys.stderr.isatty():
        sys.stderr.write("\r")
    return [done[number] for number in range(len(items))]


@dataclass(frozen=True, slots=True)
class _Numbered(Generic[T, R]):
    """Work on an item that carries its number; it travels between processes as its function does."""

    work: Callable[[T], R]

    def __call__(self, item: tuple[int, T]) -> R:
        return self.work(item[1])


def add_common(parser: argparse.ArgumentParser) -> None:
    """Options of every study."""
    parser.add_argument("--quick", action="store_true", help="a smaller grid")
    parser.add_argument("--jobs", type=int, default=1, help="processes [1]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")


def table(header: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]) -> str:
    """Columns under their heads, numbers to the right; None is a dash."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "".join(f"{line}\n" for line in lines)


def _cell(value: str | int | float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def write_json(path: Path | None, data: object) -> None:
    """Write `data` if a path is given. Raises UsageError if it cannot be written."""
    if path is None:
        return
    try:
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def as_data(items: Iterable[DataclassInstance]) -> list[dict[str, object]]:
    """Dataclasses as plain data."""
    return [asdict(item) for item in items]
