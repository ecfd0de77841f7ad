"""Pairwise covering arrays: few rows in which every two values of different factors meet at least once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

Row = dict[str, object]
Pair = tuple[str, object, str, object]
CANDIDATES = 40
"""Random rows tried per row kept: more of them make the array a little shorter."""


def pairs_of(row: Mapping[str, object]) -> set[Pair]:
    """All pairs of values that meet in a row."""
    return {(a, row[a], b, row[b]) for a, b in combinations(sorted(row), 2)}


def all_pairs(factors: Mapping[str, Sequence[object]]) -> set[Pair]:
    """Every pair of values of two different factors."""
    return set(_all_pairs(factors))


def covering_rows(factors: Mapping[str, Sequence[object]], seed: int = 0) -> list[Row]:
    """Greedy: each row starts with a pair that is still missing, and is the best of some random completions."""
    dice = random.Random(seed)
    missing = sorted(_all_pairs(factors), key=repr)
    dice.shuffle(missing)
    left = dict.fromkeys(missing)
    rows: list[Row] = []
    while left:
        a, a_value, b, b_value = next(iter(left))
        fixed = {a: a_value, b: b_value}
        options = [_completed(factors, fixed, left, dice) for _ in range(CANDIDATES)]
        best = max(options, key=lambda row: _gain(row, left))
        for pair in pairs_of(best):
            left.pop(pair, None)
        rows.append(best)
    return rows


def _completed(
    factors: Mapping[str, Sequence[object]], fixed: Row, left: Mapping[Pair, None], dice: random.Random
) -> Row:
    """Give the other factors, in random order, the value that meets most missing pairs."""
    row = dict(fixed)
    for name in dice.sample(sorted(factors), len(factors)):
        if name not in row:
            values = dice.sample(list(factors[name]), len(factors[name]))
            row[name] = max(values, key=lambda value: _new_pairs(row, name, value, left))
    return {name: row[name] for name in factors}


def _new_pairs(row: Row, name: str, value: object, left: Mapping[Pair, None]) -> int:
    return sum(_pair(name, value, other, known) in left for other, known in row.items())


def _gain(row: Row, left: Mapping[Pair, None]) -> int:
    return sum(pair in left for pair in pairs_of(row))


def _pair(a: str, a_value: object, b: str, b_value: object) -> Pair:
    return (a, a_value, b, b_value) if a < b else (b, b_value, a, a_value)


def _all_pairs(factors: Mapping[str, Sequence[object]]) -> Iterator[Pair]:
    for a, b in combinations(sorted(factors), 2):
        for a_value, b_value in product(factors[a], factors[b]):
            yield a, a_value, b, b_value
