"""Prompt ids as bytes: several methods are tried and the smallest result is sent.

    byte     method
    varint   number of ids, at least one (no ids at all are no bytes at all)
    rest     what the method makes of them:
      PACKED    ceil(log2 V) bits an id, zeros up to the byte
      ZSTD      zstd of the ids as 16-bit little endian numbers (24-bit if V > 65536)
      TEXT      zstd, with the shipped dictionary, of the UTF-8 text that the tokenizer turns into exactly these ids
      DEFLATE   deflate of the ids as for ZSTD

No method wins everywhere (bench/prompt_compression.py, SmolLM2 ids): below 32 tokens PACKED mostly does, at 32 to 128
TEXT, beyond that compressed ids, at 11.5 bits an id where packing takes 16. An adaptive arithmetic code of ids would
take about 10, but in Python it costs both ends more time than it saves on all but the slowest links.

The decoder is total: any bytes give ids or `BadFrame`, and what they may unpack to is bounded beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from acespec.proto.bits import read_varint, varint
from acespec.proto.dictionary import prompt_dictionary
from acespec.proto.errors import BadFrame
from acespec.proto.inflate import deflate, inflate, unzstd, zstd
from acespec.proto.nodes import token_bits

Encode = Callable[[str], list[int]]
"""Text to ids, without any token added: the tokenizer that both ends share."""

BYTES_OF_TEXT_PER_ID = 16
"""Text longer than this times its ids is not sent as text, so that the receiver can bound it."""


class Method(IntEnum):
    """How the ids are written."""

    PACKED = 0
    ZSTD = 1
    TEXT = 2
    DEFLATE = 3


def pack_ids(ids: Sequence[int], vocab_size: int, *, text: str | None = None, encode: Encode | None = None) -> bytes:
    """The smallest form of `ids`.

    Args:
        ids: token ids, each 0 .. vocab_size-1.
        vocab_size: at most 2^24; both ends know it.
        text: text that may encode to `ids`; used only if it does.
        encode: the tokenizer that says so.

    Raises:
        BadFrame: an id is outside the vocabulary.
    """
    if not ids:
        return b""
    array = np.asarray(ids, np.int64)
    _check_range(array, vocab_size)
    forms = all_forms(array, vocab_size)
    if text is not None and encode is not None and _stands_for(text, ids, encode):
        forms[Method.TEXT] = zstd(text.encode(), prompt_dictionary())
    method = min(forms, key=lambda m: (len(forms[m]), m))
    return bytes([method]) + varint(len(ids)) + forms[method]


def unpack_ids(data: bytes, vocab_size: int, max_tokens: int, *, encode: Encode | None = None) -> list[int]:
    """The ids that `pack_ids` was given.

    Raises:
        BadFrame: undecodable bytes, an id outside the vocabulary, more than `max_tokens` ids, or text without `encode`.
    """
    if not data:
        return []
    count, offset = read_varint(data, 1)
    if not 1 <= count <= max_tokens:
        raise BadFrame(f"{count} ids are announced, 1 to {max_tokens} are allowed: shorten the prompt")
    payload = data[offset:]
    if data[0] == Method.TEXT:
        ids = _ids_of_text(payload, count, encode)
    else:
        ids = _ids_of_numbers(data[0], payload, count, vocab_size)
    _check_range(ids, vocab_size)
    return [int(token) for token in ids]


def all_forms(ids: NDArray[np.int64], vocab_size: int) -> dict[Method, bytes]:
    """The payload of every method that needs no text."""
    numbers = _to_little_endian(ids, vocab_size)
    return {
        Method.PACKED: _to_bits(ids, token_bits(vocab_size)),
        Method.ZSTD: zstd(numbers),
        Method.DEFLATE: deflate(numbers),
    }


def _stands_for(text: str, ids: Sequence[int], encode: Encode) -> bool:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form
        return False
    return size <= BYTES_OF_TEXT_PER_ID * len(ids) and encode(text) == list(ids)


def _ids_of_text(payload: bytes, count: int, encode: Encode | None) -> NDArray[np.int64]:
    if encode is None:
        raise BadFrame("the prompt came as text where only ids can be read: send it as ids")
    raw = unzstd(payload, BYTES_OF_TEXT_PER_ID * count, prompt_dictionary())
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadFrame(f"the prompt's text is not UTF-8: {error}") from error
    ids = np.asarray(encode(text), np.int64)
    if ids.size != count:
        raise BadFrame(f"the prompt's text gives {ids.size} ids here, {count} were announced: tokenizers differ")
    return ids


def _ids_of_numbers(method: int, payload: bytes, count: int, vocab_size: int) -> NDArray[np.int64]:
    if method == Method.PACKED:
        return _from_bits(payload, count, token_bits(vocab_size))
    size = count * _bytes_per_id(vocab_size)
    if method == Method.ZSTD:
        raw = unzstd(payload, size)
    elif method == Method.DEFLATE:
        raw = inflate(payload, size)
    else:
        raise BadFrame(f"prompt method {method} is unknown: the sender is newer than this end")
    if len(raw) != size:
        raise BadFrame(f"{len(raw)} bytes of ids came where {size} were announced")
    return _from_little_endian(raw, vocab_size)


def _check_range(ids: NDArray[np.int64], vocab_size: int) -> None:
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        raise BadFrame(f"token id {outside[0]} is outside the vocabulary of {vocab_size}")


def _bytes_per_id(vocab_size: int) -> int:
    return 2 if vocab_size <= 1 << 16 else 3


def _to_little_endian(ids: NDArray[np.int64], vocab_size: int) -> bytes:
    octets = ids.astype("<u4").view(np.uint8).reshape(-1, 4)
    return octets[:, : _bytes_per_id(vocab_size)].tobytes()


def _from_little_endian(raw: bytes, vocab_size: int) -> NDArray[np.int64]:
    width = _bytes_per_id(vocab_size)
    octets = np.frombuffer(raw, np.uint8).reshape(-1, width).astype(np.int64)
    return octets @ (np.int64(1) << 8 * np.arange(width, dtype=np.int64))


def _to_bits(ids: NDArray[np.int64], width: int) -> bytes:
    """`width` bits an id, most significant first."""
    return np.packbits((ids[:, None] >> np.arange(width)[::-1] & 1).astype(np.uint8)).tobytes()


def _from_bits(payload: bytes, count: int, width: int) -> NDArray[np.int64]:
    if len(payload) != (count * width + 7) // 8:
        raise BadFrame(f"{len(payload)} bytes came where {count} ids of {width} bits were announced")
    bits = np.unpackbits(np.frombuffer(payload, np.uint8))
    if bits[count * width :].any():
        raise BadFrame("the padding bits behind the last id are not zero")
    return bits[: count * width].reshape(count, width).astype(np.int64) @ (np.int64(1) << np.arange(width)[::-1])
