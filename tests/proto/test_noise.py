"""The noise: known answers, accuracy, layout, statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, stats

from acespec.proto import noise

EDGE_BITS = np.concatenate(
    [base + np.arange(-3000, 3000) for base in (3000, 1 << 24, 1 << 31, 3 << 30, (1 << 32) - 3000)]
    + [np.int64(1) << np.arange(32)]
).astype(np.uint32)
"""Both ends of the range, the switch at 3/4 and the places where float32 changes its spacing."""


def exact_gumbel(x: NDArray[np.uint32]) -> NDArray[np.float64]:
    below, above = x + 0.5, (2.0**32 - 1 - x) + 0.5
    exponential = np.where(x < 1 << 31, -np.log(below * 2.0**-32), -np.log1p(-above * 2.0**-32))
    gumbel: NDArray[np.float64] = -np.log(exponential)
    return gumbel


def random_bits(count: int) -> NDArray[np.uint32]:
    return np.random.default_rng(7).integers(0, 1 << 32, count, dtype=np.uint32)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(key: tuple[int, int], counter: tuple[int, int, int, int], words: tuple[int, ...]) -> None:
    assert tuple(int(w[0]) for w in noise.philox4x32(key, counter)) == words


def test_layout_of_key_counter_and_lane() -> None:
    seed, position, stream = 0x0123456789ABCDEF, 4321, 9
    bits = noise.noise_bits(seed, position, 14, stream)
    for token in range(14):
        words = noise.philox4x32((0x89ABCDEF, 0x01234567), (token >> 2, position, stream, 0))
        assert bits[token] == words[token & 3][0]


def test_the_noise_of_this_version_is_pinned() -> None:
    assert noise.NOISE_VERSION == 1
    assert noise.test_vector().hex() == "fbb7323f4466673ffc71b13ed0beb43e"
    bits = noise.gumbel_from_bits(np.array([0, 1, 0xBFFFFFFF, 0xC0000000, 0xFFFFFFFF], np.uint32))
    assert bits.view(np.uint32).tolist() == [0xC04851D5, 0xC0452B66, 0x3F9F79A2, 0x3F9F79A2, 0x41B6FDA9]


@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**32 - 1),
    count=st.integers(1, 400),
    data=st.data(),
)
def test_any_part_of_the_noise_has_the_bits_of_the_whole(
    seed: int, position: int, count: int, data: st.DataObject
) -> None:
    whole = noise.gumbel(seed, position, count)
    tokens = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20)))
    assert np.array_equal(noise.gumbel_at(seed, position, tokens), whole[tokens])
    shorter = data.draw(st.integers(0, count))
    assert np.array_equal(noise.gumbel(seed, position, shorter), whole[:shorter])


def test_noise_across_blocks_equals_noise_of_single_tokens() -> None:
    whole = noise.gumbel(5, 6, 151_936)
    tokens = np.array([0, 32_766, 32_767, 32_768, 32_769, 65_535, 65_536, 98_304, 151_935])
    assert np.array_equal(noise.gumbel_at(5, 6, tokens), whole[tokens])


def test_seed_position_and_stream_all_matter() -> None:
    rows = [
        noise.noise_bits(*key) for key in ((1, 2, 64), (2, 2, 64), (1, 3, 64), (1, 2, 64, 1), (1 + (1 << 32), 2, 64))
    ]
    for i, row in enumerate(rows):
        assert all(not np.array_equal(row, other) for other in rows[:i])


@pytest.mark.parametrize("bits", [EDGE_BITS, random_bits(1_000_000)], ids=["edges", "random"])
def test_gumbel_is_finite_and_accurate(bits: NDArray[np.uint32]) -> None:
    g = noise.gumbel_from_bits(bits)
    exact = exact_gumbel(bits)
    assert np.isfinite(g).all()
    assert g.min() > noise.LOWEST
    assert g.max() < noise.HIGHEST
    assert np.max(np.abs(g - exact) / np.maximum(1.0, np.abs(exact))) < 5e-7


def test_both_tails_keep_neighbouring_bits_apart() -> None:
    low, high = np.arange(1000, dtype=np.uint32), ~np.arange(1000, dtype=np.uint32)
    assert (np.diff(noise.gumbel_from_bits(low)) >= 0).all()
    assert np.unique(noise.gumbel_from_bits(high)).size == 1000


def test_any_shape_and_a_strided_view_give_the_same_bits() -> None:
    bits = random_bits(600)
    flat = noise.gumbel_from_bits(bits)
    assert np.array_equal(noise.gumbel_from_bits(bits.reshape(20, 30)), flat.reshape(20, 30))
    assert np.array_equal(noise.gumbel_from_bits(bits[::3]), flat[::3])


def test_distribution_over_seeds_positions_and_tokens() -> None:
    samples = np.concatenate([noise.gumbel(seed, seed * 31 % 97, 2000) for seed in range(500)]).astype(np.float64)
    size = samples.size
    assert abs(samples.mean() - np.euler_gamma) < 5 * (np.pi / np.sqrt(6 * size))
    assert abs(samples.var() / (np.pi**2 / 6) - 1) < 5 * np.sqrt(4.4 / size)
    assert stats.kstest(samples, "gumbel_r").pvalue > 1e-4
    along_positions = np.array([noise.gumbel_at(3, position, np.array([77]))[0] for position in range(4000)])
    assert stats.kstest(along_positions, "gumbel_r").pvalue > 1e-4
    assert abs(np.corrcoef(along_positions[1:], along_positions[:-1])[0, 1]) < 5 / np.sqrt(4000)


def test_the_polynomial_is_the_minimax_one() -> None:
    """Its relative error over [-1/4, 1/2] is within a few per cent of the best that degree 8 allows."""
    f = 0.125 + 0.375 * np.cos(np.linspace(0, np.pi, 400))
    exact = np.log1p(f) / f
    ours = np.polynomial.polynomial.polyval(f, [float(c) for c in noise.LOG1P_OVER_F])
    our_error = np.max(np.abs(ours / exact - 1))
    best_error = _least_relative_error(f, exact, degree=8)
    assert 0.95 * best_error < our_error < 1.05 * best_error
    assert our_error < 2.9e-8


def _least_relative_error(f: NDArray[np.float64], exact: NDArray[np.float64], degree: int) -> float:
    """The least possible maximum of |P/exact - 1| with P(0) = 1, as a linear program in units of 1e-8."""
    unit = 1e-8
    powers = np.stack([(2 * f) ** i for i in range(1, degree + 1)], axis=1) / exact[:, None] / unit
    rest = (1 / exact - 1) / unit
    slack = np.ones((f.size, 1))
    program = optimize.linprog(
        np.r_[np.zeros(degree), 1.0],
        A_ub=np.block([[powers, -slack], [-powers, -slack]]),
        b_ub=np.r_[-rest, rest],
        bounds=[(None, None)] * degree + [(0, None)],
    )
    assert program.x is not None, program.message
    return float(program.x[-1]) * unit
