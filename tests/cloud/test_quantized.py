"""4-bit checkpoints: their layouts, the weights that they stand for, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from acespec.cloud.torch_backend.config import parse_config, read_config
from acespec.cloud.torch_backend.quantization_config import Quantization, parse_quantization
from acespec.cloud.torch_backend.quantized import Quantized, packed_shapes, unpack
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.cloud.torch_backend.weights import Checkpoint
from acespec.kernels.w4_weight import dequantize, pack_w4
from acespec.proto.errors import UnsupportedModel
from tests.cloud.torch_runners import VOCAB, in_chunks, same_bits, text, tiny_folder
from tests.quantize import (
    AWQ_OUTPUTS,
    Layout,
    Rounded,
    is_projection,
    pack,
    quantized_folder,
    rounded_folder,
    settings_of,
)
from tests.tiny import ModelType

LAYOUTS: tuple[Layout, ...] = ("awq", "gptq", "gptq_v2")
OUTPUTS, INPUTS, GROUP = 24, 64, 16
UP = "model.layers.1.mlp.up_proj"


def logits_of(folder: Path) -> NDArray[np.float32]:
    return in_chunks(TorchRunner.load(folder, vocab_size=VOCAB), text(90), [30])


def nibble(words: torch.Tensor, row: int, column: int, place: int) -> int:
    """Put together from single bits."""
    word = int(words[row, column]) % 2**32
    return sum(((word >> bit) % 2) << (bit - 4 * place) for bit in range(4 * place, 4 * place + 4))


def by_output(layout: Layout, words: torch.Tensor, row: int, output: int) -> int:
    place = AWQ_OUTPUTS.index(output % 8) if layout == "awq" else output % 8
    return nibble(words, row, output // 8, place)


def random_parts(layout: Layout, seed: int = 0) -> dict[str, torch.Tensor]:
    """Any words are codes; those of v1 zeros keep clear of 15, which tools read differently."""
    generator = torch.Generator().manual_seed(seed)

    def words(*shape: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31, shape, generator=generator).to(torch.int32)

    shapes = packed_shapes(Quantization(layout, GROUP), "m", OUTPUTS, INPUTS)
    zeros = words(*shapes["qzeros"])
    scales = torch.randn(shapes["scales"], generator=generator).to(torch.float16)
    return {
        "qweight": words(*shapes["qweight"]),
        "qzeros": zeros & 0x77777777 if layout == "gptq" else zeros,
        "scales": scales,
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unpacking_equals_the_formats_read_bit_by_bit(layout: Layout) -> None:
    parts = random_parts(layout)
    found = unpack(Quantization(layout, GROUP), "m", parts)
    assert (found.codes.dtype, found.scales.dtype, found.zeros.dtype) == (torch.uint8, torch.float16, torch.uint8)
    for n, k in product(range(OUTPUTS), range(INPUTS)):
        if layout == "awq":
            code = by_output(layout, parts["qweight"], k, n)
        else:
            code = nibble(parts["qweight"], k // 8, n, k % 8)
        assert found.codes[n, k] == code
    for n, group in product(range(OUTPUTS), range(INPUTS // GROUP)):
        assert found.zeros[n, group] == by_output(layout, parts["qzeros"], group, n) + (layout == "gptq")
        assert found.scales[n, group] == parts["scales"][group, n]


def test_words_written_by_hand() -> None:
    """Codes 0 to 7 in a word; the zeros of the second output are 5."""
    awq = {"qweight": torch.full((8, 1), 0x75316420), "qzeros": torch.tensor([[0x00050000]])}
    gptq = {"qweight": torch.full((1, 8), 0x76543210), "qzeros": torch.tensor([[0x00000040]])}
    scales = {"scales": torch.ones(1, 8, dtype=torch.float16)}
    read = {
        layout: unpack(Quantization(layout, None), "m", {**{k: v.int() for k, v in parts.items()}, **scales})
        for layout, parts in (("awq", awq), ("gptq", gptq))
    }
    assert torch.equal(read["awq"].codes, torch.arange(8).to(torch.uint8)[:, None].expand(8, 8))
    assert torch.equal(read["gptq"].codes, torch.arange(8).to(torch.uint8).expand(8, 8))
    assert read["awq"].zeros[:, 0].tolist() == [0, 5, 0, 0, 0, 0, 0, 0]
    assert read["gptq"].zeros[:, 0].tolist() == [1, 5, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_packed_comes_back(layout: Layout) -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 16, (OUTPUTS, INPUTS)).astype(np.uint8)
    zeros = rng.integers(1 if layout == "gptq" else 0, 16, (OUTPUTS, INPUTS // GROUP)).astype(np.uint8)
    rounded = Rounded(codes, rng.standard_normal(zeros.shape).astype(np.float16), zeros)
    parts = {name: torch.from_numpy(value) for name, value in pack(rounded, layout).items()}
    shapes = {name: tuple(part.shape) for name, part in parts.items() if name != "g_idx"}
    assert shapes == packed_shapes(Quantization(layout, GROUP), "m", OUTPUTS, INPUTS)
    found = unpack(Quantization(layout, GROUP), "m", parts)
    assert np.array_equal(found.codes.numpy(), rounded.codes)
    assert np.array_equal(found.zeros.numpy(), rounded.zeros)
    assert np.array_equal(found.scales.numpy(), rounded.scales)
    assert same_bits(found.dequantized().float().numpy(), rounded.values())


def test_every_code_zero_and_scale_gives_the_rounded_product() -> None:
    """All 256 pairs with scales of all sizes, subnormal and negative ones too, against exact rational arithmetic."""
    codes = np.tile(np.arange(16, dtype=np.uint8), (16, 1))
    zeros = np.arange(16, dtype=np.uint8)[:, None]
    rng = np.random.default_rng(0)
    scales = rng.integers(0, 0x7C00, 60).astype(np.uint16) | (rng.integers(0, 2, 60) << 15).astype(np.uint16)
    for scale in [*scales.view(np.float16), np.float16(6e-8), np.float16(65504)]:
        column = np.full((16, 1), scale)
        weight = Quantized(*(torch.from_numpy(part) for part in (codes, column, zeros)), group=16)
        exact = (codes.astype(np.float64) - zeros) * np.float64(scale)
        # Rounding a float64 through float32 is once only if the product fits into float32.
        assert np.array_equal(exact.astype(np.float32), exact)
        assert np.array_equal(
            weight.dequantized().float().numpy(), torch.from_numpy(exact).float().bfloat16().float().numpy()
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_weight_packed_for_the_gpu_is_the_same(layout: Layout) -> None:
    """Groups of 32 and more: the kernel's."""
    parts = random_parts(layout)
    halved = {**parts, "qzeros": parts["qzeros"][::2], "scales": parts["scales"][::2]}
    found = read(halved, Quantization(layout, 2 * GROUP))
    packed = pack_w4(found.codes, found.scales, found.zeros, found.group)
    assert torch.equal(dequantize(packed), found.dequantized())


