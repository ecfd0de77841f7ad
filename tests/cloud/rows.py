"""A target whose logits are real rows: random, but a function of the prefix alone. For what toy hashes cannot show."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import Block, Drawn, walk


def row_of(prefix: Sequence[int], vocab: int, salt: int = 0, spread: float = 2.5) -> NDArray[np.float32]:
    seed = zlib.crc32(np.asarray(prefix, np.int64).tobytes(), salt)
    return (np.random.default_rng(seed).standard_normal(vocab) * spread).astype(np.float32)


def step(block: Block, vocab: int, salt: int = 0) -> Drawn:
    """What a runner over these rows draws for `block`."""

    def logits(row: int) -> NDArray[np.float32]:
        return row_of(block.context(row), vocab, salt)

    rule = block.rule
    drawn = walk(
        block,
        lambda row: rule.draw(logits(row), block.start + block.depths[row] + 1, block.context(row), vocab),
    )
    reported = [
        item
        for token, row in zip(drawn.tokens, drawn.rows, strict=True)
        for item in rule.logprobs(logits(row), token, vocab)
    ]
    return Drawn(drawn.tokens, drawn.rows, tuple(reported))


def block_of(tokens: Sequence[int], draft: Sequence[int], rule: DrawRule) -> Block:
    """A verify block: the last of `tokens` and a draft behind it."""
    start = len(tokens) - 1
    return Block((0,), start, (tokens[-1], *draft), list(tokens), 0, rule)


def plain(prompt: Sequence[int], rule: DrawRule, vocab: int, count: int, ends: Sequence[int] = ()) -> list[int]:
    """Tokens drawn one at a time, up to `count` or an end id."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count:
        tokens += step(block_of(tokens, (), rule), vocab).tokens
        if tokens[-1] in ends:
            break
    return tokens[len(prompt) :]


def drafted(
    prompt: Sequence[int],
    rule: DrawRule,
    vocab: int,
    count: int,
    drafts: Sequence[Sequence[int]],
    ends: Sequence[int] = (),
) -> list[int]:
    """The same with a draft of `drafts[i % ..]` in step i; None of them may change a token."""
    tokens = list(prompt)
    number = 0
    while len(tokens) - len(prompt) < count:
        drawn = step(block_of(tokens, drafts[number % len(drafts)], rule), vocab)
        number += 1
        for token in drawn.tokens:
            tokens.append(token)
            if token in ends:
                return tokens[len(prompt) :]
    return tokens[len(prompt) :][:count]
