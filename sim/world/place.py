"""What a strategy gets of one edge: its user's questions, its drafter's accuracy and time, its link, its dice.

A place is the same for every strategy; nothing in it depends on who lives there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from acespec.edge.drafters.replay_accuracy import Accuracy
from acespec.proto.replay_text import FIRST_WORD, ReplayText, end_id, mix
from acespec.sim.agenda import Agenda
from acespec.sim.digest import EventDigest
from acespec.sim.link import LinkSpec
from acespec.sim.narrow_stream import NarrowStream
from acespec.sim.world.recorder import Recorder
from acespec.sim.world.scenario import LoadSpec

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Wish:
    """One turn that the user wants.

    Attributes:
        number: of the turns of this edge, from 0.
        prompt: the new ids; the conversation so far stands before them.
        history: ids before them.
        seed: fixes the answer, and with the position whether a guess is right.
        tokens: how many to answer.
    """

    number: int
    prompt: tuple[int, ...]
    history: int
    seed: int
    tokens: int

    @property
    def prompt_len(self) -> int:
        """Ids before the answer: position of its first token."""
        return self.history + len(self.prompt)


class Actor(Protocol):
    """Who lives at a place."""

    def start(self, wish: Wish) -> None:
        """The user asks, now. Report tokens by `Place.told`, and the end of the turn by `Place.over`; only then will
        there be another wish."""


class Place:
    """One edge's surroundings.

    Attributes:
        number: of this edge, from 0.
        agenda: the time.
        recorder: for `drafted`, `verified`; tokens and turns are reported by `told` and `over`.
        spec: the link's, with this edge's own seed.
        accuracy: whether a guess is right, shared by all edges and strategies: see `right`.
        token_s: t_d in seconds.
        text: what the target says.
        actor: who lives here, once somebody does.
        wishes: that the user has had so far.
    """

    def __init__(
        self,
        number: int,
        *,
        seed: int,
        agenda: Agenda,
        digest: EventDigest,
        recorder: Recorder,
        spec: LinkSpec,
        accuracy: Accuracy,
        token_s: float,
        text: ReplayText,
        vocab: int,
        load: LoadSpec,
        on_done: Callable[[], None],
    ) -> None:
        self.number = number
        self.agenda = agenda
        self.recorder = recorder
        self.spec = spec
        self.accuracy = accuracy
        self.token_s = token_s
        self.text = text
        self.vocab = vocab
        self.stream: NarrowStream[object] | None = None
        self._seed = seed
        self._digest = digest
        self._load = load
        self._on_done = on_done
        self.actor: Actor | None = None
        self.wishes: list[Wish] = []

    # -- for strategies ------------------------------------------------------------------------------------------

    def dice(self, purpose: str) -> Random:
        """A stream of random numbers for one purpose: using one more shifts no other."""
        return Random(f"{self._seed}:{self.number}:{purpose}")

    def connect(self, kind: type[M]) -> NarrowStream[M]:
        """This edge's one stream to the verifier, carrying messages of `kind`; its set-up begins now. Call it once.

        Messages that are put in before the set-up is over wait for it.
        """
        stream: NarrowStream[M] = NarrowStream(self.agenda, self.spec, edge=self.number, digest=self._digest)
        self.stream = stream  # type: ignore[assignment] # only its counters are read here
        stream.connect()
        return stream

    def right(self, wish: Wish, position: int, depth: int) -> bool:
        """Is the drafter's first guess for `position` right, given that everything before it is?

        `depth` counts unverified tokens from 1, the guess included. Asked again at the same depth, it answers the same.
        """
        return self.accuracy.right(wish.seed, position, wish.prompt_len, depth)

    def told(self, tokens: int) -> None:
        """The user has `tokens` more, final."""
        self.recorder.committed(self.number, tokens)

    def over(self) -> None:
        """The turn has ended: the next one follows after the user's thinking time."""
        self.recorder.ended(self.number)
        if len(self.wishes) < self._load.turns:
            self.agenda.at(self.agenda.now + self._load.think_s, self._ask)
        else:
            self._on_done()

    # -- for the world -------------------------------------------------------------------------------------------

    def move_in(self, actor: Actor) -> None:
        """`actor` lives here: ask the first question, now."""
        self.actor = actor
        self._ask()

    def _ask(self) -> None:
        wish = self._next_wish()
        self.wishes.append(wish)
        self.recorder.asked(self.number)
        if self.actor is not None:
            self.actor.start(wish)

    def _next_wish(self) -> Wish:
        turn, last = len(self.wishes), self.wishes[-1] if self.wishes else None
        dice = self.dice(f"prompt:{turn}")
        words = end_id(self.vocab) - FIRST_WORD
        # Log-uniform, as ids by frequency roughly are: a few are common, most are rare.
        prompt = tuple(FIRST_WORD + int(words ** dice.random()) - 1 for _ in range(self._load.prompt_tokens))
        seed = mix(self._seed, self.number, turn) >> 1
        return Wish(turn, prompt, last.prompt_len + last.tokens if last else 0, seed, self._load.tokens)
