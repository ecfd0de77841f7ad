"""Make `prompt.zdict` from the two texts beside it: `python -m acespec.proto.train_dictionary`.

The texts are our own: phrases of prompts, prose and code, and common English words. A zstd dictionary (RFC 8878,
section 5) holds entropy tables to start with and content to copy from, and short prompts need both. The content is
the texts themselves, the phrases last, where zstd reaches them at the least cost. zstd's trainer would keep less than
half of them, so only its tables are taken, from a training on the same texts.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import zstandard

from acespec.proto.dictionary import FILE_NAME, LEVEL

DICTIONARY_ID: Final = 1
"""Raised whenever the dictionary changes: it travels in each frame."""

_FOLDER: Final = Path(__file__).parent
_PIECE: Final = 1600
_TRAINED_SIZE: Final = 16384
_LAST_OF_TABLES: Final = bytes((1, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0))  # the three offsets to start with

_log = logging.getLogger(__name__)


def content() -> bytes:
    """What frames can copy from."""
    return "\n".join((" ".join(_words().split("\n")), _phrases())).encode()


def entropy_tables() -> bytes:
    """The head of a dictionary trained on the texts: magic number, id, tables, offsets."""
    pieces: list[bytes | bytearray | memoryview[int]] = [
        piece.encode() for text in (*_phrases().split("\n\n"), *_words().split("\n")) for piece in _cut(text)
    ]
    trained = zstandard.train_dictionary(_TRAINED_SIZE, pieces, level=LEVEL, dict_id=DICTIONARY_ID).as_bytes()
    return trained[: trained.index(_LAST_OF_TABLES) + len(_LAST_OF_TABLES)]


def main() -> None:
    """Write the dictionary file."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dictionary = entropy_tables() + content()
    (_FOLDER / FILE_NAME).write_bytes(dictionary)
    _log.info("%s: %d bytes", FILE_NAME, len(dictionary))


def _phrases() -> str:
    return (_FOLDER / "dictionary_corpus.txt").read_text(encoding="utf-8")


def _words() -> str:
    return (_FOLDER / "dictionary_words.txt").read_text(encoding="utf-8")


def _cut(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


if __name__ == "__main__":
    main()
