"""4-bit weights of AWQ and GPTQ checkpoints, unpacked from their files' layouts.

A weight is (code - zero) * scale: a code 0..15 for each element, a zero and a float16 scale for each output and group
of consecutive inputs. The product is exact in float32 (5 bits times 11), and its bfloat16 rounding is **the** weight:
a target computes with these values on every device, whether it stores them as floats or as codes.

For N outputs and K inputs the files hold, eight codes in each int32, nibble p in bits 4p .. 4p + 3:

    layout   qweight                          qzeros                                scales
    awq      [K, N/8], outputs in AWQ_ORDER   [K/group, N/8], outputs in AWQ_ORDER  [K/group, N]
    gptq     [K/8, N], inputs in order        [K/group, N/8], outputs in order      [K/group, N]
    gptq_v2  the same

gptq stores zero - 1; both GPTQ layouts may have g_idx [K], the group of each input. Sources: Lin et al., AWQ
(arXiv:2306.00978); Frantar et al., GPTQ (arXiv:2210.17323); the layouts are those of AutoAWQ's GEMM and of GPTQModel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from acespec.cloud.torch_backend.quantization_config import Quantization
from acespec.proto.errors import UnsupportedModel

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The output, of eight, that each nibble of an AWQ word belongs to."""

PACKED = 8
"""Codes in a word."""
SYMMETRIC_ZERO = 8

_AWQ_NIBBLE_OF = torch.tensor(AWQ_ORDER).argsort()
_ONE_EACH = 0x11111111

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quantized:
    """A weight of N outputs and K inputs in 4 bits.

    Attributes:
        codes: uint8[N, K], 0..15.
        scales: float16[N, K/group].
        zeros: uint8[N, K/group], 0..15.
        group: consecutive inputs that share a scale and a zero.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    group: int

    def dequantized(self) -> torch.Tensor:
        """bfloat16[N, K]: (code - zero) * scale, rounded once."""
        values = self.codes.view(len(self.codes), -1, self.group).float()
        values -= self.zeros[..., None].float()
        values *= self.scales[..., None].float()
        return values.flatten(1).to(torch.bfloat16)


def packed_shapes(quantization: Quantization, name: str, outputs: int, inputs: int) -> dict[str, Shape]:
    """The tensors that module `name` must have, and their shapes. Raises `UnsupportedModel` if it cannot be packed."""
    group = quantization.group_of(inputs)
    if inputs % group or inputs % PACKED or outputs % PACKED:
        raise UnsupportedModel(
            f"{name} of {outputs} outputs and {inputs} inputs does not divide into words of {PACKED} codes "
            f"and groups of {group} (group_size); use a copy with another group size"
        )
    groups = inputs // group
    by_output = quantization.layout == "awq"
    return {
        "qweight": (inputs, outputs // PACKED) if by_output else (inputs // PACKED, outputs),
        "qzeros": (groups, outputs // PACKED),
        "scales": (groups, outputs),
    }


def unpack(quantization: Quantization, name: str, parts: Mapping[str, torch.Tensor]) -> Quantized:
    """The weight of module `name` from its stored tensors (`packed_shapes`, and g_idx where there is one).

    Raises `UnsupportedModel` for tensors that are not what the layout promises.
    """
    for part in ("qweight", "qzeros"):
        if parts[part].dtype != torch.int32:
            raise UnsupportedModel(f"{name}.{part} is {parts[part].dtype}; only int32 is served")
    inputs = parts["qweight"].shape[0] * (1 if quantization.layout == "awq" else PACKED)
    group = quantization.group_of(inputs)
    _check_order(quantization, name, parts.get("g_idx"), inputs, group)
    return Quantized(
        codes=_codes(quantization, parts["qweight"]),
        scales=_scales(name, parts["scales"]),
        zeros=_zeros(quantization, name, parts["qzeros"]),
        group=group,
    )


def _nibbles(words: torch.Tensor) -> torch.Tensor:
    """int32[R, C] -> uint8[R, C, 8], lowest bits first. Bytes are little-endian, as in the files."""
    pairs = words.flatten().view(torch.uint8).view(*words.shape, PACKED // 2)
    return torch.stack((pairs & 15, pairs >> 4), -1).flatten(2)


def _turned(x: torch.Tensor) -> torch.Tensor:
    """The transpose in memory of its own; its last stride is 1 even where a side is 1, unlike `contiguous`."""
    return x.t().flatten().view(x.shape[::-1])


def _by_output(quantization: Quantization, words: torch.Tensor) -> torch.Tensor:
    """int32[R, N/8], eight outputs a word -> uint8[N, R]."""
    stored = _turned(_nibbles(words).flatten(1))
    if quantization.layout != "awq":
        return stored
    # Whole rows are moved: within the words it would take three times as long.
    return stored.view(-1, PACKED, len(words)).index_select(1, _AWQ_NIBBLE_OF).flatten(0, 1)


def _codes(quantization: Quantization, words: torch.Tensor) -> torch.Tensor:
    if quantization.layout == "awq":
        return _by_output(quantization, words)
    return _nibbles(words.t()).flatten(1)


def _zeros(quantization: Quantization, name: str, words: torch.Tensor) -> torch.Tensor:
    if quantization.layout == "gptq":
        if not quantization.carries and bool((_nibbles(words) == 15).any()):
            raise UnsupportedModel(
                f"{name}.qzeros has zero points that the gptq format cannot hold; "
                "use a copy of checkpoint_format gptq_v2 or one that is symmetric (sym)"
            )
        words = words + _ONE_EACH
    zeros = _by_output(quantization, words)
    if quantization.symmetric and bool((zeros != SYMMETRIC_ZERO).any()):
        raise UnsupportedModel(
            f"{name}.qzeros differs from {SYMMETRIC_ZERO}, though the file calls itself symmetric (sym); "
            "its checkpoint_format may be wrong: compare it with the tool that wrote the file"
        )
    return zeros


def _scales(name: str, stored: torch.Tensor) -> torch.Tensor:
    if not stored.is_floating_point():
        raise UnsupportedModel(f"{name}.scales is {stored.dtype}; floats are needed")
    scales = stored.to(torch.float16)
    if not (torch.isfinite(scales).all() and torch.equal(scales.float(), stored.float())):
        raise UnsupportedModel(f"{name}.scales ({stored.dtype}) has values that no float16 is; use another copy")
    return _turned(scales)


def _check_order(quantization: Quantization, name: str, g_idx: torch.Tensor | None, inputs: int, group: int) -> None:
    """Inputs must lie in their groups in order; activation order permutes them, unless its groups are static."""
    if g_idx is None:
        sorted_groups = not quantization.desc_act
    else:
        sorted_groups = torch.equal(g_idx.long(), torch.arange(inputs) // group)
    if not sorted_groups:
        raise UnsupportedModel(
            f"{name} has its inputs in activation order (desc_act, g_idx), which is not served; "
            "use a copy made with desc_act false or with static groups"
        )
