"""What strategies report to: tokens, steps, drafts. Every strategy tells the same things in the same words."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from acespec.sim.agenda import Agenda
from acespec.sim.digest import EventDigest, Happening
from acespec.sim.world.reader import Reader
from acespec.sim.world.result import Drafting


class EdgeRecord:
    """One edge's figures as they come in. Times in nanoseconds.

    Attributes:
        gaps: between commits that brought tokens, within a turn.
        first: from each question to its first token.
        decode_ns, decoded: from a turn's first commit to its latest, and the tokens after that first commit; summed.
        drafting: says what the edge's drafter has done so far.
    """

    __slots__ = (
        "accepted",
        "asked_at",
        "commits",
        "decode_ns",
        "decoded",
        "drafted",
        "drafted_steps",
        "drafting",
        "first",
        "gaps",
        "last_at",
        "reader",
        "steps",
        "tokens",
        "turns",
        "verified",
    )

    def __init__(self, rate: float) -> None:
        self.tokens = self.commits = self.turns = 0
        self.drafted = self.verified = self.accepted = self.steps = self.drafted_steps = 0
        self.gaps = array("q")
        self.first = array("q")
        self.decode_ns = self.decoded = 0
        self.asked_at: int | None = None
        self.last_at: int | None = None
        self.reader = Reader(rate)
        self.drafting: Callable[[], Drafting] = Drafting


class Recorder:
    """Collects the figures of a run and its digest. `edge` is a place's number throughout.

    Attributes:
        steps: steps of the verifier.
        step_sessions: sessions summed over steps; step_rows: their rows.
        busy_ns: time that the verifier worked, prefill included.
    """

    def __init__(self, agenda: Agenda, digest: EventDigest, edges: int, wanted_rate: float) -> None:
        self.edges = [EdgeRecord(wanted_rate) for _ in range(edges)]
        self.steps = self.step_sessions = self.step_rows = self.busy_ns = 0
        self._agenda = agenda
        self._digest = digest

    def asked(self, edge: int) -> None:
        """A turn begins now. (`Place` reports this.)"""
        record = self.edges[edge]
        record.asked_at = self._agenda.now_ns
        record.last_at = None
        record.reader.begin_turn()
        self._digest.add(self._agenda.now_ns, Happening.TURN, edge, 1)

    def committed(self, edge: int, tokens: int) -> None:
        """`tokens` reached the user now, final. (`Place` reports this.)"""
        record, now = self.edges[edge], self._agenda.now_ns
        record.tokens += tokens
        record.commits += 1
        if record.last_at is not None:
            record.gaps.append(now - record.last_at)
            record.decode_ns += now - record.last_at
            record.decoded += tokens
        elif record.asked_at is not None:
            record.first.append(now - record.asked_at)
        record.last_at = now
        record.reader.arrived(self._agenda.now, tokens)
        self._digest.add(now, Happening.COMMIT, edge, tokens, record.tokens)

    def ended(self, edge: int) -> None:
        """The turn is over now. (`Place` reports this.)"""
        record = self.edges[edge]
        record.turns += 1
        record.asked_at = record.last_at = None
        self._digest.add(self._agenda.now_ns, Happening.TURN, edge, 0, record.tokens)

    def step(self, rows: int, sessions: int, seconds: float) -> None:
        """The verifier begins a step now: `rows` of `sessions`, prompt rows not counted; `seconds` with everything."""
        length = round(seconds * 1e9)
        self.steps += 1
        self.step_rows += rows
        self.step_sessions += sessions
        self.busy_ns += length
        self._digest.add(self._agenda.now_ns, Happening.STEP, -1, rows << 20 | sessions, length)

    def drafted(self, edge: int, tokens: int) -> None:
        """Draft tokens went up (or, co-located, were drafted)."""
        self.edges[edge].drafted += tokens
        self._digest.add(self._agenda.now_ns, Happening.DRAFT, edge, tokens)

    def verified(self, edge: int, drafts: int, accepted: int) -> None:
        """A step of this edge's session has ended, in which `drafts` of its tokens were verified and the first
        `accepted` of them were right. A plain step has none."""
        record = self.edges[edge]
        record.steps += 1
        record.drafted_steps += drafts > 0
        record.verified += drafts
        record.accepted += accepted
