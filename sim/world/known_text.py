"""A replayed text that is worked out once: target, drafter and judge all ask for the same ids again and again."""

from __future__ import annotations

from acespec.proto.replay_text import ReplayText


class KnownText:
    """`ReplayText` that remembers what it said of each answer, from its beginning on, without gaps."""

    __slots__ = ("_said", "_text")

    def __init__(self, text: ReplayText) -> None:
        self._text = text
        self._said: dict[tuple[int, int], list[int]] = {}

    @property
    def name(self) -> str:
        """See `ReplayText.name`."""
        return self._text.name

    def token(self, seed: int, position: int, prompt_len: int) -> int:
        """See `ReplayText.token`."""
        said = self._said.get((seed, prompt_len))
        if said is None:
            said = self._said[seed, prompt_len] = []
        at = position - prompt_len
        if at < 0:
            return self._text.token(seed, position, prompt_len)
        while len(said) <= at:
            said.append(self._text.token(seed, prompt_len + len(said), prompt_len))
        return said[at]

    def forget(self, seed: int, prompt_len: int) -> None:
        """A turn is over: what it said will hardly be asked for again."""
        self._said.pop((seed, prompt_len), None)
