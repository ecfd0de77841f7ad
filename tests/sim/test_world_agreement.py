"""The world agrees with what is known by other means: closed forms, measured bytes, and itself under other policies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acespec.sim.theory.costs import Costs
from acespec.sim.theory.pipelines import free_running_ceiling
from acespec.sim.theory.single_session import plain_ms
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import (
    DrafterSpec,
    LinkChoice,
    LoadSpec,
    Scenario,
    StrategySpec,
    TargetSpec,
    Value,
)
from acespec.sim.world.strategies.real_edge import RealEdge
from acespec.sim.world.world import World, run

SEED = 35
SETUP_UP = 60 - 52 + 176 + 309
"""The SYN's greater header and stream bytes that carry no message: see `grpc_bytes.py`."""
SETUP_DOWN = 60 - 52 + 27 + 302
CLEAN = {"rate_up_kbps": 1e6, "rate_down_kbps": 1e6}


def scene(
    strategy: str,
    *,
    rtt_ms: float = 30.0,
    a: str = "0.8",
    tokens: int = 1500,
    kind: str = "replay",
    profile: str = "theory-25ms",
    link: LinkChoice | None = None,
    **params: Value,
) -> Scenario:
    """One edge over a link whose rate costs nothing, unless another is given."""
    return Scenario(
        seed=SEED,
        duration_s=1e4,
        link=link or LinkChoice(preset=None, overrides=CLEAN | {"delay_ms": rtt_ms / 2}),
        target=TargetSpec(profile=profile),
        drafter=DrafterSpec(kind=kind, token_ms=5.0, acceptance=a),
        load=LoadSpec(tokens=tokens),
        strategy=StrategySpec(strategy, {"free_run": "always"} | params),
    )


def speed(result: Result) -> float:
    """Tokens per second behind the first one."""
    return result.edges[0].tokens_per_s


@pytest.mark.parametrize("rtt_ms", [0.0, 30.0, 200.0])
def test_plain_decoding_is_form_1_at_any_round_trip(rtt_ms: float) -> None:
    result = run(scene("plain", rtt_ms=rtt_ms, tokens=400))
    assert 1000 / speed(result) == pytest.approx(plain_ms(Costs(t_d=5, t_v=25, t_ar=25, R=rtt_ms)), rel=0.03)
    assert result.edges[0].steps == pytest.approx(400, abs=1)


@pytest.mark.parametrize("preset", ["wan50", "gprs", "dialup56"])
def test_plain_decoding_reaches_the_targets_rate_over_narrow_links(preset: str) -> None:
    result = run(scene("plain", link=LinkChoice(preset), tokens=800))
    assert speed(result) == pytest.approx(40.0, rel=0.03)


@pytest.mark.parametrize("kind", ["useless", "hostile"])
@pytest.mark.parametrize("preset", ["wan50", "dialup56"])
def test_a_drafter_that_is_always_wrong_costs_nothing(kind: str, preset: str) -> None:
    link = LinkChoice(preset)
    plain = run(scene("plain", link=link, tokens=800))
    drafted = run(scene("ours", kind=kind, link=link, tokens=800))
    assert speed(drafted) == pytest.approx(speed(plain), rel=0.03)
    assert drafted.edges[0].accepted == 0


@pytest.mark.parametrize(("rtt_ms", "a"), [(10.0, "0.8"), (30.0, "0.8"), (30.0, "0.9"), (60.0, "0.9")])
def test_a_session_is_above_plain_decoding_and_under_the_free_running_ceiling(rtt_ms: float, a: str) -> None:
    ours = speed(run(scene("ours", rtt_ms=rtt_ms, a=a)))
    ceiling = 1000 * free_running_ceiling(Costs(t_d=5, t_v=25, t_ar=25, R=rtt_ms), float(a))
    assert 40.0 * 1.03 < ours < ceiling


def test_with_every_draft_right_a_session_is_as_fast_as_its_drafter() -> None:
    """Unlimited link, no round trip: 1 / t_d, a plain step's token now and then on top."""
    result = run(scene("ours", rtt_ms=0.0, a="1", draft="16", tree="off", tokens=3000))
    assert 200.0 * 0.97 < speed(result) < 200.0 * 1.06
    assert result.edges[0].accepted == result.edges[0].verified


