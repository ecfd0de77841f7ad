"""The setting of the closed forms, as scenarios: one edge, a verifier that takes the same time at any length, a link
whose rate costs nothing, no jitter, no loss."""

from __future__ import annotations

from pathlib import Path

from acespec.proto.timing_profile import TimingProfile
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec, Value
from acespec.sim.world.world import run

SEED = 35
"""Its first 4,000 and 20,000 draws are even: at .5 to .9, the share of wrong guesses is within 1 % of what it should
be, so that a short run stands for a long one. Chosen by the draws, not by what comes of them."""
FASTEST = 1e9
"""Kbps at which a message takes a nanosecond."""
ANY_LENGTH = TargetSpec(profile="theory-25ms", max_draft=64, max_rows=256)


def scene(
    strategy: str,
    *,
    R: float,
    a: float | str,
    t_d: float = 5.0,
    tokens: int = 4000,
    kbps: float = FASTEST,
    target: TargetSpec = ANY_LENGTH,
    edges: int = 1,
    turns: int = 1,
    **params: Value,
) -> Scenario:
    """One run of a strategy; times in ms."""
    return Scenario(
        seed=SEED,
        duration_s=1e5,
        link=LinkChoice(preset=None, overrides={"rate_up_kbps": kbps, "rate_down_kbps": kbps, "delay_ms": R / 2}),
        target=target,
        drafter=DrafterSpec(token_ms=t_d, acceptance=str(a)),
        load=LoadSpec(edges=edges, tokens=tokens, turns=turns),
        strategy=StrategySpec(strategy, params),
    )


def speed(scenario: Scenario) -> float:
    """Tokens per second behind the first one."""
    return run(scenario).tokens_per_s.mean


def draft_length(result: Result) -> float:
    """Drafts in a message up, on average; one message of each turn is its prompt."""
    edge = result.edges[0]
    return edge.drafted / (edge.traffic.up_messages - edge.turns)


def flat_target(folder: Path, ms: float) -> TargetSpec:
    """A verifier whose every step takes `ms`."""
    path = folder / f"flat-{ms:g}ms.json"
    TimingProfile(path.stem, ((1, ms / 1000),), 0.0, 10_240.0, "the closed forms' t_v").save(path)
    return TargetSpec(profile=str(path), max_draft=64, max_rows=256)
