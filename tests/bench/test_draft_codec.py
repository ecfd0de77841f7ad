"""The codes of the draft-id bench: their lengths by hand, what they may know, and what charged bits do in the world."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acespec.bench import draft_codec
from acespec.bench.draft_codec import Cell, bits_of, codec_us, compare, measure
from acespec.bench.id_code_world import run_charged
from acespec.bench.id_codes import (
    CODES,
    Distance,
    Golomb,
    Learned,
    Raw,
    Recency,
    Repeated,
    RepeatedOrRaw,
    exp_golomb_bits,
    follower,
)
from acespec.edge.brain import shipping
from acespec.proto import nodes
from acespec.proto.bits import BitWriter
from acespec.proto.golomb import Codec, golomb_bits, write_golomb
from acespec.sim.trace_file import Trace, TraceSource
from acespec.sim.world.world import run

VOCAB = 151_936
CELL = Cell("a100-70b", "always", 0.0, 50, "siblings:2")


def trace(*ids: int, ranks: tuple[int, ...] | None = None) -> Trace:
    """An answer whose first guesses are its ids, or one more where their rank is not 0; the second guess is 9000."""
    ranks = ranks or (0,) * len(ids)
    source = TraceSource("t", "d", 0.0, 1, "set", "p", "c", 3, VOCAB, False)
    guesses = tuple((i + (r > 0), 9000) for i, r in zip(ids, ranks, strict=True))
    blank = tuple((0.5, 0.1) for _ in ids)
    return Trace(source, ids, ranks, guesses, blank, blank, (0.5,) * len(ids), (True,) * len(ids))


@pytest.mark.parametrize("token", [0, 1, 511, 512, 1535, 1536, 65_535, 151_935])
def test_the_lengths_are_those_of_the_wire(token: int) -> None:
    out = BitWriter()
    write_golomb(out, token)
    bits = golomb_bits([token])
    assert len(out.getvalue()) == -(-bits // 8)
    assert Golomb(VOCAB).bits([], token) == bits == exp_golomb_bits(token)
    assert Raw(VOCAB).bits([], token) == 18


def test_a_distance_is_taken_where_it_is_shorter() -> None:
    known = [70_000, 5, 5, 5]
    assert Distance(VOCAB).bits(known, 70_000) == 1 + exp_golomb_bits(3, 4)
    assert Distance(VOCAB).bits(known, 80_000) == 1 + golomb_bits([80_000])
    assert Distance(VOCAB).bits([3] + [5] * 5000, 3) == 1 + golomb_bits([3]), "beyond the window"


def test_a_rank_counts_different_tokens_only() -> None:
    assert Recency(VOCAB).bits([70_000] + [5] * 40, 70_000) == 1 + exp_golomb_bits(1, 4)
    assert Distance(VOCAB).bits([70_000] + [5] * 40, 70_000) == 1 + exp_golomb_bits(40, 4)


def test_the_follower_of_the_nearest_like_place() -> None:
    assert follower([1, 2, 3, 1, 2, 4, 1, 2], 2) == 4
    assert follower([1, 2, 3], 2) is None
    assert follower([1, 2], 2) is None
    assert follower([7, 7, 7], 1) == 7
    assert Repeated(VOCAB).bits([1, 2, 60_000, 1, 2], 60_000) == 1
    assert Repeated(VOCAB).bits([1, 2, 60_000, 1, 2], 2) == 1 + 1 + exp_golomb_bits(0, 4)
    assert RepeatedOrRaw(VOCAB).bits([2, 60_000, 2], 60_000) == 1
    assert RepeatedOrRaw(VOCAB).bits([2, 60_000, 2], 9) == 1 + 18
    assert RepeatedOrRaw(VOCAB).bits([2, 3], 9) == 18


def test_what_was_seen_gets_shorter_and_the_chances_never_exceed_one() -> None:
    code = Learned(600)
    text = [5, 6, 7, 5, 6, 7, 5, 6]
    before = code.bits(text, 7)
    for length in range(1, len(text) + 1):
        code.commit(text[:length])
    assert code.bits(text, 7) < 1.0 < before
    assert sum(2.0 ** -code.bits(text, token) for token in range(600)) <= 1.0 + 1e-9


class Spy(Raw):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__(VOCAB)
        self.committed: list[int] = []
        self.asked: list[tuple[int, int, int]] = []

    def bits(self, known: list[int], token: int) -> float:  # type: ignore[override]
        self.asked.append((len(known), token, len(self.committed)))
        return 1

    def commit(self, known: list[int]) -> None:  # type: ignore[override]
        self.committed.append(known[-1])


def test_a_code_learns_only_what_the_edge_has_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_codec, "LAG", 2)
    monkeypatch.setattr(draft_codec, "LENGTH", 3)
    spy, ids = Spy(), tuple(range(20, 30))
    assert len(list(bits_of(spy, trace(*ids, ranks=(0, 1, *(0,) * 8)), (1, 2, 3), 1))) == 10
    # Messages start at 0, 2 (behind the wrong guess), 5, 8; each knows the prompt and the answer up to two before.
    assert [committed - 3 for _, _, committed in spy.asked] == [0, 0, 0, 0, 0, 3, 3, 3, 6, 6]
    assert [length - 3 for length, _, _ in spy.asked] == list(range(10))
    assert [token for _, token, _ in spy.asked] == [20, 22, *range(22, 30)]
    assert spy.committed == [1, 2, 3, *range(20, 26)]


def test_siblings_are_coded_behind_the_same_path() -> None:
    spy = Spy()
    list(bits_of(spy, trace(20, 21), (), 2))
    assert [(length, token) for length, token, _ in spy.asked] == [(0, 20), (0, 9000), (1, 21), (1, 9000)]


@pytest.mark.parametrize("name", CODES)
def test_every_code_is_measured(name: str) -> None:
    found = measure(name, [trace(*range(500, 530))], [(1, 2, 3)], [1, 2])
    assert found.code == name
    assert 1 <= found.widths[1] <= 20
    assert found.us > 0


def test_both_codecs_are_timed() -> None:
    assert all(codec_us([trace(*range(500, 530))], codec, rounds=1) > 0 for codec in Codec)


def test_fewer_bits_are_fewer_bytes_in_the_world() -> None:
    packed = shipping.pack, nodes.unpack
    dear, cheap = (run_charged(CELL, bits, 1, 100) for bits in (200.0, 0.0))
    assert (shipping.pack, nodes.unpack) == packed, "the real ones are back"
    assert dear.tokens == cheap.tokens == 100
    assert dear.edges[0].traffic.up_payload > 1.5 * cheap.edges[0].traffic.up_payload


def test_raw_bits_are_those_of_the_wire() -> None:
    """Charged at 18 bits, a run has about the payload of one with the real codec, whose random ids go raw."""
    charged = run_charged(CELL, 18.0, 1, 100).edges[0].traffic
    real = run(CELL.scenario(1, 100)).edges[0].traffic
    assert charged.up_payload / charged.up_messages == pytest.approx(real.up_payload / real.up_messages, rel=0.1)


def test_a_cell_compares_each_seed_with_itself() -> None:
    row = compare(replace(CELL, tree="off"), {"raw": 18.0, "same": 18.0, "none": 0.0}, [1, 2], 60)
    same, none = row.gains
    assert same.tokens_per_s == same.up == same.both == (0.0, 0.0)
    assert none.up[0] < 0
    assert row.both > row.up > 0