def test_a_target_rate_is_kept_at_fewer_steps_than_tokens() -> None:
    """DESIGN, section 1: 20 tokens/s over wan50 at a = .8 take .22 to .33 steps a token with a chain. It may be faster
    where that costs no more steps."""
    result = run(scene("ours", link=LinkChoice("wan50"), free_run="never", target_rate=20.0, tree="off", tokens=1200))
    assert speed(result) > 20.0 * 0.99
    assert 0.2 < result.steps_per_token < 0.33
    assert result.on_schedule > 0.97


def test_free_running_at_a_long_round_trip_tends_to_plain_decoding() -> None:
    """Form 7: T -> t_ar as R grows."""
    assert speed(run(scene("ours", rtt_ms=1200.0))) == pytest.approx(40.0, rel=0.03)


# -- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["plain", "ours"])
@pytest.mark.parametrize("free_run", ["always", "never"])
def test_bytes_are_payload_framing_and_headers_and_near_what_the_edge_prints(strategy: str, free_run: str) -> None:
    """`edge/wire_stats.py` judges from the frames alone: it charges each a WINDOW_UPDATE, and every second an ACK. That
    is more than a link carries where drafts come in bursts, and never much less."""
    shape = {"tree": "off"} if strategy == "ours" else {}
    world = World(scene(strategy, link=LinkChoice("wan50"), tokens=600, free_run=free_run, **shape))
    world.run()
    place = world.places[0]
    edge, traffic = place.actor, world.traffic()[0]
    assert isinstance(edge, RealEdge)
    totals = edge.session.wire_totals(world.agenda.now + 1.0)
    assert (totals.up_payload_bytes, totals.down_payload_bytes) == (traffic.up_payload, traffic.down_payload)
    assert (totals.up_messages, totals.down_messages) == (traffic.up_messages, traffic.down_messages)
    updates_up = (
        traffic.up_bytes - SETUP_UP - 52 * traffic.up_packets - 14 * traffic.up_messages - traffic.up_payload
    ) / 13
    assert 0 <= updates_up <= min(traffic.up_messages, traffic.down_messages)
    assert updates_up == int(updates_up)
    assert 0.75 * totals.up_bytes < traffic.up_bytes - SETUP_UP < 1.03 * totals.up_bytes
    assert 0.75 * totals.down_bytes < traffic.down_bytes - SETUP_DOWN < 1.03 * totals.down_bytes


def test_half_the_rate_speeds_nothing_up() -> None:
    speeds = [
        speed(run(scene("ours", link=LinkChoice("wan50", overrides={"rate_up_kbps": k, "rate_down_kbps": k}), a="0.9")))
        for k in (200.0, 50.0, 12.5)
    ]
    assert speeds[0] >= speeds[1] * 0.99
    assert speeds[1] >= speeds[2] * 0.99


# -- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["plain", "ours"])
def test_every_token_that_is_told_is_the_targets(strategy: str) -> None:
    """Over a link that loses, stalls and goes down, with several turns on one session."""
    link = LinkChoice("gprs", overrides={"on_off": {"mean_up_s": 6.0, "mean_down_s": 1.0}, "tcp_backoff": True})
    scenario = replace(scene(strategy, link=link), load=LoadSpec(edges=3, turns=3, tokens=60))
    world = World(scenario)
    world.run()
    for place in world.places:
        edge = place.actor
        assert isinstance(edge, RealEdge)
        ids, start = edge.session.ids, 0
        for turn in range(3):
            wish = place.wishes[turn]
            start = wish.prompt_len
            truth = [place.text.token(wish.seed, start + at, start) for at in range(60)]
            assert ids[start : start + 60] == truth
        assert len(ids) == start + 60


def test_later_turns_send_what_is_new_only() -> None:
    load = LoadSpec(turns=3, tokens=100, prompt_tokens=400)
    turns = run(replace(scene("plain", link=LinkChoice("wan50")), load=load)).edges[0].traffic
    one = run(replace(scene("plain", link=LinkChoice("wan50")), load=replace(load, turns=1))).edges[0].traffic
    assert turns.up_payload < 3.2 * one.up_payload
