"""Structured output: which tokens a grammar lets follow a generated text, over the llguidance library.

To its callers a constraint is a pure function of the generated tokens. Inside it keeps one matcher at the prefix that
it was asked about last, and moves it: on by what is new, back to where another prefix branches off. Nothing but
committed tokens and drafts that the grammar itself allowed ever gets in, so a bad draft is a rejection like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acespec.proto.prefix import common_prefix

if TYPE_CHECKING:
    from llguidance import LLMatcher

Mask = NDArray[np.bool_]


class GrammarConstraint:
    """A `draw_rule.Constraint` for one turn. Used by one thread at a time.

    Args:
        fresh: a matcher that has consumed nothing. It is copied, never moved.
        end_ids: tokens that end a text: allowed wherever the text may end, and alone where nothing else can follow.

    Attributes:
        fault: why the grammar could not be followed to the end, if so: it then allows the end alone.
    """

    def __init__(self, fresh: LLMatcher, end_ids: Sequence[int], vocab_size: int) -> None:
        self.fault: str | None = None
        self._fresh = fresh
        self._matcher = fresh.deep_copy()
        self._fed: list[int] = []
        self._ends = np.array([i for i in end_ids if 0 <= i < vocab_size], np.intp)
        self._vocab_size = vocab_size

    def allowed(self, generated: Sequence[int]) -> Mask:
        """bool[vocab_size], never all False; see `draw_rule.Constraint.allowed`."""
        mask = self._mask() if self._follow(list(generated)) else np.zeros(self._vocab_size, np.bool_)
        if not mask.any():
            mask[self._ends] = True
        return mask

    def _follow(self, generated: list[int]) -> bool:
        """Bring the matcher to `generated`; False if the grammar does not allow that text."""
        self._step_back(common_prefix(self._fed, generated))
        new = generated[len(self._fed) :]
        taken = self._matcher.try_consume_tokens(new) if new else 0
        self._fed += new[:taken]
        return taken == len(new)

    def _step_back(self, length: int) -> None:
        """Forget what was fed beyond `length` tokens."""
        surplus = len(self._fed) - length
        if not self._matcher.is_error() and (surplus == 0 or self._matcher.rollback(surplus)):
            del self._fed[length:]
        else:
            self._matcher = self._fresh.deep_copy()
            self._fed = []

    def _mask(self) -> Mask:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            self.fault = one_line(self._matcher.get_error())
            return np.zeros(self._vocab_size, np.bool_)
        mask = np.unpackbits(bits, count=self._vocab_size, bitorder="little").astype(np.bool_)
        if self._matcher.is_accepting():
            mask[self._ends] = True
        return mask


def one_line(message: str, most: int = 200) -> str:
    """A library's message without its line breaks, cut to `most` characters."""
    text = " ".join(message.split())
    return text if len(text) <= most else text[:most] + ".."
