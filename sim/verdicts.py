"""Who is fastest where, in words: under each condition of a sweep, our best against every other strategy's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from acespec.sim.figures import shown
from acespec.sim.plots.grid import PLAIN, SEED, label_of, strategy_axis
from acespec.sim.sweep_store import SweepData

OURS = "ours"
COLOCATED = "coloc"
LEVEL = 0.01
"""Speeds that differ by less are called level."""
NAMES = {
    PLAIN: "plain decoding",
    COLOCATED: "co-located speculative decoding",
    "streaming": "the ideal of streaming",
    "picospec": "the depth-1 pipeline (PicoSpec)",
    "acespec": "the branch cache (AceSpec)",
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy's best variant under a condition: its label in the sweep, and tokens/s, the mean over seeds."""

    strategy: str
    label: str
    speed: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition: our best variant, and everybody else's, fastest first."""

    condition: str
    ours: Contender
    others: tuple[Contender, ...]

    def lead(self, other: Contender) -> float:
        """By which share `other` is faster than ours; negative if it is slower."""
        return other.speed / self.ours.speed - 1

    @property
    def ahead(self) -> tuple[Contender, ...]:
        """Those that beat ours by more than LEVEL."""
        return tuple(other for other in self.others if self.lead(other) > LEVEL)


def speeds(data: SweepData) -> dict[str, dict[str, Contender]]:
    """By condition, then by the label of the strategy."""
    strategies = strategy_axis(data)
    rest = [n for n, axis in enumerate(data.axes) if n != strategies and axis.keys != (SEED,)]
    found: dict[str, dict[str, list[Contender]]] = {}
    for done in data.cells:
        name = done.result.scenario.strategy.name
        label = name if strategies is None else done.labels[strategies]
        here = found.setdefault(label_of(data, done, rest), {}).setdefault(label, [])
        here.append(Contender(name, label, done.result.tokens_per_s.mean))
    return {where: {label: _mean(runs) for label, runs in labels.items()} for where, labels in found.items()}


def verdicts(data: SweepData) -> list[Verdict]:
    """One for each condition under which ours and another strategy were run."""
    judged = []
    for where, labels in speeds(data).items():
        best: dict[str, Contender] = {}
        for contender in labels.values():
            if contender.strategy not in best or contender.speed > best[contender.strategy].speed:
                best[contender.strategy] = contender
        ours = best.pop(OURS, None)
        if ours is not None and ours.speed > 0 and best:
            others = sorted(best.values(), key=lambda other: -other.speed)
            judged.append(Verdict(where, ours, tuple(others)))
    return judged


def summary(judged: Sequence[Verdict]) -> Iterator[str]:
    """What holds over all conditions: first ours, then each strategy that beats it somewhere."""
    if not judged:
        yield "The sweep does not run our scheme beside others: there is nothing to judge."
        return
    best = sum(not verdict.ahead for verdict in judged)
    yield (
        f"Ours is the fastest, or within {percent(LEVEL)} of it, under {best} of {len(judged)} conditions "
        "(by decoding speed of an edge; of several variants of a strategy, the fastest under the condition counts)."
    )
    if any(other.strategy == COLOCATED for verdict in judged for other in verdict.others):
        here = sum(all(other.strategy == COLOCATED for other in verdict.ahead) for verdict in judged)
        yield (
            f"Co-location needs both models and their memory in the cloud. Without it, ours is the fastest, or within "
            f"{percent(LEVEL)} of it, under {here} of {len(judged)}."
        )
    rivals = dict.fromkeys((COLOCATED, PLAIN, *(other.strategy for verdict in judged for other in verdict.others)))
    for rival in rivals:
        met = [(v, other) for v in judged for other in v.others if other.strategy == rival]
        if met:
            yield _standing(rival, met)


def sentences(judged: Sequence[Verdict]) -> Iterator[str]:
    """Under each condition where co-located speculation or plain decoding beats ours, by how much."""
    for verdict in judged:
        for other in verdict.ahead:
            if other.strategy in (COLOCATED, PLAIN):
                yield (
                    f"{verdict.condition or 'Here'}: {name_of(other.strategy)}{_variant(other)} beats ours: "
                    f"{shown(other.speed)} against {shown(verdict.ours.speed)} tokens/s{_variant(verdict.ours)}, "
                    f"{percent(verdict.lead(other))} more."
                )


def percent(share: float) -> str:
    """A share in words."""
    return f"{100 * share:.0f} %"


def name_of(strategy: str) -> str:
    """A strategy in words."""
    return NAMES.get(strategy, strategy)


def _standing(rival: str, met: Sequence[tuple[Verdict, Contender]]) -> str:
    name = name_of(rival)
    name = name[0].upper() + name[1:]
    wins = [(verdict.lead(other), verdict.condition) for verdict, other in met if verdict.lead(other) > LEVEL]
    if not wins:
        return f"{name} beats ours nowhere ({len(met)} conditions)."
    most, where = max(wins)
    return (
        f"{name} beats ours under {len(wins)} of {len(met)} conditions: by {percent(median(lead for lead, _ in wins))} "
        f"at the median, by {percent(most)} at most{f' ({where})' if where else ''}."
    )


def _variant(contender: Contender) -> str:
    return "" if contender.label == contender.strategy else f" ({_short(contender)})"


def _short(contender: Contender) -> str:
    """`ours (draft 8)` is `draft 8` where it is said that it is ours."""
    return contender.label.removeprefix(contender.strategy).strip().removeprefix("(").removesuffix(")")


def _mean(runs: Sequence[Contender]) -> Contender:
    first = runs[0]
    return Contender(first.strategy, first.label, sum(run.speed for run in runs) / len(runs))


def fastest(labels: Mapping[str, Contender]) -> float:
    """The highest speed under a condition."""
    return max((contender.speed for contender in labels.values()), default=0.0)
