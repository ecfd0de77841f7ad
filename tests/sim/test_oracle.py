"""The oracle: it drafts what will be accepted and nothing else, as fast as the drafter whose outcomes it knows."""

from __future__ import annotations

import pytest

from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.replay import ReplayDrafter, Untimed
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.proto.errors import UsageError
from acespec.proto.replay_text import SyntheticText
from acespec.proto.sampling_params import SamplingParams
from acespec.sim.world.oracle_drafter import OracleDrafter
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec, Value
from acespec.sim.world.world import run

VOCAB = 1000
STEADY = LinkChoice(None, overrides={"rate_up_kbps": 50, "rate_down_kbps": 50, "delay_ms": 50})


def decode(kind: str, acceptance: float, strategy: str = "ours", **params: Value) -> Result:
    scenario = Scenario(
        duration_s=1000.0,
        link=STEADY,
        target=TargetSpec(profile="a100-70b", free_run="always", target_rate=0.0),
        drafter=DrafterSpec(kind=kind, acceptance=str(acceptance)),
        load=LoadSpec(tokens=200),
        strategy=StrategySpec(strategy, params),
    )
    return run(scenario)


@pytest.mark.parametrize("tree", ["off", "siblings:4", "on"])
@pytest.mark.parametrize("draft", ["fixed:16", "rate"])
def test_it_never_ships_a_wrong_token(tree: str, draft: str) -> None:
    edge = decode("oracle", 0.7, draft=draft, tree=tree).edges[0]
    assert edge.verified == edge.accepted > 0
    assert edge.drafting.surprises == 0
    assert edge.drafting.proposals <= edge.tokens + 16, "it drafts no position twice"


def test_it_is_as_fast_as_the_best_length_and_a_tree_of_it_is_faster() -> None:
    fixed = [decode("replay", 0.7, draft=f"fixed:{n}", tree="off").tokens_per_s.mean for n in (1, 2, 4, 8, 12, 16)]
    chain = decode("oracle", 0.7, draft="fixed:16", tree="off").tokens_per_s.mean
    tree = decode("oracle", 0.7, draft="fixed:16", tree="on").tokens_per_s.mean
    assert chain > 0.995 * max(fixed)
    assert tree > 1.3 * chain, "where one of four guesses is right it goes on"


def test_where_nothing_is_right_it_says_nothing_and_delays_nothing() -> None:
    oracle, plain = decode("oracle", 0.0, draft="fixed:16", tree="off"), decode("replay", 0.0, "plain")
    assert oracle.edges[0].drafted == oracle.edges[0].drafting.proposals == 0
    assert oracle.edges[0].drafting.seconds == 0.0
    assert oracle.tokens_per_s.mean == pytest.approx(plain.tokens_per_s.mean, rel=0.01)


def test_where_all_is_right_it_is_the_drafter_itself() -> None:
    oracle, drafter = (decode(kind, 1.0, draft="fixed:8", tree="off") for kind in ("oracle", "replay"))
    assert oracle.digest == drafter.digest


class Clock:
    """Counts the time of proposals."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def work(self, seconds: float, interrupted: object = None) -> bool:
        self.seconds += seconds
        return True


@pytest.mark.parametrize("k", [1, 4])
def test_it_says_the_right_one_of_the_guesses_that_the_drafter_would_make(k: int) -> None:
    text, accuracy, clock = SyntheticText(VOCAB), DepthAccuracy((0.6,)), Clock()
    turn = TurnContext(SamplingParams(), seed=5, prompt_len=3, vocab_size=VOCAB)
    drafter, oracle = ReplayDrafter(text, accuracy, 0.1, Untimed()), OracleDrafter(text, accuracy, 0.1, clock)
    drafter.begin(turn)
    oracle.begin(turn)
    path, spoken = [1, 2, 3], 0
    for position in range(3, 103):
        truth = text.token(5, position, 3)
        guesses = [guess.token for guess in drafter.propose(path, k)]
        said = oracle.propose(path, k)
        assert [(guess.token, guess.probability) for guess in said] == ([(truth, 1.0)] if truth in guesses else [])
        spoken += len(said)
        path.append(truth)
        for each in (drafter, oracle):
            each.commit([truth], position)
    assert clock.seconds == pytest.approx(0.1 * spoken)
    assert 40 < spoken < 100


def test_only_the_real_edge_has_an_oracle() -> None:
    with pytest.raises(UsageError, match="replay, useless, hostile, oracle"):
        decode("prophet", 0.5)
