"""Gumbel noise that is a pure function of (seed, position, token id, stream), with the same bits everywhere.

Counter-based random bits (Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011) are turned into Gumbel noise g = -log(-log(u)) with additions, multiplications and bit operations only.
Library logarithms differ in the last bit between NumPy, torch, MLX and Triton; these operations do not. Each
operation below is rounded to float32 on its own: a twin must not fuse a multiplication with an addition.

Layout: key = (low, high word of the seed); counter = (token >> 2, position, stream, 0); lane = token & 3.

Transform of the 32 random bits x, with u = (x + 0.5) * 2^-32:

    1. log u, as e ln 2 + log1p(f), where u = 2^e (1 + f) and f lies in [-1/4, 1/2). If x >= 3 * 2^30 (u >= 3/4)
       float32 cannot tell u from 1 any more, so f = -(1 - u) is built from the inverted bits of x: e is 0 there,
       and log u keeps its full relative precision in the tail that decides who wins.
    2. E = -log u, an exponential variate in 1.2e-10 .. 22.9; g = -log E by the same split.

log1p(f) = f P(f), P of degree 8 with P(0) = 1: the minimax fit of the relative error on [-1/4, 1/2], found as a linear
program, one coefficient rounded to float32 at a time and the rest fitted again. Its error is 2.8e-8; a test redoes the
fit. With rounding, g is within 5e-7 (absolute below 1, relative above) of the exact value. It is finite for all 2^32 x.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

NOISE_VERSION: Final = 1
"""Raised whenever one bit of the noise changes; part of the model card."""

LOWEST: Final = -3.14
HIGHEST: Final = 22.88
"""All noise lies strictly between these two."""

LOG1P_OVER_F: Final = tuple(
    np.float32(float.fromhex(c))
    for c in (
        "0x1.000000p+0",
        "-0x1.000014p-1",
        "0x1.5555e4p-2",
        "-0x1.ffdde0p-3",
        "0x1.992214p-3",
        "-0x1.588560p-3",
        "0x1.32d6a2p-3",
        "-0x1.ee4652p-4",
        "0x1.bb9704p-5",
    )
)
"""Coefficients of P, lowest power first: log1p(f) = f P(f) for f in [-1/4, 1/2]."""

_MULTIPLIERS: Final = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF_WORD: Final = np.uint64(32)

_THREE_QUARTERS: Final = np.uint32(0xC0000000)
_MANTISSA: Final = np.int32(0x007FFFFF)
_SPLIT: Final = np.int32(0x3F400000)  # the bits of 0.75: mantissas are taken from [3/4, 3/2)
_TWO_TO_MINUS_32: Final = np.float32(2.0**-32)
_LN2: Final = np.float32(0.6931472)
_ONE: Final = np.float32(1.0)
_HALF: Final = np.float32(0.5)

_BLOCK: Final = 1 << 15  # tokens done at a time, so that the scratch arrays stay in the second-level cache

Words = NDArray[np.uint32]


def philox4x32(
    key: tuple[int, int],
    counter: tuple[
        NDArray[np.integer] | int, NDArray[np.integer] | int, NDArray[np.integer] | int, NDArray[np.integer] | int
    ],
) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10: four words of 32 random bits for each counter.

    Args:
        key: two 32-bit words.
        counter: four words, arrays of one common shape [n] or scalars.
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.atleast_1d(np.asarray(c, np.uint64)) for c in counter))
    even, odd = np.stack((c0, c2)), np.stack((c1, c3))
    product = np.empty_like(even)
    for round_ in range(_ROUNDS):
        np.multiply(even, _MULTIPLIERS, out=product)
        crossed = product[::-1]
        np.right_shift(crossed, _HALF_WORD, out=even)
        even ^= odd
        even ^= _round_keys(key, round_)
        even &= _LOW
        odd, product = crossed, odd
    low = odd.astype(np.uint32)
    high = even.astype(np.uint32)
    return high[0], low[0], high[1], low[1]


def noise_bits(seed: int, position: int, count: int, stream: int = 0) -> Words:
    """The random bits of tokens 0 .. count-1 at an absolute position: uint32[count].

    Args:
        seed: 64-bit seed of the request (taken modulo 2^64).
        position: absolute index of the token that is drawn, 0 .. 2^32-1.
        stream: 0 is the noise of the target's sample.
    """
    bits = np.empty((-(-count // 4), 4), np.uint32)
    for start in range(0, len(bits), _BLOCK // 4):
        part = bits[start : start + _BLOCK // 4]
        counters = np.arange(start, start + len(part), dtype=np.uint64)
        for lane, words in enumerate(philox4x32(_key(seed), (counters, position, stream, 0))):
            part[:, lane] = words
    return bits.reshape(-1)[:count]


def gumbel_from_bits(x: Words) -> NDArray[np.float32]:
    """Standard Gumbel noise from 32 random bits each: float32, same shape. See the head of the module."""
    g = np.empty(x.shape, np.float32)
    flat_x, flat_g = np.ascontiguousarray(x).reshape(-1), g.reshape(-1)
    for start in range(0, flat_x.size, _BLOCK):
        _transform(flat_x[start : start + _BLOCK], flat_g[start : start + _BLOCK])
    return g


def gumbel(seed: int, position: int, count: int, stream: int = 0) -> NDArray[np.float32]:
    """The noise of tokens 0 .. count-1 at an absolute position: float32[count]."""
    return gumbel_from_bits(noise_bits(seed, position, count, stream))


def gumbel_at(seed: int, position: int, tokens: NDArray[np.integer], stream: int = 0) -> NDArray[np.float32]:
    """The noise of some tokens only: equal, bit for bit, to `gumbel(...)[tokens]`. float32[len(tokens)]."""
    ids = np.asarray(tokens).astype(np.uint64)
    words = philox4x32(_key(seed), (ids >> np.uint64(2), position, stream, 0))
    return gumbel_from_bits(np.choose((ids & np.uint64(3)).astype(np.intp), words))


def test_vector() -> bytes:
    """Sixteen bytes of noise for the model card: two ends that agree on them draw the same noise."""
    return gumbel(seed=0x0123456789ABCDEF, position=1000, count=4).astype("<f4").tobytes()


test_vector.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it by its name


def _key(seed: int) -> tuple[int, int]:
    return seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF


def _round_keys(key: tuple[int, int], round_: int) -> NDArray[np.uint64]:
    words = [(k + round_ * step) & 0xFFFFFFFF for k, step in zip(key, _KEY_STEPS, strict=True)]
    return np.array(words, np.uint64).reshape(2, 1)


def _transform(x: Words, g: NDArray[np.float32]) -> None:
    """Write the Gumbel noise of the bits `x` [n] into `g` [n]."""
    near_one = x >= _THREE_QUARTERS
    _to_unit_interval(x, out=g)
    exponent, f = _split(g)
    np.copyto(f, _minus_distance_to_one(x), where=near_one)
    _log(exponent, f, out=g)
    np.negative(g, out=g)
    exponent, f = _split(g)
    _log(exponent, f, out=g)
    np.negative(g, out=g)


def _to_unit_interval(x: Words, out: NDArray[np.float32]) -> None:
    """(x + 0.5) * 2^-32."""
    out[:] = x
    out += _HALF
    out *= _TWO_TO_MINUS_32


def _minus_distance_to_one(x: Words) -> NDArray[np.float32]:
    """-(1 - u), from the inverted bits."""
    distance = np.empty(x.shape, np.float32)
    _to_unit_interval(~x, out=distance)
    return np.negative(distance, out=distance)


def _split(y: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(e, f) with y = 2^e (1 + f), f in [-1/4, 1/2); y positive and normal. `y` may be overwritten."""
    bits = y.view(np.int32) - _SPLIT
    exponent = (bits >> np.int32(23)).astype(np.float32)
    bits &= _MANTISSA
    bits += _SPLIT
    f = bits.view(np.float32)
    f -= _ONE
    return exponent, f


def _log(exponent: NDArray[np.float32], f: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """e ln 2 + f P(f), by Horner's rule. `exponent` is overwritten."""
    np.multiply(f, LOG1P_OVER_F[-1], out=out)
    for coefficient in LOG1P_OVER_F[-2:0:-1]:
        out += coefficient
        out *= f
    out += LOG1P_OVER_F[0]
    out *= f
    exponent *= _LN2
    out += exponent
