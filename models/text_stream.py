"""Token ids in, whole characters out: text that can be shown while it is still growing.

A character may be spread over several tokens. Its bytes are held back until it is whole, so that what was shown never
has to be taken back, and all pieces together are exactly the decoded whole.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from acespec.models.tokenizer import Tokenizer


class TextStream:
    """Decode one growing text. The pieces of `push` and the last of `flush` join to `tokenizer.decode(all ids)`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drop_space = tokenizer.drops_first_space

    def push(self, ids: Sequence[int]) -> str:
        """The text that `ids` complete; takes time for the new tokens only."""
        return self._shown(self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, ids))))

    def peek(self, ids: Sequence[int]) -> str:
        """What `push` would give; takes nothing in."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        decoder.setstate(self._decoder.getstate())
        text = decoder.decode(b"".join(map(self._tokenizer.token_bytes, ids)))
        return text.removeprefix(" ") if self._drop_space else text

    def flush(self) -> str:
        """What is left at the end: an unfinished character as U+FFFD, otherwise nothing. Starts a new text."""
        rest = self._shown(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        self._drop_space = self._tokenizer.drops_first_space
        return rest

    def _shown(self, text: str) -> str:
        if not (self._drop_space and text):
            return text
        self._drop_space = False
        return text.removeprefix(" ")
