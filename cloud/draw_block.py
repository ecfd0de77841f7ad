"""Draw a block's samples from rows of logits on the host: the walk that any backend without its own sampling takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from acespec.cloud.runner import Block, Drawn, walk


def draw_block(block: Block, logits: NDArray[np.float32], vocab_size: int) -> Drawn:
    """Walk a block by its own rule.

    Args:
        logits: float32[len(tokens) - sample_from, n], one row for each row of the block from `sample_from` on.
    """
    rule, depths = block.rule, block.depths

    def draw_row(row: int) -> int:
        prefix = block.context(row) if rule.reads_prefix else ()
        position = block.start + depths[row] + 1
        return rule.draw(logits[row - block.sample_from], position, prefix, vocab_size)

    drawn = walk(block, draw_row)
    if rule.top_logprobs is None:
        return drawn
    reported = [
        item
        for row, token in zip(drawn.rows, drawn.tokens, strict=True)
        for item in rule.logprobs(logits[row - block.sample_from], token, vocab_size)
    ]
    return replace(drawn, logprobs=tuple(reported))
