"""Ways to write the token id of a draft node, by what both ends know when the message is read.

The edge names in every message how far it holds the commits (`received`), and the cloud holds at least that. So both
know the sequence up to there, and the path of earlier nodes to this one: `known`. A code is told that and the id, and
says how many bits it takes. Those that learn are counted at their ideal length, without an arithmetic coder's losses.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, Protocol

from acespec.proto.golomb import ORDER, golomb_bits
from acespec.proto.nodes import token_bits

WINDOW: Final = 1024
"""Tokens back that the searching codes look."""
NEAR_ORDER: Final = 4
"""Of the exponential Golomb code of a distance or rank."""
ORDERS: Final = 3
"""Contexts of 0, 1 and 2 tokens in the learned code."""
TRUST: Final = (200.0, 2.0, 1.0)
"""How many sightings of a context weigh as much as all that the shorter ones say; by trial on the traces."""


class IdCode(Protocol):
    """One way to write ids; an object codes one text."""

    def bits(self, known: Sequence[int], token: int) -> float:
        """Bits of `token` behind `known`."""

    def commit(self, known: Sequence[int]) -> None:
        """`known` is committed, its last token newly so."""


class Raw:
    """ceil(log2 V): what `Codec.RAW` sends."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def bits(self, known: Sequence[int], token: int) -> float:
        """See `IdCode.bits`."""
        return token_bits(self._vocab_size)

    def commit(self, known: Sequence[int]) -> None:
        """See `IdCode.commit`."""


class Golomb(Raw):
    """By size of the id: what `Codec.GOLOMB` sends. No state."""

    def bits(self, known: Sequence[int], token: int) -> float:
        """See `IdCode.bits`."""
        return golomb_bits([token])


class Distance(Golomb):
    """A flag, then how far back the id stood last, or the id by size. The cloud looks it up without a search."""

    def bits(self, known: Sequence[int], token: int) -> float:
        """See `IdCode.bits`."""
        fresh = 1 + super().bits(known, token)
        back = next((d for d in range(min(WINDOW, len(known))) if known[-1 - d] == token), None)
        return fresh if back is None else min(fresh, 1 + exp_golomb_bits(back, NEAR_ORDER))


class Recency(Golomb):
    """A flag, then the rank of the id in a move-to-front list of the text, or the id by size."""

    def bits(self, known: Sequence[int], token: int) -> float:
        """See `IdCode.bits`."""
        fresh = 1 + super().bits(known, token)
        seen: dict[int, None] = {}
        for other in reversed(known[-WINDOW:]):
            if other == token:
                return min(fresh, 1 + exp_golomb_bits(len(seen), NEAR_ORDER))
            seen[other] = None
        return fresh


class Repeated(Distance):
    """A flag: what followed the last two tokens the last time they stood together. Else `Distance`."""

    def bits(self, known: Sequence[int], token: int) -> float:
        """See `IdCode.bits`."""
        expected = follower(known, 2)
        if expected is None:
            return super().bits(known, token)
        return 1 if expected == token else 1 + super().bits(known, token)


class RepeatedOrRaw(Raw):
    """The same flag, and raw where it does not hold."""

    def bits(self, known: Sequence[int], token: int) -> float:
        """See `IdCode.bits`."""
        expected = follower(known, 1)
        if expected is None:
            return super().bits(known, token)
        return 1 if expected == token else 1 + super().bits(known, token)


class Learned(Golomb):
    """Counts of what followed the last 2, 1, 0 tokens, mixed with the code by size: about the best that a coder
    without a language model gets. Counts of a whole text are its state, at both ends."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self._counts: tuple[defaultdict[tuple[int, ...], Counter[int]], ...] = tuple(
            defaultdict(Counter) for _ in range(ORDERS)
        )
        self._totals: Counter[tuple[int, ...]] = Counter()

    def bits(self, known: Sequence[int], token: int) -> float:
        """See `IdCode.bits`."""
        chance: float = 2.0 ** -super().bits(known, token)
        for order in range(min(ORDERS, len(known) + 1)):
            context = tuple(known[len(known) - order :])
            if total := self._totals[context]:
                seen = self._counts[order][context][token]
                chance = (seen + TRUST[order] * chance) / (total + TRUST[order])
        return -math.log2(chance)

    def commit(self, known: Sequence[int]) -> None:
        """See `IdCode.commit`."""
        for order in range(min(ORDERS, len(known))):
            context = tuple(known[len(known) - 1 - order : -1])
            self._counts[order][context][known[-1]] += 1
            self._totals[context] += 1


CODES: Final[dict[str, type[Raw]]] = {
    "raw": Raw,
    "by size of the id": Golomb,
    "follower, else raw": RepeatedOrRaw,
    "distance back": Distance,
    "move to front": Recency,
    "follower, else distance": Repeated,
    "learned counts (ideal)": Learned,
}


def exp_golomb_bits(value: int, order: int = ORDER) -> int:
    """Bits of `value` >= 0 in the exponential Golomb code of an order."""
    return 2 * ((value >> order) + 1).bit_length() - 1 + order


def follower(known: Sequence[int], order: int) -> int | None:
    """What followed the last `order` tokens when they stood before, the nearest time; None if they never did."""
    tail = list(known[-order:])
    for at in range(len(known) - order - 1, max(-1, len(known) - WINDOW), -1):
        if list(known[at : at + order]) == tail:
            return known[at + order]
    return None
