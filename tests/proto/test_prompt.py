"""Prompt compression: every method round-trips, the smallest is chosen, and no bytes can hurt the receiver."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acespec.proto import inflate, train_dictionary
from acespec.proto.bits import varint
from acespec.proto.dictionary import prompt_dictionary
from acespec.proto.errors import BadFrame
from acespec.proto.prompt import BYTES_OF_TEXT_PER_ID, Method, all_forms, pack_ids, unpack_ids

VOCABULARIES = st.sampled_from([1, 2, 300, 49_152, 65_536, 65_537, 151_936])
WORDS = ["Write", " a", " short", " story", " about", " the", " of", " and", ".", "\n", " é", " 你", "\ufffd"]


def encode(text: str) -> list[int]:
    """A tokenizer of UTF-8 bytes, words of `WORDS` taken whole where they stand."""
    ids: list[int] = []
    rest = text
    while rest:
        word = next((w for w in WORDS if rest.startswith(w)), None)
        if word is None:
            ids += rest[0].encode()
            rest = rest[1:]
        else:
            ids.append(256 + WORDS.index(word))
            rest = rest[len(word) :]
    return ids


def frame(method: int, count: int, payload: bytes) -> bytes:
    return bytes([method]) + varint(count) + payload


@st.composite
def prompts(draw: st.DrawFn) -> tuple[list[int], int]:
    vocab_size = draw(VOCABULARIES)
    ids = draw(st.lists(st.integers(0, vocab_size - 1), max_size=60))
    return ids * draw(st.integers(1, 20)), vocab_size


@given(prompts())
def test_roundtrip(prompt: tuple[list[int], int]) -> None:
    ids, vocab_size = prompt
    data = pack_ids(ids, vocab_size)
    assert unpack_ids(data, vocab_size, max_tokens=len(ids)) == ids
    assert len(data) <= 4 + (len(ids) * 18 + 7) // 8


@given(prompts())
def test_every_method_roundtrips(prompt: tuple[list[int], int]) -> None:
    ids, vocab_size = prompt
    if not ids:
        return
    for method, payload in all_forms(np.asarray(ids), vocab_size).items():
        assert unpack_ids(frame(method, len(ids), payload), vocab_size, len(ids)) == ids


@given(st.text(max_size=200))
def test_text_roundtrips_whatever_it_is(text: str) -> None:
    ids = encode(text) if text.isascii() else [1, 2, 3]
    assert unpack_ids(pack_ids(ids, 300, text=text, encode=encode), 300, 1000, encode=encode) == ids


def test_text_is_chosen_where_it_is_smallest_and_only_if_it_gives_the_ids() -> None:
    text = "Write a Python function that takes a list of numbers as input and returns the second largest one."
    ids = encode(text)
    data = pack_ids(ids, 300, text=text, encode=encode)
    assert data[0] == Method.TEXT
    assert len(data) < len(text) / 3
    assert unpack_ids(data, 300, 1000, encode=encode) == ids
    other = [*ids[:-1], 0]
    assert pack_ids(other, 300, text=text, encode=encode)[0] != Method.TEXT
    assert pack_ids(ids, 300, text=text + "\ud800", encode=encode)[0] != Method.TEXT
    assert pack_ids(ids, 300, text=text)[0] != Method.TEXT


def test_text_too_long_for_its_ids_is_not_sent_as_text() -> None:
    ids = list(range(31))
    longest = "a" * (BYTES_OF_TEXT_PER_ID * len(ids))
    assert pack_ids(ids, 300, text=longest, encode=lambda _: ids)[0] == Method.TEXT
    assert pack_ids(ids, 300, text=longest + "a", encode=lambda _: ids)[0] != Method.TEXT


def test_long_prompts_are_compressed_and_patternless_ones_packed() -> None:
    pattern = list(range(100)) * 20
    assert len(pack_ids(pattern, 49_152)) < 600
    noise = np.random.default_rng(0).integers(0, 49_152, 500).tolist()
    assert len(pack_ids(noise, 49_152)) == 1 + 2 + 1000
    assert pack_ids([], 49_152) == b""
    assert unpack_ids(b"", 49_152, 0) == []


def test_known_bytes() -> None:
    bits = "101001011000000010" + "000000"
    packed = int(bits, 2).to_bytes(3, "big")
    assert unpack_ids(frame(0, 3, packed), 64, 3) == [41, 24, 2]
    assert pack_ids([41, 24, 2], 64) == frame(0, 3, packed)
    assert unpack_ids(frame(3, 2, inflate.deflate(b"\x01\x02\x03\x04\x05\x00")), 100_000_000, 2) == [197_121, 1284]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "varint"),
        (frame(0, 0, b""), "1 to 100"),
        (frame(0, 101, bytes(300)), "1 to 100"),
        (frame(9, 1, b"\x00\x00"), "unknown"),
        (frame(0, 2, bytes(2)), "2 bytes came"),
        (frame(0, 2, bytes(4)), "4 bytes came"),
        (frame(0, 1, b"\xff\x80"), "outside the vocabulary"),
        (frame(0, 1, b"\x00\x01"), "padding"),
        (frame(1, 2, inflate.zstd(bytes(3))), "3 bytes of ids"),
        (frame(1, 2, inflate.zstd(bytes(5))), "more than the 4"),
        (frame(1, 2, inflate.zstd(bytes(4)) + b"x"), "follow"),
        (frame(1, 2, inflate.zstd(bytes(4))[:-1]), "cut short|damaged"),
        (frame(1, 2, b""), "cut short"),
        (frame(1, 1, inflate.zstd(b"\xff\xff")), "outside the vocabulary"),
        (frame(3, 2, inflate.deflate(bytes(3))), "3 bytes of ids"),
        (frame(3, 2, inflate.deflate(bytes(5))), "more than the 4"),
        (frame(3, 2, inflate.deflate(bytes(4)) + b"x"), "follow"),
        (frame(3, 2, inflate.deflate(bytes(4))[:-1]), "cut short"),
        (frame(3, 2, b"\xff\xff"), "damaged"),
        (frame(2, 1, inflate.zstd(b"\xff", prompt_dictionary())), "UTF-8"),
        (frame(2, 2, inflate.zstd(b"a", prompt_dictionary())), "tokenizers differ"),
        (frame(2, 1, inflate.zstd(b"a" * 17, prompt_dictionary())), "more than the 16"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        unpack_ids(data, 300, 100, encode=encode)


def test_text_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(BadFrame, match="send it as ids"):
        unpack_ids(frame(2, 1, inflate.zstd(b"a", prompt_dictionary())), 300, 100)


@pytest.mark.parametrize("bad", [[300], [-1], [5, 300]])
def test_ids_outside_the_vocabulary_are_not_packed(bad: list[int]) -> None:
    with pytest.raises(BadFrame, match="outside the vocabulary of 300"):
        pack_ids(bad, 300)


@given(method=st.integers(0, 5), count=st.integers(0, 200), payload=st.binary(max_size=80), vocab_size=VOCABULARIES)
@settings(max_examples=400)
@example(method=1, count=200, payload=bytes(80), vocab_size=300)
def test_any_bytes_give_ids_or_a_bad_frame(method: int, count: int, payload: bytes, vocab_size: int) -> None:
    for data in (payload, frame(method, count, payload)):
        try:
            ids = unpack_ids(data, vocab_size, 100, encode=encode)
        except BadFrame:
            continue
        assert len(ids) <= 100
        assert all(0 <= token < max(vocab_size, 300) for token in ids)


@given(data=st.data(), flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=3))
def test_damaged_frames_give_ids_or_a_bad_frame(data: st.DataObject, flips: list[tuple[int, int]]) -> None:
    text = "Write a short story about the sea and the wind, and of what they say."
    ids = encode(text)
    payloads = {**all_forms(np.asarray(ids), 300), Method.TEXT: inflate.zstd(text.encode(), prompt_dictionary())}
    method = data.draw(st.sampled_from(list(Method)))
    damaged = bytearray(frame(method, len(ids), payloads[method]))
    for place, change in flips:
        damaged[place % len(damaged)] ^= change
    try:
        unpack_ids(bytes(damaged), 300, 500, encode=encode)
    except BadFrame:
        return


def zstd_bomb(size: int) -> bytes:
    return inflate.zstd(bytes(size))


def lying_zstd_bomb(size: int) -> bytes:
    """A frame that claims 10 bytes of content (RFC 8878, 3.1.1) and holds blocks of one repeated byte."""
    block = (1 << 17) << 3 | 1 << 1
    blocks = (size >> 17) * (block.to_bytes(3, "little") + b"\x00")
    return bytes([0b0010_0000, 10]) + blocks + (1).to_bytes(3, "little")


def window_bomb(_: int) -> bytes:
    """A frame that wants a window of 2 GiB."""
    return bytes([0b0000_0000, (31 - 10) << 3]) + bytes(20)


@pytest.mark.parametrize("bomb", [zstd_bomb, lying_zstd_bomb, window_bomb])
@pytest.mark.parametrize("method", [Method.ZSTD, Method.TEXT])
def test_zstd_bombs_are_given_up_early(bomb: Callable[[int], bytes], method: Method) -> None:
    data = frame(method, 100, bomb(1 << 28))
    assert len(data) < 30_000
    assert _peak_memory_of_refusal(data) < 24 << 20


def test_deflate_bombs_are_given_up_early() -> None:
    data = frame(Method.DEFLATE, 100, inflate.deflate(bytes(1 << 26)))
    assert _peak_memory_of_refusal(data) < 1 << 20


def test_many_announced_ids_cost_nothing_until_they_come() -> None:
    data = frame(Method.PACKED, 2**32 - 1, b"")
    assert _peak_memory_of_refusal(data, max_tokens=2**32) < 1 << 20


def _peak_memory_of_refusal(data: bytes, max_tokens: int = 100) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame):
            unpack_ids(data, 49_152, max_tokens, encode=encode)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_shipped_dictionary_is_made_of_our_texts_and_pays() -> None:
    dictionary = prompt_dictionary()
    assert dictionary.dict_id() == train_dictionary.DICTIONARY_ID
    assert dictionary.as_bytes().endswith(train_dictionary.content())
    assert train_dictionary.entropy_tables()[:8] == dictionary.as_bytes()[:8]
    prompt = b"Please summarize the following article in two sentences, and explain why the results are important."
    assert len(inflate.zstd(prompt, dictionary)) < 0.6 * len(inflate.zstd(prompt))


def test_a_frame_of_another_dictionary_is_refused() -> None:
    ours = prompt_dictionary().as_bytes()
    other = zstandard.ZstdCompressionDict(ours[:4] + (2).to_bytes(4, "little") + ours[8:])
    with pytest.raises(BadFrame, match="damaged"):
        unpack_ids(frame(Method.TEXT, 5, inflate.zstd(b"Write a short story", other)), 300, 100, encode=encode)
