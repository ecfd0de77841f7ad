"""The bytes behind a token's printable form, for the two families of byte-complete BPE vocabularies.

Byte-level vocabularies (GPT-2, Llama 3, Qwen, SmolLM) spell each byte as one printable character: those that print
as themselves, and the other 68 moved up to U+0100 and beyond, in order. SentencePiece vocabularies (Llama 2) write
a space as U+2581 and a byte that is no character of its own as <0xNN>.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE_MARK = "\u2581"


def _byte_of_character() -> Mapping[str, int]:
    moved = (byte for byte in range(256) if byte not in _PRINTABLE)
    table = {chr(byte): byte for byte in _PRINTABLE}
    return MappingProxyType(table | {chr(0x100 + rank): byte for rank, byte in enumerate(moved)})


BYTE_OF_CHARACTER = _byte_of_character()


def byte_level_bytes(token: str) -> bytes:
    """Bytes of a byte-level token; a token that is not spelt in that alphabet stands for its own UTF-8."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """Bytes of a SentencePiece token with byte fallback."""
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace(SPACE_MARK, " ").encode()
