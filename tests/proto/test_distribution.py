"""What is emitted follows the target's distribution, whatever the drafter does; a biased rule fails the same test.

A rule draws tokens at many positions at once: from the target's p and the drafter's q, with the shared noise g. The
first tests draw 10^6 tokens for each of many pairs (p, q). The last ones run the loop of a session: draft a window
with q, accept while the target agrees, go on after the first correction; p and q depend on the token before.

The rules are twins of `sampling.sample` and `sampling.propose`, vectorised over positions; a test holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from acespec.proto import noise, sampling
from acespec.proto.sampling_params import SamplingParams

DRAWS = 1_000_000
SEED = 0x5EED_0123_4567_89AB
LEAST_P_VALUE = 1e-4
HOT = SamplingParams(temperature=1.0)

Floats = NDArray[np.float32]
Tokens = NDArray[np.intp]
Rule = Callable[[Floats, Floats], Tokens]

PAIRS: dict[str, tuple[list[float], list[float]]] = {
    "equal": ([0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]),
    "swapped": ([0.1, 0.5, 0.4], [0.5, 0.4, 0.1]),
    "reversed": ([0.7, 0.2, 0.08, 0.02], [0.02, 0.08, 0.2, 0.7]),
    "disjoint": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]),
    "drafter is certain": ([0.3, 0.3, 0.4], [0.0, 1.0, 0.0]),
    "drafter is certain of the impossible": ([0.5, 0.0, 0.5], [0.0, 1.0, 0.0]),
    "target is certain": ([0.0, 1.0, 0.0, 0.0], [0.4, 0.1, 0.3, 0.2]),
    "rare": ([0.999, 0.0009, 0.0001], [0.1, 0.1, 0.8]),
    "flat against peaked": ([0.2] * 5, [0.96, 0.01, 0.01, 0.01, 0.01]),
    "peaked against flat": ([0.96, 0.01, 0.01, 0.01, 0.01], [0.2] * 5),
    "nearly equal": ([0.34, 0.33, 0.33], [0.33, 0.33, 0.34]),
    "eight": ([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05], [0.05, 0.1, 0.3, 0.05, 0.05, 0.2, 0.05, 0.2]),
}


@cache
def shared_noise(stream: int = 0) -> Floats:
    """The noise of tokens 0 .. 7 at DRAWS positions: [DRAWS, 8]."""
    return noise_at(np.arange(DRAWS), 8, stream)


def noise_at(positions: NDArray[np.int64], vocab_size: int, stream: int = 0) -> Floats:
    """`noise.gumbel` at many positions: [len(positions), vocab_size]."""
    key = (SEED & 0xFFFFFFFF, SEED >> 32)
    groups = [noise.philox4x32(key, (group, positions, stream, 0)) for group in range((vocab_size + 3) // 4)]
    words = np.stack([lane for group in groups for lane in group], axis=1)[:, :vocab_size]
    return noise.gumbel_from_bits(words)


def logits(probabilities: list[float]) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, np.float32))


def draw(row: Floats, stream: int = 0) -> Tokens:
    tokens: Tokens = (row + shared_noise(stream)[:, : row.shape[-1]]).argmax(axis=1)
    return tokens


def match_rule(p: Floats, q: Floats) -> Tokens:
    """Ours: a draft is accepted iff it equals the target's own sample."""
    draft, own = draw(q), draw(p)
    return np.where(draft == own, draft, own)


def ratio_rule(residual_stream: int) -> Rule:
    """Speculative sampling: accept with probability p/q, else draw from the residual with noise of some stream."""

    def rule(p: Floats, q: Floats) -> Tokens:
        draft = draw(q)
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = np.exp(p[draft] - q[draft])
            residual = np.log(np.maximum(np.exp(p) - np.exp(q), 0))
        uniform = (noise.philox4x32((1, 2), (np.arange(DRAWS), 0, 7, 0))[0] + 0.5) * 2.0**-32
        return np.where(uniform < chance, draft, draw(residual, residual_stream))

    return rule


def chi_square(tokens: Tokens, probabilities: list[float]) -> tuple[float, float]:
    """(statistic, p-value) of the draws against the distribution; infinite if the impossible was drawn."""
    expected = np.asarray(probabilities) / np.sum(probabilities) * tokens.size
    counts = np.bincount(tokens, minlength=expected.size)
    possible = expected > 0
    if counts[~possible].any():
        return np.inf, 0.0
    if possible.sum() == 1:
        return 0.0, 1.0
    statistic, p_value = stats.chisquare(counts[possible], expected[possible])
    return float(statistic), float(p_value)


def follows_the_target(rule: Rule, p: list[float], q: list[float]) -> bool:
    """The test: are 10^6 tokens emitted under `rule` distributed like p?"""
    return chi_square(rule(logits(p), logits(q)), p)[1] > LEAST_P_VALUE


@pytest.mark.parametrize("pair", PAIRS)
def test_the_match_rule_emits_the_target_s_distribution(pair: str) -> None:
    assert follows_the_target(match_rule, *PAIRS[pair])


