"""What a run of the world is: link, target, drafter, load, strategy, seed. Data only, checked once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from acespec.cloud.scheduler import FreeRun
from acespec.models.replay_tokenizer import DEFAULT_VOCABULARY
from acespec.proto.errors import UsageError
from acespec.proto.replay_profiles import find_drafter, find_verifier
from acespec.proto.replay_text import SMALLEST_VOCABULARY
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.link_file import read_link_file
from acespec.sim.spec import LinkSpec
from acespec.sim.spec_reader import spec_from_table

Value = str | int | float | bool
"""What a strategy's parameter may be."""


def _require(holds: bool, key: str, value: object, wanted: str) -> None:
    if not holds:
        raise UsageError(f"scenario {key} is {value!r}: it must be {wanted}")


@dataclass(frozen=True, slots=True)
class LinkChoice:
    """A preset or a link file, and fields of `LinkSpec` that override it. Every edge gets a link of its own."""

    preset: str | None = "wan50"
    file: str | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)

    def spec(self) -> LinkSpec:
        """The link; its seed is replaced for each edge. Raises UsageError."""
        if self.file is not None:
            base: LinkSpec | None = read_link_file(self.file)
        else:
            base = None if self.preset is None else LinkSpec.preset(self.preset)
        return spec_from_table(dict(self.overrides), base)


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The verifier, as its operator starts it.

    Attributes:
        profile: name or file of its timing.
        ids: a replay file of texts; None: the synthetic one.
        background: sessions of others, which bring one row each to every step.
        free_run: what sessions that are not due may cost.
        target_rate: tokens/s that a session is granted; 0 is never due. Readers are taken to want it, too.
        max_rows: rows of a step; None: the profile's knee, as `serve` chooses it.
        kv_pages: pages of 64 positions; None: plenty.
    """

    profile: str = "h100-70b-fp8"
    vocab: int = DEFAULT_VOCABULARY
    ids: str | None = None
    background: int = 0
    free_run: str = "idle"
    target_rate: float = 20.0
    max_draft: int = 16
    max_rows: int | None = None
    kv_pages: int | None = None

    def __post_init__(self) -> None:
        _require(self.free_run in tuple(FreeRun), "target free_run", self.free_run, "always, idle or never")
        _require(self.target_rate >= 0, "target target_rate", self.target_rate, "0 or more tokens/s")
        _require(self.vocab >= SMALLEST_VOCABULARY, "target vocab", self.vocab, f"{SMALLEST_VOCABULARY} or more")
        _require(self.background >= 0, "target background", self.background, "0 or more")
        _require(1 <= self.max_draft <= 256, "target max_draft", self.max_draft, "1 to 256")
        for name in ("max_rows", "kv_pages"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"target {name}", value, "1 or more")

    def timing(self) -> TimingProfile:
        """The profile, without the background's share. Raises UsageError."""
        return find_verifier(self.profile)


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """The drafter that every edge has, and that co-located speculation has in the cloud with the same accuracy.

    Attributes:
        kind: `replay`, `useless` or `hostile`, as the replayed drafters are called; baselines take it as `replay`.
        profile: whose time per proposal.
        token_ms: time per proposal; replaces the profile's.
        acceptance: `0.8`, `0.9,0.8,0.7` by depth, or a trace file, as `--acceptance` takes it.
    """

    kind: str = "replay"
    profile: str = "m3-0.6b-4bit"
    token_ms: float | None = None
    acceptance: str = "0.8"

    def __post_init__(self) -> None:
        _require(self.token_ms is None or self.token_ms >= 0, "drafter token_ms", self.token_ms, "0 or more")

    @property
    def token_s(self) -> float:
        """t_d in seconds. Raises UsageError for an unknown profile."""
        return find_drafter(self.profile).token_s if self.token_ms is None else self.token_ms / 1000


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """Who asks for what.

    Attributes:
        edges: users, each with an edge and a link of its own.
        start_spread_s: they begin at random within this time.
        turns: of one conversation, one after another; each sends the new prompt only, as far as the strategy can.
        prompt_tokens: new ones, each turn.
        tokens: answered, each turn.
        think_s: between an answer and the next question.
    """

    edges: int = 1
    start_spread_s: float = 0.0
    turns: int = 1
    prompt_tokens: int = 32
    tokens: int = 256
    think_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("edges", "turns", "prompt_tokens", "tokens"):
            _require(getattr(self, name) >= 1, f"load {name}", getattr(self, name), "1 or more")
        for name in ("start_spread_s", "think_s"):
            _require(getattr(self, name) >= 0, f"load {name}", getattr(self, name), "0 or more seconds")


@dataclass(frozen=True, slots=True)
class StrategySpec:
    """A strategy's name and parameters; `strategies/registry.py` knows what there is."""

    name: str = "ours"
    params: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that decides a run. `duration_s` is virtual time; a run ends earlier if every turn is over."""

    name: str = "scenario"
    seed: int = 1
    duration_s: float = 60.0
    link: LinkChoice = LinkChoice()
    target: TargetSpec = TargetSpec()
    drafter: DrafterSpec = DrafterSpec()
    load: LoadSpec = LoadSpec()
    strategy: StrategySpec = StrategySpec()

    def __post_init__(self) -> None:
        _require(0 < self.duration_s <= 1e6, "duration_s", self.duration_s, "above 0 and at most 1e6 seconds")

    def as_json(self) -> dict[str, object]:
        """Plain data; `scenario_from` reads it back."""
        return asdict(self)

    def config_hash(self) -> str:
        """SHA-256 of the canonical JSON, the name left out: equal for equal runs of one version."""
        data = replace(self, name="").as_json()
        return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def scenario_from(table: Mapping[str, object], folder: Path | None = None) -> Scenario:
    """A scenario from a table as TOML or JSON gives it; what is not there keeps its default.

    `folder` is where relative file names (link file, profile, ids, acceptance trace) are looked for, if they are there.

    Raises:
        UsageError: an unknown key, a wrong type or a value out of range, named with its section.
    """
    from acespec.sim.world.scenario_reader import read_scenario

    return read_scenario(table, folder)
