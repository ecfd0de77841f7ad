"""A weight of 4-bit codes with a scale and a zero for each group of inputs: what it stands for, how it lies in memory.

A weight is bf16((code - zero) * scale): the product is exact in fp32, so there is one rounding.

Codes lie so that the matrix unit finds them in the right thread. Its first operand is given by registers, of which a
quad of threads holds sixteen inputs of a row: thread t those at 2t, 2t+1, 2t+8 and 2t+9 (wgmma.m64nNk16 in the PTX
manual). So one 32-bit word holds thread t's eight codes of 32 inputs, and the two of a register are 16 bits apart,
where one `and` takes out both:

    bits 4(2h + e) + 16 i .. +3  =  input 16h + 8e + 2t + i        (h, e, i each 0 or 1)

The words of one thread for a chunk of 128 inputs are neighbours: it reads 16 bytes at once. (The idea of permuted
codes: Marlin, arXiv 2408.11743; this layout is our own.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from acespec.proto.errors import UsageError

QUAD = 4
BLOCK = 32
"""Inputs of one word of each thread of a quad."""
CHUNK = 128
"""Inputs of which a thread's words are neighbours, if a row has a multiple of it."""
HIGHEST_ZERO = 16
"""GPTQ's format stores zero - 1, so that 16 occurs."""
_MARK = 0x0F << 24


@dataclass(frozen=True, slots=True)
class W4Weight:
    """A packed weight [N, K].

    Attributes:
        words: int32[N, K // 8], eight codes each; within a row [K // chunk, 4 threads, chunk // 32].
        steps: int32[K // group, N], the bits of the f16 scale, then a byte of the code that stands for 0, then a byte
            15, which a kernel uses as a mask that the compiler cannot know.
        group: inputs that share a step.
    """

    words: torch.Tensor
    steps: torch.Tensor
    group: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.words.shape[0], self.words.shape[1] * 8

    @property
    def chunk(self) -> int:
        """Inputs of which a thread's words are neighbours: 128, 64 or 32."""
        return math.gcd(self.shape[1], CHUNK)

    @property
    def scales(self) -> torch.Tensor:
        """float16[N, K // group]."""
        return self.steps.T.to(torch.int16).view(torch.float16)

    @property
    def zeros(self) -> torch.Tensor:
        """uint8[N, K // group]."""
        return (self.steps.T >> 16).to(torch.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes that one product reads of it."""
        return self.words.nbytes + self.steps.nbytes


def pack_w4(codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int) -> W4Weight:
    """Pack a quantised weight.

    Args:
        codes: uint8[N, K], 0..15.
        scales: float16[N, K // group].
        zeros: uint8[N, K // group], the code that stands for 0, at most 16.
        group: inputs that share a scale: 32, 64, a multiple of 128, or all K.

    Raises:
        UsageError: the shapes do not fit each other or the kernel, or a value is out of range.
    """
    _check(codes, scales, zeros, group)
    n, k = codes.shape
    chunk = math.gcd(k, CHUNK)
    # [N, chunks, block, h, e, thread, i] -> [N, chunks, thread, block, codes of a word from the lowest bits]
    parts = codes.reshape(n, k // chunk, chunk // BLOCK, 2, 2, QUAD, 2).permute(0, 1, 5, 2, 6, 3, 4)
    words = torch.zeros(parts.shape[:4], dtype=torch.int32, device=codes.device)
    for position, nibble in enumerate(parts.reshape(*parts.shape[:4], 8).unbind(4)):
        words |= nibble.to(torch.int32) << 4 * position
    steps = (scales.view(torch.int16).to(torch.int32) & 0xFFFF) | zeros.to(torch.int32) << 16 | _MARK
    return W4Weight(words.reshape(n, k // 8), steps.T.contiguous(), group)


def unpack_codes(weight: W4Weight) -> torch.Tensor:
    """uint8[N, K], as given to `pack_w4`."""
    n, k = weight.shape
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=weight.words.device)
    parts = (weight.words.reshape(n, k // weight.chunk, QUAD, -1, 1) >> shifts & 15).to(torch.uint8)
    return parts.unflatten(4, (2, 2, 2)).permute(0, 1, 3, 5, 6, 2, 4).reshape(n, k)


def dequantize(weight: W4Weight) -> torch.Tensor:
    """bf16[N, K] = bf16((code - zero) * f32(scale))."""
    steps = unpack_codes(weight).float() - _spread(weight.zeros, weight.group)
    return (steps * _spread(weight.scales, weight.group)).to(torch.bfloat16)


def _spread(values: torch.Tensor, group: int) -> torch.Tensor:
    """float32[N, K]: each group's value for each of its inputs."""
    return values.float().repeat_interleave(group, 1)


def fits(inputs: int, group: int) -> bool:
    """Whether the kernel has a layout for groups of such a size."""
    whole = inputs % BLOCK == 0 and group % BLOCK == 0 and inputs % group == 0
    return whole and (CHUNK % group == 0 or group % CHUNK == 0 or group == inputs)


def _check(codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int) -> None:
    n, k = codes.shape
    if not fits(k, group):
        raise UsageError(
            f"4-bit weight of {k} inputs in groups of {group}: inputs must be a multiple of the group, and the group"
            f" {BLOCK}, 64, a multiple of {CHUNK}, or all inputs; quantise it anew with such a group"
        )
    for name, part, dtype in (("scales", scales, torch.float16), ("zeros", zeros, torch.uint8)):
        if tuple(part.shape) != (n, k // group) or part.dtype != dtype:
            raise UsageError(
                f"4-bit weight: {name} are {part.dtype}{list(part.shape)}, not {dtype}{[n, k // group]};"
                " the checkpoint is damaged or read with the wrong group"
            )
    if codes.dtype != torch.uint8 or int(codes.max()) > 15 or int(zeros.max()) > HIGHEST_ZERO:
        raise UsageError("4-bit weight: codes must be uint8 up to 15 and zeros up to 16; the checkpoint is damaged")
    if not bool(torch.isfinite(scales).all()):
        raise UsageError("4-bit weight: a scale is infinite or NaN; the checkpoint is damaged")