@cache
def _rounded_logits(family: ModelType, group: int, home: Path) -> NDArray[np.float32]:
    return logits_of(rounded_folder(tiny_folder(family), home, group=group))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rounded")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("family", "group"), [("llama", 32), ("qwen2", 16), ("qwen3", -1)])
def test_logits_are_those_of_the_float_checkpoint_of_the_same_values(
    layout: Layout, family: ModelType, group: int, home: Path, tmp_path: Path
) -> None:
    folder = quantized_folder(tiny_folder(family), tmp_path / "packed", layout, group=group)
    expected = _rounded_logits(family, group, home / f"{family}{group}")
    assert same_bits(logits_of(folder), expected)
    assert not same_bits(expected, logits_of(tiny_folder(family)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_modules_left_as_floats_and_a_quantised_head(layout: Layout, tmp_path: Path) -> None:
    """v stays a float within the fused q, k, v, and so does all of the second MLP; the head is in 4 bits."""

    def chosen(name: str) -> bool:
        float_ones = "v_proj" in name or "layers.1.mlp" in name
        return (is_projection(name) and not float_ones) or name == "lm_head.weight"

    origin = tiny_folder("qwen3")
    words: dict[str, object] = {"modules_to_not_convert": ["v_proj", "layers.1.mlp"], "lm_head": True}
    folder = quantized_folder(origin, tmp_path / "packed", layout, chosen=chosen, settings=words)
    names = load_file(folder / "model.safetensors")
    assert {"lm_head.qweight", "model.layers.0.self_attn.v_proj.weight"} <= set(names)
    assert same_bits(logits_of(folder), logits_of(rounded_folder(origin, tmp_path / "floats", chosen=chosen)))


def test_a_symmetric_gptq_checkpoint(tmp_path: Path) -> None:
    folder = quantized_folder(tiny_folder(), tmp_path / "packed", "gptq", symmetric=True)
    assert same_bits(logits_of(folder), logits_of(rounded_folder(tiny_folder(), tmp_path / "floats", symmetric=True)))


def test_codes_and_floats_are_read_by_module(tmp_path: Path) -> None:
    folder = quantized_folder(tiny_folder(), tmp_path / "packed", "awq", chosen=lambda name: name == f"{UP}.weight")
    config = read_config(folder)
    assert config.quantization == Quantization("awq", 32)
    checkpoint = Checkpoint(folder, config.quantization)
    codes = checkpoint.codes(UP, 128, 64)
    assert codes is not None
    assert (codes.codes.shape, codes.zeros.shape, codes.group) == ((128, 64), (128, 2), 32)
    assert checkpoint.codes(UP.replace("up", "gate"), 128, 64) is None
    floats = checkpoint.tensor(f"{UP}.weight", 128, 64)
    assert floats.dtype == torch.float32
    assert torch.equal(checkpoint.tensor(f"{UP}.weight", 128, 64, dtype=torch.bfloat16), codes.dequantized())
    assert torch.equal(floats, codes.dequantized().float())
    norm = load_file(folder / "model.safetensors")["model.norm.weight"]
    assert torch.equal(checkpoint.tensor("model.norm.weight", 64, dtype=torch.bfloat16), norm.to(torch.bfloat16))
    with pytest.raises(UnsupportedModel, match=r"up_proj\.qweight has shape"):
        checkpoint.codes(UP, 256, 64)
    with pytest.raises(UnsupportedModel, match="has no quantization_config"):
        Checkpoint(folder).codes(UP, 128, 64)


def test_the_numerics_name_tells_layouts_and_floats_apart(tmp_path: Path) -> None:
    packed = [quantized_folder(tiny_folder(), tmp_path / layout, layout) for layout in LAYOUTS]
    folders = [*packed, rounded_folder(tiny_folder(), tmp_path / "floats")]
    names = [TorchRunner.load(folder, vocab_size=VOCAB).numerics_id for folder in folders]
    assert len(set(names)) == len(names)
    assert TorchRunner.load(packed[0], vocab_size=VOCAB).numerics_id == names[0]
    assert json.loads(json.dumps(asdict(read_config(packed[0]))))["quantization"]["layout"] == "awq"


SERVED = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, Quantization("awq", 128)),
    (
        {
            **{"quant_method": "awq", "bits": 4, "group_size": 64, "version": "GEMM", "backend": "autoawq"},
            **{"sym": True, "desc_act": True, "meta": {"quantizer": ["gptqmodel:5.0.0"]}},
        },
        Quantization("awq", 64),
    ),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, Quantization("gptq", 128, symmetric=True)),
    (
        {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": True, "is_marlin_format": False},
        Quantization("gptq", None, desc_act=True),
    ),
    (
        {**settings_of("gptq", 32), "meta": {"quantizer": ["optimum:1.24.0", "gptqmodel:2.0.0"]}},
        Quantization("gptq", 32, carries=True),
    ),
    ({**settings_of("gptq_v2", 32), "format": "gptq"}, Quantization("gptq_v2", 32)),
    ({**settings_of("gptq", 32), "meta": {"quantizer": "auto_gptq:0.7.1"}}, Quantization("gptq", 32)),
]


