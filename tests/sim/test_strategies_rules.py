"""What all baselines owe the world: bytes as their papers have them, every token exactly once, the same run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acespec.models.replay_tokenizer import DEFAULT_VOCABULARY
from acespec.proto.framing import message_bytes
from acespec.sim.theory.bits import id_bits
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import LinkChoice, LoadSpec, Scenario
from acespec.sim.world.world import run

from .strategy_lab import scene

BASELINES = ("coloc", "stop-and-wait", "picospec", "acespec")
VOCAB_BITS = id_bits(DEFAULT_VOCABULARY)


def payload(result: Result, direction: str) -> int:
    """Protobuf bytes on the only edge's link."""
    traffic = result.edges[0].traffic
    return traffic.up_payload if direction == "up" else traffic.down_payload


def without_prompt(result: Result, tokens: int = 32) -> int:
    return payload(result, "up") - ids(tokens)


def ids(count: int) -> int:
    return 6 + -(-count * VOCAB_BITS // 8)


def test_stop_and_wait_sends_packed_ids() -> None:
    result = run(scene("stop-and-wait", R=20, a=0.8, tokens=200, draft=5))
    rounds = result.edges[0].steps
    assert without_prompt(result) == rounds * ids(5)
    assert payload(result, "down") == ids(1) + rounds * (1 + ids(1))


def test_picospec_sends_pairs_and_hears_ten_of_them_on_a_rejection() -> None:
    whole = run(scene("picospec", R=20, a=1.0, tokens=201, draft=5))
    assert whole.edges[0].steps == 40
    assert without_prompt(whole) == 40 * (6 + 5 * 8)
    assert payload(whole, "down") == ids(1) + 40 * (1 + 6)
    never = run(scene("picospec", R=20, a=0.0, tokens=41, draft=5, pair_bits=34))
    assert without_prompt(never) == 40 * (6 + 22)
    assert payload(never, "down") == ids(1) + 40 * (1 + 6 + 43)


def test_acespec_sends_pairs_and_always_hears_ten_of_them() -> None:
    result = run(scene("acespec", R=20, a=0.8, tokens=200, draft=5))
    rounds = result.edges[0].steps
    assert without_prompt(result) == rounds * (6 + 40)
    assert payload(result, "down") == ids(1) + rounds * (1 + 6 + 80)


def test_coloc_sends_nothing_but_the_prompt_up() -> None:
    result = run(scene("coloc", R=20, a=0.8, tokens=200))
    assert (payload(result, "up"), result.edges[0].traffic.up_messages) == (ids(32), 1)
    assert result.edges[0].traffic.down_messages == result.edges[0].steps + 1


def test_coloc_gathers_tokens_where_the_link_is_slower_than_the_target() -> None:
    """At 10 Kbps a message takes 75 ms and a step 37: tokens gather, and none waits for a long queue."""
    fast = run(scene("coloc", R=20, a=0.8, tokens=1000))
    slow = run(scene("coloc", R=20, a=0.8, tokens=1000, kbps=10))
    assert slow.tokens_per_s.mean > 0.95 * fast.tokens_per_s.mean
    assert slow.edges[0].traffic.down_messages < 0.7 * fast.edges[0].traffic.down_messages
    assert slow.gap.p99 < 0.3
    choked = run(scene("coloc", R=20, a=0.8, tokens=500, kbps=1))
    # The line never idles.
    assert choked.tokens_per_s.mean > 0.8 * 1000 / 8 * 500 / choked.edges[0].traffic.down_bytes


def test_a_narrow_link_adds_its_serialisation_to_a_round() -> None:
    kbps, D = 20, 4
    result = run(scene("stop-and-wait", R=100, a=1.0, tokens=501, draft=D, kbps=kbps))
    tau = (message_bytes(ids(D)) + message_bytes(1 + ids(1))) * 8 / kbps
    # The step leaves time for a delayed ACK (52 bytes each way); neither holds up a message here.
    round_ms = (D + 1) * 1000 / result.tokens_per_s.mean
    assert round_ms == pytest.approx(D * 5 + 100 + 25 + tau, rel=0.01)


LENGTHS = (2, 3, 4, 6, 8, 10, 13, 17)


@pytest.mark.parametrize("strategy", BASELINES)
def test_no_fixed_length_beats_the_best_one_by_much(strategy: str) -> None:
    """On a link where bytes count, and in a crowd that the verifier cannot serve at once: within 8 %."""
    narrow = {D: run(scene(strategy, R=60, a=0.8, tokens=500, kbps=10, draft=D)) for D in ("best", *LENGTHS)}
    crowded = {D: run(crowd(strategy, 40, D)) for D in ("best", *LENGTHS)}
    for results in (narrow, crowded):
        rates = {D: result.total_tokens_per_s for D, result in results.items()}
        assert rates["best"] > 0.92 * max(rates.values())


@pytest.mark.parametrize("strategy", BASELINES)
def test_every_token_comes_once_whatever_the_link(strategy: str) -> None:
    base = scene(strategy, R=80, a=0.7, tokens=20, turns=2, edges=3)
    for preset in ("wan50", "gprs", "mobile_throttled64", "nbiot"):
        scenario = replace(base, duration_s=3000.0, link=LinkChoice(preset=preset))
        result = run(scenario)
        assert [(edge.turns, edge.tokens) for edge in result.edges] == [(2, 40)] * 3
    assert run(scenario).digest == result.digest != run(replace(scenario, seed=2)).digest


@pytest.mark.parametrize("strategy", BASELINES)
def test_many_edges_share_the_verifier(strategy: str) -> None:
    """40 edges and a verifier of 20 rows: steps are full, each edge is slower, all together are faster."""
    alone = run(crowd(strategy, 1))
    many = run(crowd(strategy, 40))
    assert many.tokens_per_s.p50 < 0.7 * alone.tokens_per_s.mean
    assert many.total_tokens_per_s > 2 * alone.total_tokens_per_s
    assert many.utilisation > 0.9
    assert all(edge.tokens == 40 for edge in many.edges)


def crowd(strategy: str, edges: int, draft: int | str = 4) -> Scenario:
    base = scene(strategy, R=40, a=0.8, draft=draft)
    return replace(
        base,
        target=replace(base.target, max_rows=20),
        load=LoadSpec(edges=edges, tokens=40, prompt_tokens=8, start_spread_s=0.2),
    )


@pytest.mark.parametrize("strategy", BASELINES)
def test_an_answer_ends_with_its_text(strategy: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(f'{{"ids": {[300] * 50}, "ranks": {[0, 0, 3, 0, 1] * 10}}}\n')
    result = run(scene(strategy, R=20, a=str(trace), tokens=200, turns=2))
    assert [(edge.turns, edge.tokens) for edge in result.edges] == [(2, 2 * 51)]
