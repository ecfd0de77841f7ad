"""The strategies by name, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from acespec.proto.errors import UsageError
from acespec.sim.world.place import Actor, Place
from acespec.sim.world.scenario import StrategySpec, Value

if TYPE_CHECKING:
    from acespec.sim.world.world import World


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: its default fixes its type (a whole number serves where a fraction is wanted)."""

    name: str
    default: Value
    help: str


class Strategy(Protocol):
    """One for a run; it makes what its edges share, in `__init__`, and an actor for each edge."""

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        """`params` has a value for each of the strategy's parameters."""

    def begin(self, place: Place) -> Actor:
        """An edge comes up: who lives there. The world then hands the actor its wishes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A strategy in the registry. `where` is its module below this package and its class."""

    name: str
    help: str
    where: str
    params: tuple[Param, ...] = ()

    def load(self) -> type[Strategy]:
        """Its class."""
        module, _, kind = self.where.partition(":")
        found: type[Strategy] = getattr(import_module(f"acespec.sim.world.strategies.{module}"), kind)
        return found


_DRAFT = Param("draft", "best", "draft length D: a number, or best: what the strategy's closed form finds")
_PAIR_BITS = Param("pair_bits", 64, "bits of an id with its probability")
_TOP = Param("top", 10, "target tokens, with their probabilities, that a verdict brings")
_RATE = Param("target_rate", -1.0, "tokens/s that are asked for; -1: what the operator grants")
_FREE_RUN = Param("free_run", "", "the verifier's policy: always, idle or never; empty: the target's own")

ENTRIES: tuple[Entry, ...] = (
    Entry("plain", "plain cloud decoding over the real stack, without drafts", "plain:Plain", (_FREE_RUN, _RATE)),
    Entry(
        "ours",
        "the real edge session and verifier, drafts up and commits down",
        "ours:Ours",
        (
            Param("draft", "auto", "draft length: auto, a number, or a controller: rate, confidence, ucb, fixed:N"),
            Param("tree", "siblings:4", "shape of drafts: off (a chain), siblings:K, or on (a tree)"),
            _FREE_RUN,
            _RATE,
        ),
    ),
    Entry(
        "coloc",
        "speculative decoding with drafter and target in one cloud",
        "coloc:Colocated",
        (_DRAFT, Param("cloud_draft_ms", 2.0, "time of a draft token in the cloud")),
    ),
    Entry("stop-and-wait", "draft D, send, wait for the verdict", "stop_and_wait:StopAndWait", (_DRAFT,)),
    Entry("picospec", "a pipeline of depth 1, after PicoSpec", "picospec:PicoSpec", (_DRAFT, _PAIR_BITS, _TOP)),
    Entry(
        "acespec",
        "a branch cache at the edge, after AceSpec",
        "acespec:AceSpec",
        (
            _DRAFT,
            Param("law", "geometric", "fan-out by depth: geometric, uniform, one, single, bonus or best"),
            Param("budget", 40, "nodes of a tree, the chain's included"),
            Param("adapt", False, "let the budget follow round trip and verify time"),
            Param("b", 1.0, "exponent of the chance 1 - c F^-b that F alternatives hold the correction"),
            Param("c", 0.5, "factor of the same"),
            Param("tree_factor", 1.5, "time of a tree over that of a chain of the same depth"),
            Param("branch_ms", 0.0, "time of each node beside the chain"),
            _PAIR_BITS,
            _TOP,
        ),
    ),
    Entry(
        "streaming",
        "a deep chain without a pause, window or price: the ideal that bounds chains on fast links",
        "streaming:Streaming",
        (
            Param("free_run", False, "step where no draft is, too"),
            Param("most", 64, "drafts of a step"),
        ),
    ),
)

STRATEGIES: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def find_strategy(name: str) -> Entry:
    """The entry of that name. Raises UsageError that lists the names."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise UsageError(f"no strategy {name!r}: choose one of {', '.join(STRATEGIES)}") from None


def params_of(spec: StrategySpec) -> dict[str, Value]:
    """All parameters of a strategy, with the values that `spec` gives and defaults for the rest.

    Raises:
        UsageError: an unknown strategy or parameter, or a value of another type than the default.
    """
    entry = find_strategy(spec.name)
    known = {param.name: param for param in entry.params}
    for name in spec.params:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"strategy {spec.name} has no parameter {name!r}: {takes}")
    return {name: _checked(spec, param) for name, param in known.items()}


def _checked(spec: StrategySpec, param: Param) -> Value:
    value = spec.params.get(param.name, param.default)
    if isinstance(param.default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(param.default, str) and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # Numbers may stand where words may.
    if type(value) is not type(param.default):
        kind = type(param.default).__name__
        raise UsageError(f"strategy {spec.name} {param.name} is {value!r}: it must be of type {kind}")
    return value
