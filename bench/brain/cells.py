"""A cell of the grid: a verifier, a link, a drafter and how often it is right. Run in the world, with several seeds.

All ways to draft meet the same texts, the same right and wrong guesses and the same link in a cell, seed by seed; so
ratios between them are paired.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from acespec.sim.world.result import Drafting, Result
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec, Value
from acespec.sim.world.world import run

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
TRACES = {name: str(SCENARIOS / f"{name}.jsonl.zst") for name in ("code", "prose")}
"""Recorded pairs: the first guess is right in .90 and .70 of cases, one of the first four in .99 and .92."""
LAN = LinkChoice(None, overrides={"rate_up_kbps": 1e5, "rate_down_kbps": 1e5, "delay_ms": 0.5})
LINKS: Mapping[str, LinkChoice] = {
    "lan": LAN,
    "lte": LinkChoice("ltem_capped"),
    "wan50": LinkChoice("wan50"),
    "gprs": LinkChoice("gprs"),
    "satellite": LinkChoice("bgan_stream64"),
}
THINK_S = 0.5
FOREVER_S = 1e5


@dataclass(frozen=True, slots=True)
class Cell:
    """What a session meets. `acceptance` is numbers, or a name of `TRACES`; `drafter` a profile's name."""

    verifier: str
    link: str
    acceptance: str
    drafter: str = "m3-0.6b-4bit"

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.verifier} {self.link} {self.acceptance}" + (" slow" if self.drafter.startswith("laptop") else "")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to draft: a strategy of the world, its parameters, and the kind of drafter."""

    name: str
    strategy: str = "ours"
    params: Mapping[str, Value] = field(default_factory=dict)
    kind: str = "replay"


PLAIN = Way("plain", "plain")


def ours(draft: str, tree: str = "off", kind: str = "replay") -> Way:
    """Drafts up, commits down."""
    return Way(f"{draft} {tree}", params={"draft": draft, "tree": tree}, kind=kind)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is run: `turns` answers of `tokens` for each of `seeds` seeds. Recorded texts have 91 tokens or more.

    `free_run` is the operator's policy; no session is ever due.
    """

    seeds: int = 3
    turns: int = 2
    tokens: int = 90
    free_run: str = "always"


def scenario_of(cell: Cell, way: Way, effort: Effort, seed: int) -> Scenario:
    """One run."""
    return Scenario(
        name=cell.name,
        seed=seed,
        duration_s=FOREVER_S,
        link=LINKS[cell.link],
        target=TargetSpec(profile=cell.verifier, free_run=effort.free_run, target_rate=0.0),
        drafter=DrafterSpec(way.kind, cell.drafter, acceptance=TRACES.get(cell.acceptance, cell.acceptance)),
        load=LoadSpec(turns=effort.turns, tokens=effort.tokens, think_s=THINK_S),
        strategy=StrategySpec(way.strategy, way.params),
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """What a way came to in a cell; per token where it says so, means over seeds.

    Attributes:
        speeds: decoding speed for each seed, tokens/s.
        rows: of the verifier, a step's own row included, per token.
        drafted: tokens that were sent; `proposals` passes of the drafter; both per token.
        surprises: first guesses that commits contradicted; `covered` share of these that found the branch cache;
            `saved` tokens that it kept from being drafted again, per token.
        calibration_error: see `Drafting`.
    """

    speeds: tuple[float, ...]
    acceptance_length: float
    steps: float
    rows: float
    drafted: float
    proposals: float
    up_bytes: float
    down_bytes: float
    verifier_ms: float
    surprises: int
    covered: float
    saved: float
    calibration_error: float

    @property
    def speed(self) -> float:
        """Mean tokens/s."""
        return statistics.fmean(self.speeds)

    @property
    def error(self) -> float:
        """Standard error of `speed`; 0 for one seed."""
        return standard_error(self.speeds)


def figures_of(results: Sequence[Result]) -> Figures:
    """Of the runs of one way, a result a seed."""
    tokens = sum(result.tokens for result in results)
    edges = [edge for result in results for edge in result.edges]
    done: list[Drafting] = [edge.drafting for edge in edges]
    surprises, covered = sum(each.surprises for each in done), sum(each.covered for each in done)
    return Figures(
        speeds=tuple(result.tokens_per_s.mean for result in results),
        acceptance_length=_mean([result.acceptance_length for result in results]),
        steps=sum(edge.steps for edge in edges) / tokens,
        rows=sum(edge.steps + edge.verified for edge in edges) / tokens,
        drafted=sum(edge.drafted for edge in edges) / tokens,
        proposals=sum(each.proposals for each in done) / tokens,
        up_bytes=_mean([result.up_bytes_per_token for result in results]),
        down_bytes=_mean([result.down_bytes_per_token for result in results]),
        verifier_ms=1000 * _mean([result.verifier_s_per_token for result in results]),
        surprises=surprises,
        covered=covered / surprises if surprises else 0.0,
        saved=sum(each.saved for each in done) / tokens,
        calibration_error=_mean([each.calibration_error for each in done]),
    )


def measure(cell: Cell, way: Way, effort: Effort) -> Figures:
    """Run one way in one cell, with every seed."""
    return figures_of([run(scenario_of(cell, way, effort, seed)) for seed in range(1, effort.seeds + 1)])


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of speeds and its standard error, from pairs of runs with the same seed."""

    value: float
    error: float

    @classmethod
    def of(cls, above: Figures, below: Figures) -> Ratio:
        """Of the mean speeds."""
        pairs = [a / b for a, b in zip(above.speeds, below.speeds, strict=True)]
        return cls(above.speed / below.speed, standard_error(pairs))


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; 0 of a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[tuple[T, R]]:
    """Each item with what `work` makes of it, as they get ready; in this process if `jobs` is 1.

    `work` is a function of a module; it, items and results travel between processes.
    """
    if jobs == 1:
        for item in items:
            yield item, work(item)
        return
    with ProcessPoolExecutor(min(jobs, len(items)), get_context("spawn")) as pool:
        futures = {pool.submit(work, item): item for item in items}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0
