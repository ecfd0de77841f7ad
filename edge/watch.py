"""What a session tells whoever watches it: one record a happening, and the Protocol of a watcher.

The records are the lines of a trace (`trace_writer.py`), so their fields are plain values. A watcher stamps them with
its own clock. A session that nobody watches makes none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from acespec.edge.brain.prices import FREE, Prices
from acespec.proto.messages import Totals
from acespec.proto.nodes import ROOT


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn was asked for.

    Attributes:
        length: of the sequence so far; the answer begins at `prompt_len`.
    """

    length: int
    prompt_len: int
    max_tokens: int
    seed: int
    temperature: float
    target_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A message goes up.

    Attributes:
        what: `open`, `draft` (nodes), `step` (no nodes, asks for a step), `ack` (neither) or `cancel`.
        bytes: of its protobuf.
        ip_bytes: with all headers (`proto/framing.py`).
        epoch: of the session.
        frame: counts the messages of this epoch that commits acknowledge, from 1; 0 for others.
        received: committed length that it acknowledges.
        keys: its nodes in the draft tree; their wire ids count on from `first_node`.
        step: it asks for a step.
        why: `worth` (its drafts earn it), `due` (they had waited for the due time), `ack` or `request` (it was owed).
        held_ms: how long the newest commit waited for it.
    """

    what: str
    bytes: int
    ip_bytes: int
    epoch: int
    frame: int = 0
    received: int = 0
    first_node: int = 0
    keys: tuple[int, ...] = ()
    step: bool = False
    why: str = ""
    held_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """The verifier serves the turn; see `Opened`."""

    epoch: int
    bytes: int
    ip_bytes: int
    kept: int
    granted_rate: float
    max_draft: int
    max_nodes: int
    numerics_id: str
    exact: bool = False
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class CommitSeen:
    """A commit came down.

    Attributes:
        length: committed length with it.
        tokens: what became final with it.
        named: those that it names by a draft node instead of spelling them: the cloud had them as drafts, in time for
            a step or at least for this message.
        guessed: those that the draft tree held, shipped or not.
        plain: it has tokens and names no draft: nothing but plain steps, as far as the edge can see.
        ack: newest frame that the cloud had; `held_ms` is how long it had had it.
        rtt_ms: round trip measured by this acknowledgement.
        verify_ms, load: a verify step, and the verifier's load in percent; 0 if not told anew.
        next_in_ms: when the session's next step is due.
        prices: what the controller was told last.
        surprises, covered, shipped, saved: what it added to the branch cache (`BranchCache`).
        finish: why the turn is over, if it is; `totals` then has the verifier's account of it.
    """

    bytes: int
    ip_bytes: int
    length: int
    tokens: tuple[int, ...] = ()
    named: int = 0
    guessed: int = 0
    plain: bool = False
    ack: int = 0
    held_ms: float = 0.0
    rtt_ms: float | None = None
    verify_ms: float = 0.0
    load: int = 0
    next_in_ms: int = 0
    prices: Prices = FREE
    surprises: int = 0
    covered: int = 0
    shipped: int = 0
    saved: int = 0
    finish: str = ""
    totals: Totals | None = None


@dataclass(frozen=True, slots=True)
class JobGiven:
    """A drafter begins behind node `node`, whose path ends before `position`; see `DraftJob`."""

    job: int
    node: int
    position: int
    room: int
    k: int
    survival: float


@dataclass(frozen=True, slots=True)
class GuessSeen:
    """One guess of an answer: its `rank` among those for its place, the drafter's `claim`, and the `survival` of its
    path with it. `key` names its node behind the node `parent`; it is ROOT if the guess was not kept."""

    position: int
    token: int
    source: str
    claim: float
    rank: int = 0
    survival: float = 0.0
    parent: int = ROOT
    key: int = ROOT


@dataclass(frozen=True, slots=True)
class Drafted:
    """A drafter has answered a job.

    Attributes:
        seconds: that the drafting is booked with.
        levels: positions that it said something about.
        fate: `kept` (fitted into the tree as far as it paid), `void` (its path was contradicted before) or `wrong`
            (what it says of positions that are final by now is contradicted).
        silent: it has nothing to say behind these.
        guesses: those that were fitted.
    """

    job: int
    seconds: float
    levels: int
    fate: str
    silent: bool = False
    guesses: tuple[GuessSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionMade:
    """A controller has decided; see `Decision`.

    Attributes:
        question: `extend`, `keep`, `ship` or `send`, as in `Controller`.
        depth: unverified tokens of the path in question.
        chance: its survival; for `send` the gain in tokens.
        nbytes: what it would put on the link.
    """

    question: str
    go: bool
    value: float
    reason: str
    depth: int = 0
    chance: float = 0.0
    nbytes: float = 0.0


@dataclass(frozen=True, slots=True)
class ReopenedBecause:
    """The turn is opened anew on the same stream."""

    reason: str


@dataclass(frozen=True, slots=True)
class Outage:
    """The stream broke, or could not be had again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The turn was given up here, without the cloud's last word."""


Happening = (
    TurnStarted | Sent | Served | CommitSeen | JobGiven | Drafted | DecisionMade | ReopenedBecause | Outage | Abandoned
)


class SessionWatcher(Protocol):
    """Sees what a session does, as it does it. It must neither raise nor take long."""

    def saw(self, happening: Happening) -> None:
        """This happens now."""
