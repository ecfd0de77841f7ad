"""One end of a connection over a narrow link in virtual time: it books packets, and acknowledges what comes in."""

from __future__ import annotations

from acespec.sim.agenda import Agenda
from acespec.sim.digest import EventDigest, Happening
from acespec.sim.link import Drop, LinkDirection, Passage
from acespec.sim.packets import DelayedAck


class Host:
    """What it sends goes onto `link`, and it owes ACKs for what it receives.

    Attributes:
        bytes, packets: that went onto its link, headers, ACKs and retransmissions included.
        owes_update: a message was read since the last write: the next one carries a WINDOW_UPDATE.
    """

    __slots__ = ("_ack", "_ack_at", "_agenda", "_digest", "_edge", "_kind", "bytes", "link", "owes_update", "packets")

    def __init__(
        self, agenda: Agenda, link: LinkDirection, mss: int, edge: int, digest: EventDigest | None, kind: Happening
    ) -> None:
        self.link = link
        self.bytes = self.packets = 0
        self.owes_update = False
        self._agenda = agenda
        self._ack = DelayedAck(mss)
        self._ack_at: int | None = None
        self._edge = edge
        self._digest = digest
        self._kind = kind

    def book(self, nbytes: int, header: int | None = None) -> Passage | Drop:
        """Send a packet now; any ACK owed rides along."""
        self._ack.acknowledged()
        now = self._agenda.now_ns
        outcome = self.link.offer(now, nbytes, header)
        if isinstance(outcome, Passage) or not outcome.refused:
            self.bytes += outcome.wire
            self.packets += 1
        if self._digest is not None:
            across = outcome.release if isinstance(outcome, Passage) else -1
            self._digest.add(now, self._kind, self._edge, outcome.wire, across)
        return outcome

    def received(self, nbytes: int) -> None:
        """A segment of `nbytes` has arrived."""
        now = self._agenda.now_ns
        self._ack.received(now, nbytes)
        due = self._ack.due
        if due is not None and (self._ack_at is None or due < self._ack_at):
            if due <= now:
                self._acknowledge()
            else:
                self._arm(due)

    def _arm(self, time: int) -> None:
        self._ack_at = time
        self._agenda.at_ns(time, self._acknowledge)

    def _acknowledge(self) -> None:
        """Send a lone ACK, if one is due by now."""
        now = self._agenda.now_ns
        if self._ack_at is not None and self._ack_at <= now:
            self._ack_at = None
        due = self._ack.due
        if due is None:
            return
        if due > now:
            if self._ack_at is None:
                self._arm(due)
        elif (room := self.link.room_at(now, 0)) > now:
            self._arm(room)
        else:
            self.book(0)
