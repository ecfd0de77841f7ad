"""A converted GGUF file holds the numbers, the names and the tokens of the checkpoint that it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file

from acespec.models.gguf_config import _llama3_divisors
from acespec.models.gguf_convert import convert_gguf, unpermute
from acespec.models.info import ModelInfo
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import IntegrityError, UnsupportedModel
from tests.models.tiny_gguf import write_tiny_gguf
from tests.tiny import ModelType


def converted(source: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    convert_gguf(source, folder)
    return folder


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tie", [True, False])
def test_float_weights_come_back_bit_for_bit(tmp_path: Path, model_type: ModelType, tie: bool) -> None:
    source = write_tiny_gguf(tmp_path / "m.gguf", model_type=model_type, tie=tie)
    folder = converted(source, tmp_path / "out")
    original = load_file(source.with_suffix(".origin") / "model.safetensors")
    written = load_file(folder / "model.safetensors")
    assert written.keys() == original.keys()
    for name, values in original.items():
        np.testing.assert_array_equal(written[name], values, err_msg=name)


@pytest.mark.parametrize("quantisation", ["Q4_1", "Q4_0", "Q8_0", "F16", "BF16"])
def test_quantised_weights_are_the_dequantised_values_exactly(tmp_path: Path, quantisation: str) -> None:
    source = write_tiny_gguf(tmp_path / "m.gguf", quantisation=quantisation)
    folder = converted(source, tmp_path / "out")
    kind = GGMLQuantizationType[quantisation]
    original = load_file(source.with_suffix(".origin") / "model.safetensors")
    written = load_file(folder / "model.safetensors")
    for name, values in original.items():
        expected = dequantize(quantize(values, kind), kind) if values.ndim == 2 else values
        assert written[name].dtype == np.float32
        np.testing.assert_array_equal(written[name], expected.reshape(values.shape), err_msg=name)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_config_says_the_same_as_the_original(tmp_path: Path, model_type: ModelType) -> None:
    source = write_tiny_gguf(tmp_path / "m.gguf", model_type=model_type, tie=False)
    folder = converted(source, tmp_path / "out")
    expected = json.loads((source.with_suffix(".origin") / "config.json").read_text())
    written = json.loads((folder / "config.json").read_text())
    expected["eos_token_id"] = [2, 0]  # <|endoftext|> ends a text as well
    assert written == expected
    info = ModelInfo.read(folder)
    assert info.eos_ids == (2, 0)
    assert info.attention_bias is (model_type == "qwen2")


def test_unpermuted_rows_rotate_alike(tmp_path: Path) -> None:
    """Rotary scores of neighbour pairs on llama.cpp's rows equal those of half pairs on ours."""
    rng = np.random.default_rng(5)
    heads, width = 3, 8
    stored_q, stored_k = rng.standard_normal((2, heads * width)).astype(np.float32)
    ours_q, ours_k = (unpermute(rows[:, None], heads)[:, 0] for rows in (stored_q, stored_k))
    angles = 7 * 0.5 ** np.arange(width // 2)

    def rotate(vector: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        out = vector.copy()
        out[first] = vector[first] * np.cos(angles) - vector[second] * np.sin(angles)
        out[second] = vector[first] * np.sin(angles) + vector[second] * np.cos(angles)
        return out

    half, even = np.arange(width // 2), np.arange(0, width, 2)
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        neighbours = rotate(stored_q[part], even, even + 1) @ stored_k[part]
        halves = rotate(ours_q[part], half, half + width // 2) @ ours_k[part]
        assert neighbours == pytest.approx(halves, rel=1e-5)


TEXTS = ["", "The river 1987, isn't it?", "  a\n\n\tb  ", "<|im_start|>user\nÉté 今日<|im_end|>", "🙂👩‍👩‍👧 e\u0301"]


def test_tokenizer_reads_like_the_original(tmp_path: Path) -> None:
    source = write_tiny_gguf(tmp_path / "m.gguf")
    original = Tokenizer.load(source.with_suffix(".origin"))
    written = Tokenizer.load(converted(source, tmp_path / "out"))
    assert written.fingerprint == original.fingerprint
    for text in TEXTS:
        assert written.encode(text) == original.encode(text)
    chat = [{"role": "user", "content": "Hello"}]
    assert written.apply_chat(chat) == original.apply_chat(chat)


def test_pre_tokenizer_rules_differ_where_the_models_do(tmp_path: Path) -> None:
    def pieces(pre: str, text: str) -> list[str]:
        source = write_tiny_gguf(tmp_path / f"{pre}.gguf", pre=pre)
        folder = converted(source, tmp_path / pre)
        from tokenizers import Tokenizer as Encoder

        encoder = Encoder.from_file(str(folder / "tokenizer.json"))
        if encoder.normalizer is not None:
            text = encoder.normalizer.normalize_str(text)
        assert encoder.pre_tokenizer is not None
        return [text[begin:end] for _, (begin, end) in encoder.pre_tokenizer.pre_tokenize_str(text)]

    text = "it's 12345\n\n  x"
    assert pieces("gpt-2", text) == ["it", "'s", " 12345", "\n\n ", " x"]
    assert pieces("smollm", text) == ["it", "'s", " ", "1", "2", "3", "4", "5", "\n\n ", " x"]
    assert pieces("qwen2", text) == ["it", "'s", " ", "1", "2", "3", "4", "5", "\n\n", " ", " x"]
    assert pieces("llama-bpe", text) == ["it", "'s", " ", "123", "45", "\n\n", " ", " x"]
    assert pieces("qwen2", "e\u0301") == ["é"]


def test_begin_token_is_kept_apart_from_encoding(tmp_path: Path) -> None:
    source = write_tiny_gguf(tmp_path / "m.gguf", pre="llama-bpe")
    tokenizer = Tokenizer.load(converted(source, tmp_path / "out"))
    assert tokenizer.prefix_ids == (1,)
    assert 1 not in tokenizer.encode("Where does the road begin")


def test_llama3_rope_factors_become_their_parameters(tmp_path: Path) -> None:
    factors = np.array(_llama3_divisors(10000.0, 16, 32.0), dtype=np.float32)
    source = write_tiny_gguf(tmp_path / "m.gguf", rope_factors=factors)
    scaling = ModelInfo.read(converted(source, tmp_path / "out")).rope_scaling
    assert scaling["rope_type"] == "llama3"
    assert scaling["factor"] == 32.0
    with pytest.raises(UnsupportedModel, match="rope frequency factors"):
        converted(write_tiny_gguf(tmp_path / "n.gguf", rope_factors=factors[::-1].copy()), tmp_path / "bad")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"architecture": "gemma3"}, "'gemma3'; served are llama, qwen2, qwen3"),
        ({"pre": "tekken"}, "gpt2/tekken"),
        ({"extra": {"llama.expert_count": 8}}, "mixture of experts"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, "yarn rope scaling"),
        ({"extra": {"split.count": 2}}, "split"),
    ],
)
def test_what_is_not_served_is_refused_by_name(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    source = write_tiny_gguf(tmp_path / "m.gguf", **settings)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModel, match=words) as caught:
        converted(source, tmp_path / "out")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.3, 0.99])
def test_a_cut_file_is_no_whole_gguf(tmp_path: Path, kept: float) -> None:
    source = write_tiny_gguf(tmp_path / "m.gguf")
    content = source.read_bytes()
    source.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(IntegrityError, match="not a whole GGUF file"):
        converted(source, tmp_path / "out")


def test_a_file_of_something_else_is_no_gguf(tmp_path: Path) -> None:
    source = tmp_path / "m.gguf"
    source.write_bytes(b"PK\x03\x04" + bytes(range(256)) * 8)
    with pytest.raises(IntegrityError, match="fetch it again"):
        converted(source, tmp_path / "out")
