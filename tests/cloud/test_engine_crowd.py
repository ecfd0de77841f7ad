"""Sixty-four sessions that come, draft, err, break off and vanish, over a KV memory that is too small for them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from acespec.cloud.scheduler import FreeRun
from acespec.cloud.turn import Turn
from acespec.proto.messages import FinishReason
from acespec.proto.timing_profile import TimingProfile
from tests.cloud.engine_lab import VOCAB, Lab, answer, truth

SESSIONS = 64
PRINCIPALS = 5
PAGES = 15
LONGEST = 180  # three pages a session, so that five fit
QUANTUM_S = 0.2
TIMING = TimingProfile("crowd", ((1, 0.010), (16, 0.012), (64, 0.030)), 0.0002, 20_000.0, "made up")
SEATS = PAGES // 3
SLACK_S = 1.5
"""Steps and prefills in between."""


@dataclass(eq=False)
class Guest:
    """One session's life."""

    turn: Turn
    skill: float
    abort_at: int | None
    away: list[float] = field(default_factory=list)


class Crowd:
    def __init__(self, seed: int, policy: FreeRun) -> None:
        self.dice = random.Random(seed)
        self.lab = Lab(policy, timing=TIMING, pages=PAGES, max_rows=32, max_length=LONGEST, quantum_s=QUANTUM_S)
        self.arrivals = sorted((self.dice.uniform(0.0, 1.0), n) for n in range(SESSIONS))
        self.guests: list[Guest] = []
        self.due_since: dict[Turn, Counter[Turn]] = {}
        self.worst_overtaking = 0
        self.worst_seat_wait = 0.0
        self.returns: list[tuple[float, Guest]] = []

    def run(self) -> None:
        lab = self.lab
        while self.arrivals or any(g.turn.finish is None and not g.turn.closed for g in self.guests):
            assert lab.now < 400.0, "nothing may starve"
            self._let_in()
            self._draft()
            self._disturb()
            planned = lab.plan()
            self._watch_seats()
            if planned is None:
                lab.now += 0.002
                continue
            assert planned.rows <= 32
            self._watch_overtaking([p.turn for p in planned.parts if p.reason != "prefill"])
            if self.dice.random() < 0.1:
                self._disturb()  # while the step is in flight
            if self.dice.random() < 0.5:
                lab.now += 0.001
                lab.table.seat(lab.now)  # also then, and it may take the seat of a turn that is in the step
            lab.run(planned)
            pages = lab.table.pages
            assert pages.free + pages.cached + pages.in_use == PAGES

    @property
    def seat_wait_bound_s(self) -> float:
        """Principals take turns, and each one's sessions: everybody has had a quantum before anybody's second."""
        per_principal = Counter(guest.turn.principal for guest in self.guests)
        return QUANTUM_S * len(per_principal) * max(per_principal.values()) / SEATS + SLACK_S

    def _let_in(self) -> None:
        lab, dice = self.lab, self.dice
        while self.arrivals and self.arrivals[0][0] <= lab.now:
            _, n = self.arrivals.pop(0)
            shared = n % 4 == 0
            prompt = [7 * (i if shared else i + n) % VOCAB for i in range(dice.choice([3, 30, 70, 100]))]
            turn = lab.open(
                n,
                rate=dice.choice([0.0, 5.0, 20.0, 40.0]),
                max_tokens=dice.randrange(1, LONGEST - len(prompt) - 1),
                principal=f"p{dice.randrange(PRINCIPALS)}",
                prompt=prompt,
            )
            abort = dice.randrange(60) if dice.random() < 0.15 else None
            self.guests.append(Guest(turn, dice.choice([0.0, 0.3, 0.8, 1.0]), abort))

    def _draft(self) -> None:
        for guest in self.guests:
            turn = guest.turn
            if turn.finish is None and not turn.closed and turn.attached and self.dice.random() < 0.05:
                right = truth(turn, self.dice.randrange(1, 12))
                wrong = [t if self.dice.random() < guest.skill else self.dice.randrange(VOCAB) for t in right]
                self.lab.draft(turn, wrong, step=self.dice.random() < 0.1)

    def _disturb(self) -> None:
        lab = self.lab
        for at, guest in [r for r in self.returns if r[0] <= lab.now]:
            self.returns.remove((at, guest))
            lab.table.attach(guest.turn.spec.session, True)
        for guest in self.guests:
            turn = guest.turn
            if turn.closed or turn.finish is not None:
                continue
            if guest.abort_at is not None and len(turn.tokens) - len(turn.spec.tokens) >= guest.abort_at:
                last = lab.table.close(turn.spec.session)
                assert last is not None
                assert last.finish is FinishReason.CANCELLED
                lab.table.forget(turn.spec.session)
            elif turn.attached and self.dice.random() < 0.002:
                lab.table.attach(turn.spec.session, False)
                self.returns.append((lab.now + self.dice.uniform(0.1, 3.0), guest))

    def _watch_seats(self) -> None:
        for guest in self.guests:
            if guest.turn.waiting and guest.turn.may_step:
                self.worst_seat_wait = max(self.worst_seat_wait, self.lab.now - guest.turn.queued_at)

    def _watch_overtaking(self, stepping: list[Turn]) -> None:
        """How often another session of the same principal has stepped since one became due."""
        for guest in self.guests:
            turn = guest.turn
            able = turn.may_step and not turn.waiting and not turn.prefilling
            if not able or turn in stepping or turn.clock.due > self.lab.now:
                self.due_since.pop(turn, None)
                continue
            seen = self.due_since.setdefault(turn, Counter())
            seen.update(t for t in stepping if t.principal == turn.principal)
            self.worst_overtaking = max(self.worst_overtaking, *seen.values(), 0)


@pytest.mark.parametrize("policy", list(FreeRun))
def test_a_crowd_that_memory_cannot_hold_is_served_exactly_and_fairly(policy: FreeRun) -> None:
    crowd = Crowd(11, policy)
    crowd.run()
    for guest in crowd.guests:
        if guest.turn.closed and guest.turn.finish is FinishReason.CANCELLED:
            assert answer(guest.turn)[: len(guest.turn.tokens)] == guest.turn.tokens
        else:
            assert guest.turn.tokens == answer(guest.turn)
            assert guest.turn.finish is FinishReason.LENGTH
    pages = crowd.lab.table.pages
    assert pages.in_use == 0
    pages.drop_cached()
    assert pages.free == PAGES
    assert crowd.lab.table.residency.evictions > 0, "the memory was too small indeed"
    assert crowd.worst_overtaking <= 1, "earliest due first: nobody steps twice while one of his own waits"
    assert crowd.worst_seat_wait <= crowd.seat_wait_bound_s