def test_the_planted_bias_fails_the_same_test_and_its_repair_passes() -> None:
    """A ratio test whose residual is drawn with the draft's own noise, which is known to have favoured the draft."""
    p, q = PAIRS["swapped"]
    mutant, repaired = ratio_rule(residual_stream=0), ratio_rule(residual_stream=5)
    assert follows_the_target(repaired, p, q)
    assert not follows_the_target(mutant, p, q)
    tokens = mutant(logits(p), logits(q))
    assert np.bincount(tokens) / DRAWS == pytest.approx([0.100, 0.448, 0.452], abs=0.002)
    assert chi_square(tokens, p)[0] > 5000


@pytest.mark.parametrize("pair", ["swapped", "reversed", "nearly equal", "flat against peaked", "disjoint"])
def test_acceptance_has_its_closed_form(pair: str) -> None:
    """Pr[match] = sum over j of 1 / sum over i of max(p_i/p_j, q_i/q_j) (Daliri, Musco, Suresh, 2024)."""
    p, q = (np.asarray(x) for x in PAIRS[pair])
    accepted = np.mean(draw(logits(PAIRS[pair][0])) == draw(logits(PAIRS[pair][1])))
    both = np.flatnonzero((p > 0) & (q > 0))
    expected = sum(1 / np.maximum(p / p[j], q / q[j]).sum() for j in both)
    assert accepted == pytest.approx(expected, abs=0.002)


def test_the_vectorised_rule_is_sample_and_propose() -> None:
    positions = np.r_[np.arange(60), DRAWS - 1]
    for p, q in PAIRS.values():
        own, drafts = draw(logits(p)), draw(logits(q))
        for position in positions:
            assert sampling.sample(logits(p), HOT, SEED, int(position)) == own[position]
            assert sampling.propose(logits(q), HOT, SEED, int(position), 1)[0][0] == drafts[position]


def test_filtered_and_tempered_samples_follow_their_own_softmax() -> None:
    """4,000 draws of the real function, filters and temperature on, penalties included."""
    row = logits([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02])
    params = SamplingParams(temperature=0.8, top_k=6, top_p=0.9, min_p=0.1, repetition_penalty=1.3)
    out = sampling.processed(row, params, (0, 3), 1, 8).astype(np.float64)
    tokens = [sampling.sample(row, params, SEED, t, prefix=(0, 3), prompt_len=1) for t in range(4_000)]
    assert 0 < (out == -np.inf).sum() < 8
    assert chi_square(np.array(tokens), np.exp(out).tolist())[1] > LEAST_P_VALUE


class Loop:
    """Sessions side by side that draft and verify in rounds; p and q are rows by the token before: [V, V]."""

    def __init__(self, p: Floats, q: Floats, draft_length: int, sessions: int) -> None:
        self._p, self._q, self._draft_length = p, q, draft_length
        self._last = np.zeros(sessions, np.intp)
        self._position = np.arange(sessions, dtype=np.int64) * 100_000
        self.counts = np.zeros(p.shape, np.int64)
        self.accepted = 0

    def round(self) -> None:
        rows = [noise_at(self._position + depth, len(self._p)) for depth in range(self._draft_length + 1)]
        drafts = self._draft(rows)
        going = np.ones(self._last.size, bool)
        for depth, g in enumerate(rows):
            own = (self._p[self._last] + g).argmax(axis=1)
            np.add.at(self.counts, (self._last[going], own[going]), 1)
            self._last = np.where(going, own, self._last)
            self._position += going
            if depth < self._draft_length:
                going &= drafts[depth] == own
                self.accepted += int(going.sum())

    def _draft(self, rows: list[Floats]) -> list[Tokens]:
        last, drafts = self._last, []
        for g in rows[:-1]:
            last = (self._q[last] + g).argmax(axis=1)
            drafts.append(last)
        return drafts


@pytest.mark.parametrize(("draft_length", "drafter"), [(0, "good"), (4, "good"), (4, "hostile"), (8, "constant")])
def test_a_session_s_transitions_follow_the_target(draft_length: int, drafter: str) -> None:
    random = np.random.default_rng(draft_length)
    size, sessions = 5, 8_000
    p = random.standard_normal((size, size)).astype(np.float32) * 1.5
    good = p + random.standard_normal((size, size)).astype(np.float32) * 0.5
    constant = np.where(np.arange(size) == 2, np.float32(50), np.float32(0)) + np.zeros_like(p)
    loop = Loop(p, {"good": good, "hostile": -p, "constant": constant}[drafter], draft_length, sessions)
    for _ in range(16):
        loop.round()
    expected = np.exp(p) / np.exp(p).sum(axis=1, keepdims=True) * loop.counts.sum(axis=1, keepdims=True)
    statistic = float(((loop.counts - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(statistic, df=size * (size - 1)) > LEAST_P_VALUE
    assert loop.counts.sum() == 16 * sessions + loop.accepted
    assert loop.accepted > 0 or draft_length == 0
