"""The committed sequence with the digest of its every prefix, and the checkpoints that an `Open` may name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acespec.proto.digest import PrefixDigest, short
from acespec.proto.messages import Checkpoint
from acespec.proto.prefix import common_prefix


class CommittedSequence:
    """Ids that are final, prompt included. 16 bytes of digest and one id of memory a token."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._digests = PrefixDigest()

    def __len__(self) -> int:
        return len(self.ids)

    def replace(self, ids: Sequence[int]) -> int:
        """Become `ids`; returns how many leading tokens were there already."""
        common = common_prefix(self.ids, ids)
        del self.ids[common:]
        self._digests.truncate(common)
        self.extend(ids[common:])
        return common

    def extend(self, tokens: Iterable[int]) -> None:
        """Append final tokens."""
        start = len(self.ids)
        self.ids.extend(tokens)
        self._digests.extend(self.ids[start:])

    def truncate(self, length: int) -> None:
        """Forget all tokens from `length` on."""
        del self.ids[length:]
        self._digests.truncate(length)

    def check(self) -> int:
        """The four bytes of digest that a commit carries, as a number."""
        return short(self._digests.at(len(self.ids)))

    def checkpoint(self, length: int) -> Checkpoint:
        """The prefix of `length` tokens, as the server may know it."""
        return Checkpoint(length, self._digests.at(length))

    def checkpoints(self, lengths: Iterable[int]) -> tuple[Checkpoint, ...]:
        """Checkpoints at these lengths, ascending, without the empty prefix."""
        return tuple(self.checkpoint(n) for n in sorted(set(lengths)) if n > 0)
