"""What a run on a device tells: figures, some with a target; as a table and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

Status = Literal["done", "failed", "cut off", "skipped"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number.

    Attributes:
        value: None where it cannot be had, as a time in the interpreter.
        at_most, at_least: the target, if there is one.
        note: a few words beside it in the table.
        headline: whether the table shows it in any case; it always shows a target that is missed.
        facts: what else is known about it, for the file.
    """

    name: str
    value: float | None
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    headline: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """In words; empty if there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}" if self.at_most else "0"
        return "" if self.at_least is None else f">= {self.at_least:g}"

    @property
    def verdict(self) -> str:
        """Whether the target is met; empty if there is none."""
        if not self.target:
            return ""
        if self.value is None:
            return "not measured"
        met = self.at_most is not None and self.value <= self.at_most
        return "met" if met or (self.at_least is not None and self.value >= self.at_least) else "MISSED"


@dataclass(slots=True)
class Outcome:
    """What became of a section.

    Attributes:
        error: why it has not all its figures, if so.
    """

    section: str
    figures: list[Figure] = field(default_factory=list)
    status: Status = "skipped"
    seconds: float = 0.0
    error: str = ""


def as_data(outcomes: Iterable[Outcome]) -> list[dict[str, object]]:
    """Everything, for a JSON file."""
    return [
        asdict(outcome) | {"figures": [asdict(f) | {"target": f.target, "verdict": f.verdict} for f in outcome.figures]}
        for outcome in outcomes
    ]


def table(outcomes: Sequence[Outcome]) -> str:
    """Headlines, what went wrong, and how many targets are met."""
    lines = [f"{'':58}{'figure':>9} {'':15}{'target':>9}  verdict"]
    for outcome in outcomes:
        lines += _section(outcome)
    complete = sum(outcome.status == "done" for outcome in outcomes)
    everything = [figure for outcome in outcomes for figure in outcome.figures]
    lines.append(f"{complete} of {len(outcomes)} sections complete; targets: {_count(everything) or 'none'}")
    return "\n".join(lines) + "\n"


def _section(outcome: Outcome) -> Iterator[str]:
    yield f"-- {outcome.section}: {outcome.status}, {outcome.seconds:.0f} s; {_count(outcome.figures)}".rstrip("; ")
    for figure in outcome.figures:
        if figure.headline or figure.verdict == "MISSED":
            line = f"{figure.name:58}{_number(figure.value):>9} {figure.unit:15}{figure.target:>9}  {figure.verdict}"
            yield f"{line:100} {figure.note}".rstrip()
    if outcome.error:
        yield f"   {outcome.error.splitlines()[-1][:140]}"


def _count(figures: Iterable[Figure]) -> str:
    verdicts = Counter(figure.verdict for figure in figures if figure.target)
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if math.isfinite(value) and value == round(value) else f"{value:.4g}"
