"""Top-k, top-p and min-p over one row: which tokens stay, decided without any dependence on summation order.

Top-k and min-p are comparisons of logits. Top-p adds up probability mass, and its cut is the one place where a last
bit could add or remove a token. So the masses are integers: exp(logit - best) by a polynomial of additions,
multiplications and bit operations in float32, in units of 2^-40 of the best token's mass. Integer sums are exact in
every order, so NumPy, torch and a GPU agree on the cut.

exp: x = k ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, so that k times the first is exact), then 2^k P(r), P of
degree 6, the minimax fit of the relative error made like the one in `noise`; 2e-8 before, 2e-7 after rounding.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from acespec.proto.sampling_params import SamplingParams

Row = NDArray[np.float32]
Ids = NDArray[np.intp]

EXP: Final = tuple(
    np.float32(float.fromhex(c))
    for c in (
        "0x1.000000p+0",
        "0x1.000000p+0",
        "0x1.000000p-1",
        "0x1.55555cp-3",
        "0x1.556050p-5",
        "0x1.11d552p-7",
        "0x1.616290p-10",
    )
)
"""Coefficients of P, lowest power first: exp(r) = P(r) for |r| <= ln 2 / 2."""

MASS_OF_BEST: Final = 1 << 40

_FAINTEST: Final = np.float32(-80.0)  # e^-80 is no mass at all, and 2^k is still a normal float32
_LOG2_E: Final = np.float32(1.442695)
_LN2_FIRST: Final = np.float32(0.693359375)  # nine significant bits
_LN2_REST: Final = np.float32(-2.1219444e-4)
_ROUNDER: Final = np.float32(1.5 * 2**23)  # adding and subtracting it rounds to a whole number


def kept(row: Row, params: SamplingParams) -> Ids | None:
    """Ids that survive top-k, then top-p, then min-p, ascending; None if no filter is on.

    `row` [V]: logits after penalties and temperature; -inf never survives; the best token always does.
    """
    ids: Ids | None = None
    if 0 < params.top_k < row.size:
        ids = top_k(row, params.top_k)
    if params.top_p < 1.0:
        ids = _narrow(ids, top_p(_values(row, ids), params.top_p))
    if params.min_p > 0.0:
        ids = _narrow(ids, min_p(_values(row, ids), params.min_p))
    return ids


def top_k(row: Row, k: int) -> Ids:
    """Ascending indices of the k best, the lower index first among equals; fewer if -inf is among them."""
    if k >= row.size:
        return np.flatnonzero(row > -np.inf)
    return _best(row, k, least=np.partition(row, row.size - k)[row.size - k])


def top_p(row: Row, p: float) -> Ids:
    """Ascending indices of the shortest best-first run that holds at least the share p of the mass.

    Best first means by logit, the lower index first among equals. Equal logits have equal masses, so the logits
    alone, sorted, tell how many tokens that is.
    """
    descending = np.sort(row)[::-1]
    reached = np.cumsum(mass(descending - descending[0]))
    needed = max(1, int(p * float(reached[-1])))
    last = int(np.searchsorted(reached, needed))
    return _best(row, last + 1, least=descending[last])


def min_p(row: Row, p: float) -> Ids:
    """Ascending indices of all with at least p times the best one's probability."""
    best = row.max()
    least = best + np.float32(math.log(min(p, 1.0)))
    return np.flatnonzero(row >= least)


def best_first(row: Row, size: int) -> Ids:
    """Indices of the `size` best and all equal to the last of them, best first, the lower index first among equals."""
    if size >= row.size:
        return np.argsort(-row, kind="stable")
    least = np.partition(row, row.size - size)[row.size - size]
    head = np.flatnonzero(row >= least)
    return head[np.argsort(-row[head], kind="stable")]


def mass(x: Row) -> NDArray[np.int64]:
    """exp(x) for x <= 0 in units of 1 / MASS_OF_BEST, rounded down: int64, same shape."""
    x = np.maximum(x, _FAINTEST)
    k = x * _LOG2_E
    k += _ROUNDER
    k -= _ROUNDER
    r = x - k * _LN2_FIRST
    r -= k * _LN2_REST
    power = r * EXP[-1]
    for coefficient in EXP[-2:0:-1]:
        power += coefficient
        power *= r
    power += EXP[0]
    power *= (k.astype(np.int32) + np.int32(127 + 40) << np.int32(23)).view(np.float32)
    return power.astype(np.int64)


def _best(row: Row, k: int, least: np.float32) -> Ids:
    """The k best, ascending, of which `least` is the last one's logit."""
    if least == -np.inf:
        return np.flatnonzero(row > -np.inf)
    better, equal = np.flatnonzero(row > least), np.flatnonzero(row == least)
    return np.sort(np.concatenate((better, equal[: k - better.size])))


def _values(row: Row, ids: Ids | None) -> Row:
    return row if ids is None else row[ids]


def _narrow(ids: Ids | None, chosen: Ids) -> Ids:
    return chosen if ids is None else ids[chosen]