@pytest.mark.parametrize(("table", "expected"), SERVED)
def test_settings_as_the_tools_write_them(table: dict[str, object], expected: Quantization) -> None:
    assert parse_quantization({"quantization_config": table}) == expected


@pytest.mark.parametrize("settings", [{}, {"quantization_config": None}, {"quantization_config": {}}])
def test_floats_have_no_quantization(settings: dict[str, object]) -> None:
    assert parse_quantization(settings) is None


AWQ, GPTQ = settings_of("awq", 128), settings_of("gptq", 128)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantization_config": {**AWQ, "bits": 8}}, "bits as 8; only 4"),
        ({"quantization_config": {**GPTQ, "bits": 3}}, "bits as 3; only 4"),
        ({"quantization_config": {**GPTQ, "bits": None}}, "bits as None"),
        ({"quantization_config": {**AWQ, "version": "gemv_fast"}}, "awq weights of version 'gemv_fast'.*gemm are"),
        ({"quantization_config": {**AWQ, "version": "marlin"}}, "version 'marlin'"),
        ({"quantization_config": {**AWQ, "zero_point": False}}, "zero_point false"),
        ({"quantization_config": {**AWQ, "backend": "llm-awq"}}, "llm-awq"),
        ({"quantization_config": {**GPTQ, "checkpoint_format": "marlin"}}, "checkpoint_format 'marlin'.*gptq_v2 are"),
        ({"quantization_config": {**GPTQ, "is_marlin_format": True}}, "is_marlin_format"),
        ({"quantization_config": {**GPTQ, "pack_dtype": "int64"}}, "'int64'"),
        ({"quantization_config": {**GPTQ, "group_size": 0}}, "group_size as 0"),
        ({"quantization_config": {**GPTQ, "group_size": "128"}}, "group_size as '128'"),
        ({"quantization_config": {**GPTQ, "quant_method": "bitsandbytes"}}, "'bitsandbytes'; awq and gptq"),
        ({"quantization_config": {"bits": 4, "group_size": 64}}, "quant_method None"),
        ({"quantization_config": "awq"}, "an object is needed"),
        ({"quantization": {"bits": 4, "group_size": 64}}, "MLX"),
    ],
)
def test_what_is_not_served_is_refused_by_name(settings: dict[str, object], message: str) -> None:
    config = json.loads((tiny_folder() / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(UnsupportedModel, match=message):
        parse_config({**config, **settings})


def read(parts: dict[str, torch.Tensor], quantization: Quantization) -> Quantized:
    return unpack(quantization, "m", parts)


def test_activation_order_is_refused_only_where_it_reorders() -> None:
    parts = random_parts("gptq_v2")
    plain = read(parts, Quantization("gptq_v2", GROUP))
    in_order = {**parts, "g_idx": (torch.arange(INPUTS) // GROUP).int()}
    static = read(in_order, Quantization("gptq_v2", GROUP, desc_act=True))
    assert torch.equal(static.codes, plain.codes)
    swapped = in_order["g_idx"].clone()
    swapped[[3, 40]] = swapped[[40, 3]]
    with pytest.raises(UnsupportedModel, match=r"m has its inputs in activation order \(desc_act, g_idx\)"):
        read({**parts, "g_idx": swapped}, Quantization("gptq_v2", GROUP))
    with pytest.raises(UnsupportedModel, match="activation order"):
        read(parts, Quantization("gptq_v2", GROUP, desc_act=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_group_over_all_inputs(layout: Layout) -> None:
    parts = random_parts(layout)
    found = read({**parts, "qzeros": parts["qzeros"][:1], "scales": parts["scales"][:1]}, Quantization(layout, None))
    assert (found.group, found.scales.shape, found.zeros.shape) == (INPUTS, (OUTPUTS, 1), (OUTPUTS, 1))
    assert (found.scales.stride(), found.zeros.stride()) == ((1, 1), (1, 1))
    assert torch.equal(found.scales[:, 0], parts["scales"][0])


def test_zeros_that_v1_cannot_hold_are_read_only_from_a_tool_that_carries() -> None:
    """GPTQModel subtracts one from whole words; others leave 15 or worse where a zero is 0."""
    parts = random_parts("gptq_v2")
    zeros = read(parts, Quantization("gptq_v2", GROUP)).zeros
    assert bool((zeros == 0).any())
    lowered = {**parts, "qzeros": parts["qzeros"] - 0x11111111}
    assert torch.equal(read(lowered, Quantization("gptq", GROUP, carries=True)).zeros, zeros)
    with pytest.raises(UnsupportedModel, match=r"m\.qzeros has zero points that the gptq format cannot hold"):
        read(lowered, Quantization("gptq", GROUP))


def test_a_symmetric_checkpoint_with_other_zeros_than_8_is_refused() -> None:
    """Such as one that says v1 and stores v2."""
    stored: dict[Layout, int] = {"gptq": 0x77777777, "gptq_v2": 0x88888888 - 2**32}
    for layout, says in product(stored, stored):
        parts = {**random_parts("gptq"), "qzeros": torch.full((INPUTS // GROUP, OUTPUTS // 8), stored[layout]).int()}
        quantization = parse_quantization({"quantization_config": {**settings_of(says, GROUP), "sym": True}})
        assert quantization is not None
        if layout == says:
            assert bool((read(parts, quantization).zeros == 8).all())
        else:
            with pytest.raises(UnsupportedModel, match=r"m\.qzeros differs from 8"):
                read(parts, quantization)


def test_scales_are_read_from_any_float_that_float16_holds() -> None:
    parts = random_parts("awq")
    coarse = parts["scales"].to(torch.bfloat16)
    expected = coarse.to(torch.float16)
    assert torch.equal(read({**parts, "scales": coarse}, Quantization("awq", GROUP)).scales, expected.t())
    for value in (1e-6, 1e9, float("nan"), float("inf")):
        coarse[0, 0] = value
        with pytest.raises(UnsupportedModel, match=r"m\.scales .* no float16 is"):
            read({**parts, "scales": coarse}, Quantization("awq", GROUP))
    for part, words in (("scales", r"m\.scales is torch.int32"), ("qweight", r"m\.qweight is torch.float32")):
        other = torch.int32 if part == "scales" else torch.float32
        with pytest.raises(UnsupportedModel, match=words):
            read({**parts, part: parts[part].to(other)}, Quantization("awq", GROUP))


def test_broken_checkpoints_are_refused_when_they_are_loaded(tmp_path: Path) -> None:
    folder = quantized_folder(tiny_folder(), tmp_path / "packed", "gptq")
    tensors = load_file(folder / "model.safetensors")

    def refused(message: str, **changed: torch.Tensor | None) -> None:
        stored = {**tensors, **{f"{UP}.{part}": value for part, value in changed.items()}}
        save_file({k: v for k, v in stored.items() if v is not None}, folder / "model.safetensors")
        with pytest.raises(UnsupportedModel, match=message):
            TorchRunner.load(folder, vocab_size=VOCAB)

    refused(r"no tensor model\.layers\.1\.mlp\.up_proj\.scales", scales=None)
    refused(r"up_proj\.qweight has shape", qweight=tensors[f"{UP}.qweight"].repeat(2, 1))
    refused(r"up_proj has its inputs in activation order", g_idx=tensors[f"{UP}.g_idx"].flip(0))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"]["group_size"] = 48
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    refused(r"q_proj of 64 outputs and 64 inputs does not divide .* groups of 48")
