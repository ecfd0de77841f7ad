"""The zstd dictionary for prompt text that every install carries.

It is made by `proto/train_dictionary.py`. Its number travels in each frame, so that two versions of acespec with
different dictionaries find out instead of reading nonsense.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

import zstandard

FILE_NAME: Final = "prompt.zdict"

LEVEL: Final = 19
"""zstd's level for prompts: they are small, so effort is cheap."""

_USUAL_PROMPT: Final = 1000


@cache
def prompt_dictionary() -> zstandard.ZstdCompressionDict:
    """The shipped dictionary, read and prepared for compression once (3 ms)."""
    dictionary = zstandard.ZstdCompressionDict(files(__package__).joinpath(FILE_NAME).read_bytes())
    prepared_for = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, source_size=_USUAL_PROMPT, dict_size=len(dictionary)
    )
    dictionary.precompute_compress(compression_params=prepared_for)
    return dictionary
