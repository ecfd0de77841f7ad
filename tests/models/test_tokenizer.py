"""Encoding, decoding, the fingerprint, and the end tokens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.models.text_stream import TextStream
from acespec.models.token_bytes import BYTE_OF_CHARACTER
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import IntegrityError, ModelNotFound, UnsupportedModel
from tests.tiny import tiny_model_folder, write_tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> Tokenizer:
    return Tokenizer.load(tiny)


@given(st.text())
def test_any_text_survives(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text


def test_alphabet_is_the_library_s() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert set(BYTE_OF_CHARACTER) == set(ByteLevel.alphabet())
    assert sorted(BYTE_OF_CHARACTER.values()) == list(range(256))
    spelt = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("a é\x00\n今")[0][0]
    assert bytes(BYTE_OF_CHARACTER[c] for c in spelt) == "a é\x00\n今".encode()


@given(st.lists(st.integers(0, 511), max_size=40), st.booleans())
def test_decoding_agrees_with_the_library(tiny: Path, tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    from tokenizers import Tokenizer as Encoder

    assert tokenizer.decode(ids, skip) == Encoder.from_file(str(tiny / "tokenizer.json")).decode(ids, skip)


def test_special_tokens_are_parsed_never_added(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<|im_start|>") == [1]
    assert tokenizer.encode("") == []
    assert tokenizer.prefix_ids == ()
    assert tokenizer.decode([1, 2]) == ""
    assert tokenizer.decode([1, 2], skip_special=False) == "<|im_start|><|im_end|>"
    assert tokenizer.is_special(2)
    assert not tokenizer.is_special(3)
    assert tokenizer.token_bytes(2) == b""


def test_ids_without_a_token_are_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 512
    for token_id in (-1, 512, 10**9):
        assert tokenizer.token_bytes(token_id) == b""
        assert not tokenizer.is_special(token_id)


@given(st.data())
def test_stream_joins_to_the_whole(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, 515), max_size=60))
    stream, shown, at = TextStream(tokenizer), [], 0
    while at < len(ids):
        step = data.draw(st.integers(1, 5))
        shown.append(stream.push(ids[at : at + step]))
        at += step
    assert "".join([*shown, stream.flush()]) == tokenizer.decode(ids)


def test_stream_holds_back_part_of_a_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🙂")
    assert len(ids) == 4
    stream = TextStream(tokenizer)
    assert [stream.push([i]) for i in ids] == ["", "", "", "🙂"]
    assert stream.push(ids[:2]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.push(tokenizer.encode("a")) == "a"


def copy_with(tiny: Path, target: Path, change: Callable[[dict], None]) -> Tokenizer:  # type: ignore[type-arg]
    shutil.copytree(tiny, target)
    description = json.loads((target / "tokenizer.json").read_text())
    change(description)
    (target / "tokenizer.json").write_text(json.dumps(description))
    return Tokenizer.load(target)


def test_fingerprint_ignores_layout(tiny: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    def relayout(description: dict) -> None:  # type: ignore[type-arg]
        model = description["model"]
        model["merges"] = [" ".join(merge) for merge in model["merges"]]
        model["vocab"] = dict(sorted(model["vocab"].items()))

    assert len(tokenizer.fingerprint) == 16
    assert copy_with(tiny, tmp_path / "a", relayout).fingerprint == tokenizer.fingerprint
    assert Tokenizer.load(tiny).fingerprint == tokenizer.fingerprint


def test_fingerprint_sees_every_change_of_meaning(tiny: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    def swap_two_tokens(description: dict) -> None:  # type: ignore[type-arg]
        vocab = description["model"]["vocab"]
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]

    def swap_two_merges(description: dict) -> None:  # type: ignore[type-arg]
        merges = description["model"]["merges"]
        merges[-1], merges[-2] = merges[-2], merges[-1]

    def make_ordinary(description: dict) -> None:  # type: ignore[type-arg]
        description["added_tokens"][0]["special"] = False

    def add_token(description: dict) -> None:  # type: ignore[type-arg]
        description["added_tokens"].append({**description["added_tokens"][0], "id": 512, "content": "<x>"})

    changes = (swap_two_tokens, swap_two_merges, make_ordinary, add_token)
    prints = {copy_with(tiny, tmp_path / change.__name__, change).fingerprint for change in changes}
    assert len(prints | {tokenizer.fingerprint}) == 5


def test_end_ids_unite_the_three_places(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 5]}')
    assert Tokenizer.load(folder).eos_ids == (7, 5, 2)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text("{}")
    assert Tokenizer.load(folder).eos_ids == (2,)


def sentencepiece_folder(folder: Path) -> Path:
    from tokenizers import Tokenizer as Encoder
    from tokenizers import decoders, models, normalizers

    vocab = {"<unk>": 0} | {f"<0x{b:02X}>": b + 1 for b in range(256)} | {"▁": 257, "▁a": 258, "a": 259, "é": 260}
    encoder = Encoder(models.BPE(vocab=vocab, merges=[("▁", "a")], byte_fallback=True, unk_token="<unk>"))
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    encoder.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    folder.mkdir()
    encoder.save(str(folder / "tokenizer.json"))
    return folder


@given(st.text(st.sampled_from("a é今\n"), max_size=12))
def test_byte_fallback_vocabularies_decode_as_the_library_does(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    from tokenizers import Tokenizer as Encoder

    folder = tmp_path_factory.getbasetemp() / "sentencepiece"
    tokenizer = Tokenizer.load(folder if folder.exists() else sentencepiece_folder(folder))
    ids = tokenizer.encode(text)
    stream = TextStream(tokenizer)
    assert tokenizer.decode(ids) == Encoder.from_file(str(folder / "tokenizer.json")).decode(ids)
    assert "".join([*(stream.push([i]) for i in ids), stream.flush()]) == tokenizer.decode(ids)


def test_broken_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(IntegrityError, match="not valid JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"decoder": {"type": "WordPiece"}}')
    with pytest.raises(UnsupportedModel, match="cannot spell every text"):
        Tokenizer.load(tmp_path)
    write_tiny_tokenizer(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text().replace('"BPE"', '"Nothing"')
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UnsupportedModel, match="fetch it again"):
        Tokenizer.load(tmp_path)
