"""How far an answer has come, as its reader sees it, and how many answers are in the making."""

from __future__ import annotations

from acespec.proto.replay_text import end_id
from acespec.sim.world.place import Place, Wish
from acespec.sim.world.world import World


class Answers:
    """Of all edges of a run.

    Attributes:
        running: those that have not ended.
    """

    __slots__ = ("_text", "running")

    def __init__(self, world: World) -> None:
        self.running = 0
        self._text = world.text

    def begin(self, place: Place, wish: Wish) -> Answer:
        """`wish` is uttered."""
        self.running += 1
        return Answer(self, place, wish)

    def end(self, wish: Wish) -> None:
        """Nobody will ask for this text again."""
        self.running -= 1
        self._text.forget(wish.seed, wish.prompt_len)


class Answer:
    """The answer to one wish. It ends after the wished number of tokens, or with the first end id of the text.

    Attributes:
        wish: what was asked.
        end: the position behind its last token.
        position: of the next token that the reader waits for.
    """

    __slots__ = ("_answers", "_place", "end", "position", "wish")

    def __init__(self, answers: Answers, place: Place, wish: Wish) -> None:
        self.wish = wish
        self.end = wish.prompt_len + _length(place, wish)
        self.position = wish.prompt_len
        self._answers = answers
        self._place = place

    def take(self, tokens: int) -> bool:
        """`tokens` more are here, those behind the end not counted. True while more is wanted, else the turn ends."""
        tokens = min(tokens, self.end - self.position)
        self.position += tokens
        if tokens:
            self._place.told(tokens)
        if self.position < self.end:
            return True
        self._answers.end(self.wish)
        self._place.over()
        return False

    def kept(self, position: int, drafts: int, ahead: int = 0) -> int:
        """How many of `drafts` drafts from `position` on are right, up to the first that is not; `ahead` unverified
        tokens stood before them when they were drafted."""
        right = self._place.right
        for at in range(drafts):
            if not right(self.wish, position + at, ahead + at + 1):
                return at
        return drafts


def _length(place: Place, wish: Wish) -> int:
    end, token, start = end_id(place.vocab), place.text.token, wish.prompt_len
    for at in range(wish.tokens):
        if token(wish.seed, start + at, start) == end:
            return at + 1
    return wish.tokens
