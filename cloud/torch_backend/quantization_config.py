"""What a checkpoint's `quantization_config` says about its 4-bit weights: AWQ (version gemm) and GPTQ (v1 and v2).

Which modules are quantised is not asked here: a module is, if the files hold `<module>.qweight` instead of
`<module>.weight`. That is what `modules_to_not_convert`, `modules_in_block_to_quantize`, `lm_head` and the skipping
rules of `dynamic` say in words, each tool with name matching of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from acespec.proto.errors import UnsupportedModel

Layout = Literal["awq", "gptq", "gptq_v2"]
Settings = Mapping[str, object]

BITS = 4
WHOLE = -1
"""The group size that stands for one group over all inputs."""

_LAYOUTS: Mapping[str, Mapping[str, Layout]] = {
    "awq": {"gemm": "awq"},
    "gptq": {"gptq": "gptq", "gptq_v2": "gptq_v2"},
}
_FORMAT_KEYS: Mapping[str, tuple[str, ...]] = {
    "awq": ("version", "checkpoint_format", "format"),
    "gptq": ("checkpoint_format", "format"),
}
"""Where tools write the layout's name, most telling first."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the quantised weights of a checkpoint are stored.

    Attributes:
        layout: the order of the codes; `acespec.cloud.torch_backend.quantized` describes each.
        group: consecutive inputs that share a scale and a zero; None: all inputs of a layer.
        desc_act: whether the groups may hold inputs out of order (GPTQ's activation order).
        symmetric: whether all zeros are promised to be 8.
        carries: whether zeros of layout gptq were lowered by one as whole words, so that a zero of 0 borrows from
            the next (GPTQModel does so); other tools leave a zero of 0 damaged.
    """

    layout: Layout
    group: int | None
    desc_act: bool = False
    symmetric: bool = False
    carries: bool = False

    def group_of(self, inputs: int) -> int:
        """The group size in a layer of so many inputs."""
        return self.group or inputs


def parse_quantization(settings: Settings) -> Quantization | None:
    """Read `quantization_config` of a parsed `config.json`; None if the weights are floats.

    Raises `UnsupportedModel`, naming the setting, for what is not served.
    """
    if settings.get("quantization") and not settings.get("quantization_config"):
        raise UnsupportedModel("weights quantised for MLX (quantization) are not served; use a float, AWQ or GPTQ copy")
    table = settings.get("quantization_config")
    if not table:
        return None
    if not isinstance(table, dict):
        raise UnsupportedModel(f"quantization_config is {table!r}; an object is needed")
    return _parse(table)


def _parse(table: Settings) -> Quantization:
    method = table.get("quant_method")
    if method not in _LAYOUTS:
        raise UnsupportedModel(
            f"quantization_config has quant_method {method!r}; awq and gptq are served: use such a copy or a float one"
        )
    _refuse_foreign_settings(table)
    layout, group = _layout(str(method), table), _group(table)
    if layout == "awq":
        # Some tools write `desc_act` and `sym` here too, at their defaults and without a meaning.
        return Quantization(layout, group)
    return Quantization(
        layout,
        group,
        desc_act=bool(table.get("desc_act")),
        symmetric=table.get("sym") is True,
        carries="gptqmodel" in _writers(table),
    )


def _refuse_foreign_settings(table: Settings) -> None:
    bits = table.get("bits")
    if isinstance(bits, bool) or bits != BITS:
        raise UnsupportedModel(f"quantization_config gives bits as {bits!r}; only {BITS} is served")
    if table.get("zero_point", True) is not True:
        raise UnsupportedModel("AWQ weights without zero points (zero_point false) are not served")
    if table.get("backend") == "llm-awq":
        raise UnsupportedModel("AWQ weights laid out for llm-awq (backend) are not served; version gemm is")
    if table.get("is_marlin_format"):
        raise UnsupportedModel("GPTQ weights laid out for Marlin (is_marlin_format) are not served")
    if table.get("pack_dtype", "int32") != "int32":
        raise UnsupportedModel(f"weights packed into {table['pack_dtype']!r} (pack_dtype) are not served; int32 is")


def _layout(method: str, table: Settings) -> Layout:
    known = _LAYOUTS[method]
    key = next((key for key in _FORMAT_KEYS[method] if table.get(key) is not None), None)
    if key is None:
        return next(iter(known.values()))
    name = str(table[key]).lower()
    if name not in known:
        raise UnsupportedModel(f"{method} weights of {key} {table[key]!r} are not served; {' and '.join(known)} are")
    return known[name]


def _group(table: Settings) -> int | None:
    size = table.get("group_size")
    if isinstance(size, bool) or not isinstance(size, int) or (size != WHOLE and size <= 0):
        raise UnsupportedModel(f"quantization_config gives group_size as {size!r}; a positive integer or -1 is needed")
    return None if size == WHOLE else size


def _writers(table: Settings) -> set[str]:
    """Names of the tools that wrote the file: `meta.quantizer` is `name:version` or a list of such."""
    meta = table.get("meta")
    written: object = meta.get("quantizer") if isinstance(meta, dict) else None
    entries = cast(list[object], written if isinstance(written, list) else [written])
    return {entry.partition(":")[0].lower() for entry in entries if isinstance(entry, str)}
