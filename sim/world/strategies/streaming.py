"""Deep streaming as an ideal: the edge drafts without a pause, one message a draft, and the verifier passes over what
has come (form 6); with `free_run` it also steps where nothing has (form 7).

No window, no pacing, no price on a message: a yardstick for fast links and no scheme for narrow ones, where its queue
grows without bound. A pass takes up to `most` drafts that follow the text and commits the accepted ones and one more.
An *epoch* is a run of drafts that build on each other; a rejection, or a committed token that contradicts one of its
drafts, kills it. Whatever is committed is told to the edge at once, which drafts anew behind it when it hears that its
epoch is dead, or sees by itself that a committed token is not the one it drafted there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from acespec.sim.world.place import Actor, Place, Wish
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.answer import Answer, Answers
from acespec.sim.world.strategies.letters import Line, ids_bytes
from acespec.sim.world.world import World


class Streaming:
    """Parameters: `free_run`, `most`."""

    name = "streaming"

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        self.answers = Answers(world)
        self.queue = world.verifier_queue()
        self.free_run = bool(params["free_run"])
        self.most = min(int(params["most"]), world.max_rows - 1)

    def begin(self, place: Place) -> Actor:
        """See `Strategy.begin`."""
        return _Edge(self, place)


class _Edge:
    """Lives at a place; `_turn` is the answer that it drafts for."""

    def __init__(self, shared: Streaming, place: Place) -> None:
        self._shared = shared
        self._place = place
        self._line = Line(place)

    def start(self, wish: Wish) -> None:
        """See `Actor.start`."""
        place, prompt = self._place, len(wish.prompt)
        answer = self._shared.answers.begin(place, wish)
        drafting = _Drafting(place, self._line, answer)
        passes = _Passes(self._shared, place, self._line, drafting)
        drafting.passes = passes
        self._line.up(ids_bytes(prompt, place.vocab), lambda: self._shared.queue.prefill(prompt, passes.begin))


class _Drafting:
    """The edge's half of a turn.

    Attributes:
        passes: the cloud's half.
        answer: as far as it is here.
    """

    passes: _Passes

    def __init__(self, place: Place, line: Line, answer: Answer) -> None:
        self.answer = answer
        self._place = place
        self._line = line
        self._epoch = 0
        self._base = self._next = answer.position
        self._guesses: deque[bool] = deque()
        self._attempt = 0

    def hear(self, tokens: int, dead: int | None) -> None:
        """`tokens` more are final, and epoch `dead` has ended."""
        if self.answer.position == self.answer.end:
            return
        if tokens and not self.answer.take(tokens):
            self._attempt += 1  # Whatever is being drafted is for nobody.
            return
        tip = self.answer.position
        if dead == self._epoch or self._contradicted(tip):
            self._epoch += 1
            self._draft_from(tip)
        elif tip > self._next:
            self._draft_from(tip)

    def _contradicted(self, tip: int) -> bool:
        """Was any of the tokens up to `tip` drafted otherwise? Forgets those that were right."""
        while self._guesses and self._base < tip:
            self._base += 1
            if not self._guesses.popleft():
                return True
        return False

    def _draft_from(self, position: int) -> None:
        self._guesses.clear()
        self._base = self._next = position
        self._draft()

    def _draft(self) -> None:
        self._attempt += 1
        attempt = self._attempt
        done = self._place.agenda.now + self._place.token_s
        self._place.agenda.at(done, lambda: self._drafted(attempt))

    def _drafted(self, attempt: int) -> None:
        if attempt != self._attempt:
            return
        position, epoch = self._next, self._epoch
        depth = position - self.answer.position + 1
        right = self._place.right(self.answer.wish, position, depth)
        self._guesses.append(right)
        self._next += 1
        self._place.recorder.drafted(self._place.number, 1)
        self._line.up(ids_bytes(1, self._place.vocab), lambda: self.passes.receive(epoch, position, right))
        self._draft()


class _Passes:
    """The cloud's half of a turn. Text is final up to `_tip`; drafts of the newest epoch stand from `_first` on."""

    def __init__(self, shared: Streaming, place: Place, line: Line, drafting: _Drafting) -> None:
        self._shared = shared
        self._place = place
        self._line = line
        self._drafting = drafting
        self._tip = drafting.answer.position
        self._epoch = 0
        self._dead = False
        self._drafts: deque[bool] = deque()
        self._first = self._tip
        self._stepping = False

    def begin(self) -> None:
        """The prompt is read and the first token drawn."""
        self._commit(1, None)
        self._step()

    def receive(self, epoch: int, position: int, right: bool) -> None:
        """A draft has come; whether it is right shows once the text before it is final."""
        if epoch > self._epoch:
            self._epoch, self._dead = epoch, False
            self._drafts.clear()
        if epoch < self._epoch or self._dead:
            return
        if position >= self._tip:
            if not self._drafts:
                self._first = position
            self._drafts.append(right)
            self._step()
        elif not right:
            self._commit(0, self._kill())

    def _step(self) -> None:
        count = min(len(self._drafts), self._shared.most)
        if self._stepping or self._tip == self._drafting.answer.end or not (count or self._shared.free_run):
            return
        self._stepping = True
        taken, epoch = [self._drafts.popleft() for _ in range(count)], self._epoch
        self._first += count
        self._shared.queue.verify(count + 1, self._tip, lambda: self._stepped(taken, epoch))

    def _stepped(self, taken: list[bool], epoch: int) -> None:
        self._stepping = False
        accepted = taken.index(False) if False in taken else len(taken)
        self._place.recorder.verified(self._place.number, len(taken), accepted)
        rejected = accepted < len(taken) and epoch == self._epoch
        contradicted = self._overtaken(self._tip + accepted + 1)
        dead = self._kill() if not self._dead and (rejected or contradicted) else None
        self._commit(accepted + 1, dead)
        self._step()

    def _overtaken(self, tip: int) -> bool:
        """Drops drafts before `tip`, which came during the step; True if one of them is not what the step committed."""
        while self._drafts and self._first < tip:
            self._first += 1
            if not self._drafts.popleft():
                return True
        return False

    def _kill(self) -> int:
        self._dead = True
        self._drafts.clear()
        return self._epoch

    def _commit(self, tokens: int, dead: int | None) -> None:
        tokens = min(tokens, self._drafting.answer.end - self._tip)
        self._tip += tokens
        payload = ids_bytes(tokens, self._place.vocab)
        self._line.down(payload, lambda: self._drafting.hear(tokens, dead))
