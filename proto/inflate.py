"""Decompression of bytes from strangers: exact length, bounded memory, one error.

Sizes that a frame claims are never believed. The output is produced piece by piece and given up as soon as it is
longer than the caller allows, so that a kilobyte which unpacks to gigabytes costs no more than that.
"""

from __future__ import annotations

import zlib
from typing import Final

import zstandard

from acespec.proto.dictionary import LEVEL
from acespec.proto.errors import BadFrame

_SLICE: Final = 64  # a zstd block of 4 bytes may unpack to 128 KiB: this much input gives at most 2 MiB at once
_LARGEST_WINDOW: Final = 1 << 23  # what our level uses at most; a larger one is refused before it is allocated


def deflate(data: bytes) -> bytes:
    """`data` as one raw deflate stream (RFC 1951), as small as zlib makes it."""
    compressor = zlib.compressobj(level=9, wbits=-15, memLevel=9)
    return compressor.compress(data) + compressor.flush()


def inflate(data: bytes, limit: int) -> bytes:
    """What `deflate` was given. Raises BadFrame for anything else and for more than `limit` bytes."""
    decompressor = zlib.decompressobj(wbits=-15)
    try:
        out = decompressor.decompress(data, limit + 1)
    except zlib.error as error:
        raise BadFrame(f"the deflate stream is damaged: {error}") from error
    _check_end(len(out), limit, ended=decompressor.eof, rest=decompressor.unused_data)
    return out


def zstd(data: bytes, dictionary: zstandard.ZstdCompressionDict | None = None) -> bytes:
    """`data` as one zstd frame (RFC 8878) without magic number, size or checksum: 9 bytes less."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL,
        source_size=len(data),
        dict_size=len(dictionary) if dictionary else 0,  # without it the window would not reach the dictionary
        format=zstandard.FORMAT_ZSTD1_MAGICLESS,
        write_content_size=False,
        write_checksum=False,
        write_dict_id=True,
    )
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters).compress(data)


def unzstd(data: bytes, limit: int, dictionary: zstandard.ZstdCompressionDict | None = None) -> bytes:
    """What `zstd` was given. Raises BadFrame for anything else and for more than `limit` bytes."""
    decompressor = zstandard.ZstdDecompressor(
        dict_data=dictionary, max_window_size=_LARGEST_WINDOW, format=zstandard.FORMAT_ZSTD1_MAGICLESS
    ).decompressobj()
    out = bytearray()
    rest = b""
    try:
        for start in range(0, len(data), _SLICE):
            out += decompressor.decompress(data[start : start + _SLICE])
            if decompressor.eof or len(out) > limit:
                rest = decompressor.unused_data + data[start + _SLICE :]
                break
    except zstandard.ZstdError as error:
        raise BadFrame(f"the zstd frame is damaged: {error}") from error
    _check_end(len(out), limit, ended=decompressor.eof, rest=rest)
    return bytes(out)


def _check_end(size: int, limit: int, *, ended: bool, rest: bytes) -> None:
    if size > limit:
        raise BadFrame(f"compressed bytes unpack to more than the {limit} bytes that are allowed")
    if not ended:
        raise BadFrame("compressed bytes are cut short")
    if rest:
        raise BadFrame(f"{len(rest)} bytes follow the compressed ones")
