"""The tokens of a commit: those that it names by a draft node, then those that it spells out."""

from __future__ import annotations

from acespec.edge.brain.draft_tree import DraftTree
from acespec.proto.errors import BadFrame
from acespec.proto.messages import Commit
from acespec.proto.tokens import unpack_tokens


def tokens_of(commit: Commit, tree: DraftTree, limit: int, vocab_size: int) -> tuple[list[int], int]:
    """(tokens behind the tree's base, how many of them are named by a node).

    Args:
        limit: the committed length that was asked for at most.

    Raises:
        BadFrame: its parts contradict each other, or it goes beyond `limit`.
        KeyError: it names a node that is not held.
    """
    named = [] if commit.matched is None else tree.tokens_to(commit.matched)
    explicit = commit.length - tree.base - len(named)
    if explicit < 0:
        raise BadFrame(f"its tokens reach beyond it by {-explicit}")
    if commit.length > limit:
        raise BadFrame(f"it is beyond position {limit}, where the answer that was asked for ends")
    return named + unpack_tokens(commit.tokens, explicit, vocab_size), len(named)
