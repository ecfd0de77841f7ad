"""The log probabilities that came with a commit, held against what was asked for."""

from __future__ import annotations

from acespec.proto.errors import BadFrame
from acespec.proto.logprobs import TokenLogprobs, unpack
from acespec.proto.messages import Commit


def logprobs_of(commit: Commit, tokens: int, top: int | None, vocab_size: int) -> tuple[TokenLogprobs, ...]:
    """One item for each of the commit's `tokens` tokens, or none if none were asked for.

    Args:
        top: alternatives that were asked for; None asks for no log probabilities.

    Raises:
        BadFrame: they do not fit the tokens or the request.
    """
    items = tuple(unpack(commit.logprobs))
    expected = 0 if top is None else tokens
    if len(items) != expected:
        raise BadFrame(f"a commit of {tokens} tokens with {len(items)} log probabilities where {expected} belong")
    if any(len(item.top) > (top or 0) for item in items):
        raise BadFrame(f"more alternatives to a token than the {top} that were asked for")
    if any(token >= vocab_size for item in items for token, _ in item.top):
        raise BadFrame(f"the log probability of an id that is outside the vocabulary of {vocab_size}")
    return items
