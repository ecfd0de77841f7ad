"""Cuts a step into passes that the buffers can hold. Rows do not know their company, so this changes no bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acespec.cloud.cuda_backend.layout import stores_logits
from acespec.cloud.cuda_backend.limits import PassLimits
from acespec.cloud.runner import Block
from acespec.proto.errors import InvalidRequest


def cut(
    blocks: Sequence[Block], limits: PassLimits, vocab_size: int, *, keep_all: bool = False
) -> Iterator[list[Block]]:
    """Runs of blocks, in order; the last two arguments are those of `lay_out`.

    Raises `InvalidRequest` for a block that fits into no pass.
    """
    waiting: list[Block] = []
    rows = kept = 0
    for block in blocks:
        own = len(block.tokens)
        stored = own - block.sample_from if keep_all or stores_logits(block, vocab_size) else 0
        if own > limits.rows or stored > limits.kept:
            raise InvalidRequest(
                f"a block of {own} rows, {stored} of them with stored logits, is too large: a pass takes {limits.rows} "
                f"rows and stores {limits.kept}; cut it into chunks"
            )
        if waiting and (rows + own > limits.rows or kept + stored > limits.kept):
            yield waiting
            waiting, rows, kept = [], 0, 0
        waiting.append(block)
        rows, kept = rows + own, kept + stored
    yield waiting
