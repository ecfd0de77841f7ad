"""The same text in two vocabularies: spelling ids out as bytes, and keeping one tokenization in step with another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from acespec.models.tokenizer import Tokenizer
from acespec.proto.prefix import common_prefix

LOOK_BEHIND = 12
"""Ids before a change that are tokenised again with what follows, so that a word cut by the change is seen whole."""
_LEAD = "\n"


class Spelling:
    """Ids <-> bytes of one tokenizer, control tokens as the text they are written with."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # SentencePiece puts a space before a text; behind a line break it does not.
        self._lead = tokenizer.encode(_LEAD) if tokenizer.drops_first_space else []

    def token(self, token_id: int) -> bytes:
        """The bytes of one id; empty for an id without a token."""
        return self._tokenizer.token_bytes(token_id) or self._tokenizer.decode([token_id], skip_special=False).encode()

    def text(self, ids: Sequence[int]) -> bytes:
        """The bytes of all ids."""
        return b"".join(map(self.token, ids))

    def encode(self, text: str) -> list[int]:
        """Ids of a text that stands inside another one. They may spell it differently: see `exact`."""
        if self._lead:
            ids = self._tokenizer.encode(_LEAD + text)
            if ids[: len(self._lead)] == self._lead:
                return ids[len(self._lead) :]
        return self._tokenizer.encode(text)

    def exact(self, text: bytes) -> list[int] | None:
        """Ids that spell exactly `text`; None if it is no UTF-8, or if the tokenizer changes it (normalisation)."""
        try:
            ids = self.encode(text.decode())
        except UnicodeDecodeError:
            return None
        return ids if self.text(ids) == text else None


class FollowingIds:
    """A text given by ids of one vocabulary, followed in the ids of another."""

    def __init__(self, given: Spelling, wanted: Spelling, first: Sequence[int] = ()) -> None:
        self._given = given
        self._wanted = wanted
        self._first = list(first)
        self._path: list[int] = []
        self._path_ends: list[int] = []
        self._text = bytearray()
        self._ids: list[int] = []
        self._ends: list[int] = []

    def follow(self, path: Sequence[int]) -> tuple[list[int], bytes]:
        """(ids of the text of `path`, behind the model's own first ids; bytes at its end that are no whole character).

        What is unchanged since the last call keeps its ids but for a look-behind window, so that a model's cache of
        them stays good.
        """
        common = common_prefix(self._path, path)
        if not common == len(path) == len(self._path):
            self._take(path, common)
            self._tokenise_from(self._path_ends[common - 1] if common else 0)
        covered = self._ends[-1] if self._ends else 0
        return self._first + self._ids, bytes(self._text[covered:])

    def _take(self, path: Sequence[int], common: int) -> None:
        del self._path[common:], self._path_ends[common:]
        del self._text[self._path_ends[-1] if common else 0 :]
        for token in path[common:]:
            self._text += self._given.token(token)
            self._path.append(token)
            self._path_ends.append(len(self._text))

    def _tokenise_from(self, changed: int) -> None:
        start = self._cut_before(changed)
        end = len(self._text) - len(incomplete(self._text[start:]))
        tail = bytes(self._text[start:end])
        ids = self._wanted.encode(tail.decode(errors="replace"))
        pieces = [self._wanted.token(token) for token in ids]
        at = start
        exact = b"".join(pieces) == tail
        for token, piece in zip(ids, pieces, strict=True):
            # What is not spelt exactly (normalised text, broken bytes) is one block, kept or dropped as a whole.
            at = at + len(piece) if exact else end
            self._ids.append(token)
            self._ends.append(at)

    def _cut_before(self, changed: int) -> int:
        """Drops the ids from a look-behind window before byte `changed` on; the byte where the rest ends."""
        keep = max(0, bisect_right(self._ends, changed) - LOOK_BEHIND)
        while keep and (self._inside_block(keep) or is_continuation(self._text, self._ends[keep - 1])):
            keep -= 1
        del self._ids[keep:], self._ends[keep:]
        return self._ends[-1] if keep else 0

    def _inside_block(self, keep: int) -> bool:
        return keep < len(self._ends) and self._ends[keep - 1] == self._ends[keep]


def is_continuation(text: bytes | bytearray, at: int) -> bool:
    """Whether the byte at `at` goes on a UTF-8 character; False at the end."""
    return at < len(text) and text[at] & 0xC0 == 0x80


def incomplete(text: bytes | bytearray) -> bytes:
    """The bytes at the end of `text` that begin a UTF-8 character and do not end it."""
    for back in range(1, min(3, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return bytes(text[-back:]) if back < length else b""
        if byte & 0x80 == 0:
            break
    return b""
