"""The transform from random words to noise by itself, for words that no seed would reach soon."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.noise import gumbel_from_bits

BLOCK = 1024


# Triton would take types for variables, so there are none.
def _words(words, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(words + at, mask=at < count, other=0).to(tl.uint32, bitcast=True)
    tl.store(out + at, gumbel_from_bits(x), mask=at < count)


words_kernel = triton.jit(_words)


def gumbel_of_words(words: torch.Tensor) -> torch.Tensor:
    """float32[n]: the noise of int32[n] random words, taken as unsigned."""
    out = torch.full(words.shape, torch.nan, device=words.device)
    words_kernel[(triton.cdiv(len(words), BLOCK),)](
        words, out, len(words), BLOCK=BLOCK, num_warps=4, num_stages=1, enable_fp_fusion=False
    )
    return out
