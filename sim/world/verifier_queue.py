"""A verifier for strategies that bring no scheduler of their own: it batches whatever waits, first come first served.

It has the profile of every other verifier in the world. When it is free it takes all waiting requests up to its rows,
and one chunk of one prompt, into the next step; the step takes what the profile says of them together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from acespec.cloud.runner import PREFILL_CHUNK
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.agenda import Agenda
from acespec.sim.world.recorder import Recorder


@dataclass(slots=True)
class _Request:
    rows: int
    start: int
    draft_s: float
    done: Callable[[], None]


class VerifierQueue:
    """`timing` already holds the background's share; `max_rows` bounds the rows of a step."""

    def __init__(self, agenda: Agenda, timing: TimingProfile, max_rows: int, recorder: Recorder) -> None:
        self._agenda = agenda
        self._timing = timing
        self._max_rows = max_rows
        self._recorder = recorder
        self._waiting: deque[_Request] = deque()
        self._prompts: deque[_Request] = deque()
        self._stepping = False

    def verify(self, rows: int, start: int, done: Callable[[], None], *, draft_s: float = 0.0) -> None:
        """Verify a block of `rows` (1 is a plain step) behind `start` positions; `done` is called at the step's end.

        Args:
            draft_s: time that the verifier itself spends on drafts for it (co-located speculation); those of one step
                are drafted together, so the longest counts.
        """
        self._waiting.append(_Request(min(rows, self._max_rows), start, draft_s, done))
        self._kick()

    def prefill(self, rows: int, done: Callable[[], None]) -> None:
        """Read a prompt of `rows` in chunks; its last chunk draws the first token, and `done` is called."""
        self._prompts.append(_Request(rows, 0, 0.0, done))
        self._kick()

    def _kick(self) -> None:
        if not self._stepping:
            self._stepping = True
            self._agenda.soon(self._begin)

    def _begin(self) -> None:
        batch, rows = self._batch()
        chunk, ended = self._chunk()
        if not rows and not chunk:
            self._stepping = False
            return
        positions = sum(request.rows * request.start for request in batch)
        seconds = self._timing.step_s(rows, len(batch), positions) + self._timing.prefill_s(chunk)
        seconds += max((request.draft_s for request in batch), default=0.0)
        self._recorder.step(rows, len(batch), seconds)
        finished = [request.done for request in (*batch, *ended)]
        self._agenda.at(self._agenda.now + seconds, lambda: self._complete(finished))

    def _batch(self) -> tuple[list[_Request], int]:
        batch: list[_Request] = []
        rows = 0
        while self._waiting and rows + self._waiting[0].rows <= self._max_rows:
            batch.append(self._waiting.popleft())
            rows += batch[-1].rows
        return batch, rows

    def _chunk(self) -> tuple[int, list[_Request]]:
        """Rows of the next piece of the first prompt, and that prompt if they are its last."""
        if not self._prompts:
            return 0, []
        prompt = self._prompts[0]
        rows = min(prompt.rows, PREFILL_CHUNK)
        prompt.rows -= rows
        return rows, [] if prompt.rows else [self._prompts.popleft()]

    def _complete(self, finished: list[Callable[[], None]]) -> None:
        for done in finished:
            done()
        self._begin()
