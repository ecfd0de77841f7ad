"""Where top-k and top-p cut a row, found without sorting: the last logit kept, and how many of its equals stay.

Both filters keep the first tokens in the order (logit descending, id ascending) until a weight is reached: top-k until
k tokens are, top-p until the needed mass is (`acespec.proto.filters`; masses are integers, so that sums are exact in
every order). So a cut is the largest logit that, with all above it, reaches the target.

Logits are held as integers in the same order (`ordered`). The search keeps a range low .. high - 1 that holds the cut
and divides it by eight edges in one look at the candidates. The first edges lie at fixed distances below the best,
closer near it, where most cuts are. What lies between the two that enclose the cut is copied to a list, usually far
shorter than the row, and the search goes on in the list.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from acespec.proto import filters

EDGES = tl.constexpr(8)
LOWEST_KEY = tl.constexpr(-0x7F800001)  # ordered(-inf)
_E0, _E1, _E2, _E3, _E4, _E5, _E6 = (tl.constexpr(float(c)) for c in filters.EXP)
_LOG2_E = tl.constexpr(float(np.float32(1.442695)))
_LN2_FIRST = tl.constexpr(0.693359375)
_LN2_REST = tl.constexpr(float(np.float32(-2.1219444e-4)))
_ROUNDER = tl.constexpr(1.5 * 2**23)
_SCALE = tl.constexpr(127 + filters.MASS_OF_BEST.bit_length() - 1)


@triton.jit
def ordered(x):
    """int32 in the order of float32 numbers; -0 and 0 are one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def value_of(key):
    """The float32 that `ordered` took."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def mass(x):
    """exp(x) for x <= 0 in units of 2^-40, rounded down: int64 with the bits of `acespec.proto.filters.mass`."""
    x = tl.maximum(x, -80.0)
    k = x * _LOG2_E + _ROUNDER - _ROUNDER
    r = x - k * _LN2_FIRST - k * _LN2_REST
    power = r * _E6 + _E5
    power = power * r + _E4
    power = power * r + _E3
    power = power * r + _E2
    power = power * r + _E1
    power = power * r + _E0
    return (power * ((k.to(tl.int32) + _SCALE) << 23).to(tl.float32, bitcast=True)).to(tl.int64)


@triton.jit
def cut_by_count(row, peaks, size, spare, best, sums, k, BLOCK: tl.constexpr):
    """(cut, how many equal to it stay) of top-k, 0 < k <= size. For the arguments see `_searched`.

    `sums` are the counts at `edges_below(best)`.
    """
    edges = edges_below(best)
    cut, above = _searched(row, peaks, size, spare, best, edges, sums, LOWEST_KEY, k.to(tl.int64), False, BLOCK)
    return cut, k - above


@triton.jit
def cut_by_mass(row, peaks, size, spare, best, edges, sums, p, floor, ties, BLOCK: tl.constexpr):
    """(cut, how many equal to it stay) of top-p among the tokens above `floor` and `ties` of those equal to it.

    All edges lie above `floor`; `sums` are the masses at them.
    """
    total = tl.max(sums, 0) + ties * _mass_of(floor, best)
    needed = tl.maximum((p * total.to(tl.float64)).to(tl.int64), 1)
    cut, above = _searched(row, peaks, size, spare, best, edges, sums, floor, needed, True, BLOCK)
    one = _mass_of(cut, best)
    return cut, (needed - above + one - 1) // one


@triton.jit
def _mass_of(key, best):
    return mass(value_of(key) - value_of(best))


@triton.jit
def edges_below(best):
    """Keys of the best logit less 0, 1/4, 3/4, 7/4 .. 127/4; what lies below the last has no mass."""
    steps = (1 << tl.arange(0, EDGES)) - 1
    return ordered(value_of(best) - 0.25 * steps.to(tl.float32))


@triton.jit
def _edges_between(low, high):
    """Keys that cut low .. high into nine even parts."""
    span = high.to(tl.int64) - low
    return (low + span * (1 + tl.arange(0, EDGES)) // (EDGES + 1)).to(tl.int32)


@triton.jit
def _searched(
    row,  # int32[size]: keys
    peaks,  # int32[size / BLOCK]: the highest key of each block
    size,
    spare,  # int32[size]: scratch
    best,  # the highest key
    edges,  # int32[EDGES]: first edges
    sums,  # int64[EDGES]: weight of all keys at or above each
    low,  # a key so low that the weight at or above it reaches the target
    target,
    BY_MASS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(the largest key that reaches the target, the weight above it)."""
    low, high, above = _closer(edges, sums, low, best + 1, tl.zeros((), tl.int64), target)
    count = 0
    if high.to(tl.int64) - low > 1:
        count = _picked(row, peaks, size, spare, low, high, True, BLOCK)
    while high.to(tl.int64) - low > 1:
        edges = _edges_between(low, high)
        sums = sums_above(spare, peaks, count, edges, high, best, False, BY_MASS, BLOCK)
        low, high, above = _closer(edges, sums, low, high, above, target)
        if count > BLOCK:
            count = _picked(spare, peaks, count, spare, low, high, False, BLOCK)
    return low, above


@triton.jit
def _closer(edges, sums, low, high, above, target):
    """The part between two edges that holds the cut, and the weight above it; `sums` count what is below `high`."""
    reached = above + sums >= target
    closer_low = tl.max(tl.where(reached, edges, low), 0)
    closer_high = tl.min(tl.where(reached, high, edges), 0)
    return closer_low, closer_high, above + tl.max(tl.where(reached, 0, sums), 0)


@triton.jit
def sums_above(keys, peaks, count, edges, high, best, IN_ROW: tl.constexpr, BY_MASS: tl.constexpr, BLOCK: tl.constexpr):
    """int64[EDGES]: how many keys, or how much mass, each edge has at or above it and below `high`."""
    sums = tl.zeros((EDGES,), tl.int64)
    lowest = tl.min(edges, 0)
    best_value = value_of(best)
    for start in range(0, count, BLOCK):
        worth_a_look = True
        if IN_ROW:
            worth_a_look = tl.load(peaks + start // BLOCK) >= lowest
        if worth_a_look:
            at = start + tl.arange(0, BLOCK)
            key = tl.load(keys + at, mask=at < count, other=LOWEST_KEY)
            counts = (at < count) & (key < high)
            weight = tl.where(counts, mass(value_of(key) - best_value), 0) if BY_MASS else counts.to(tl.int32)
            sums += tl.sum(tl.where(key[None, :] >= edges[:, None], weight[None, :], 0), 1).to(tl.int64)
    return sums


@triton.jit
def _picked(keys, peaks, count, target, low, high, IN_ROW: tl.constexpr, BLOCK: tl.constexpr):
    """Copy the keys low .. high - 1, in order, to `target`, which may be `keys` itself; returns how many there are."""
    picked = 0
    for start in range(0, count, BLOCK):
        worth_a_look = True
        if IN_ROW:
            worth_a_look = tl.load(peaks + start // BLOCK) >= low
        if worth_a_look:
            at = start + tl.arange(0, BLOCK)
            key = tl.load(keys + at, mask=at < count, other=LOWEST_KEY)
            taken = (at < count) & (key >= low) & (key < high)
            # The scan makes all threads wait, so that a block has been read before any of it is overwritten.
            rank = tl.cumsum(taken.to(tl.int32), 0)
            tl.store(target + picked + rank - 1, key, mask=taken)
            picked += tl.sum(taken.to(tl.int32), 0)
    tl.debug_barrier()
    return picked
