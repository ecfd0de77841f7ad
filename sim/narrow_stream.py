"""A byte stream over a narrow link in virtual time: the bytes and stalls of TCP and gRPC, and the link below.

Two pipes share one pair of link directions. A message becomes stream bytes (`grpc_bytes.py`), the stream becomes
segments of at most an MSS with their headers, and each segment is booked on the link when it is sent. What comes in is
acknowledged as `DelayedAck` says, an ACK riding on data that leaves in the meantime. A full queue makes the sender
wait; what then waits is sent in full segments. A lost segment holds up all behind it until it is through (`stall.py`).
Not modelled, as in the real-time proxy: congestion control, and what the loss of an ACK changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from acespec.sim.agenda import Agenda, ns_not_before
from acespec.sim.digest import EventDigest, Happening
from acespec.sim.grpc_bytes import (
    CALL_HEADERS_DOWN,
    CALL_HEADERS_UP,
    LOOKAHEAD_BYTES,
    SETUP_DOWN,
    SETUP_UP,
    stream_bytes,
)
from acespec.sim.link import Drop, LinkSpec, Passage, make_link
from acespec.sim.narrow_host import Host
from acespec.sim.packets import SYN_HEADER
from acespec.sim.stall import LONGEST_RTO, first_rto, resumes_after_outage, stall_after_loss
from acespec.sim.units import SECOND, ns_from_ms

M = TypeVar("M")
SYN_TIMEOUT = 1 * SECOND
"""Before a SYN is sent again; doubled each time (RFC 6298, 2.1)."""


class NarrowPipe(Generic[M]):
    """One direction. Messages arrive in order, once the link has carried all of their bytes.

    Attributes:
        on_frame: hears each message.
        on_room: hears when a writer may go on.
        messages, payload: messages that were put in, and their protobuf bytes.
    """

    __slots__ = (
        "_agenda",
        "_arrived",
        "_attempt",
        "_booked",
        "_early",
        "_flight",
        "_held_until",
        "_next_headers",
        "_queue",
        "_ready",
        "_receiver",
        "_rtt",
        "_sender",
        "_spec",
        "_waits",
        "_written",
        "messages",
        "on_frame",
        "on_room",
        "open",
        "payload",
    )

    def __init__(self, agenda: Agenda, spec: LinkSpec, sender: Host, receiver: Host, call_headers: int) -> None:
        self.on_frame: Callable[[M], None] = _nobody
        self.on_room: Callable[[], None] = _nothing
        self.open = True
        self.messages = self.payload = 0
        self._agenda = agenda
        self._spec = spec
        self._sender = sender
        self._receiver = receiver
        self._rtt = ns_from_ms(spec.rtt_ms)
        self._next_headers = call_headers
        self._ready = False
        self._early: list[tuple[M, int]] = []
        self._queue: deque[tuple[int, M | None, Callable[[], None] | None]] = deque()
        self._flight: deque[tuple[int, int, Passage | Drop]] = deque()
        self._written = self._booked = self._arrived = 0
        self._attempt = 0
        self._waits = False
        self._held_until = 0

    @property
    def room(self) -> bool:
        """True if another message may be put in: the connection is there, and few bytes are under way."""
        return self._ready and self.open and self._written - self._arrived < LOOKAHEAD_BYTES

    def put(self, message: M, payload: int) -> None:
        """Send a message of `payload` protobuf bytes; on a closed pipe it is lost."""
        if not self.open:
            return
        if not self._ready:
            self._early.append((message, payload))
            return
        sender = self._sender
        self.messages += 1
        self.payload += payload
        nbytes = stream_bytes(payload, updates_window=sender.owes_update) + self._next_headers
        sender.owes_update = False
        self._next_headers = 0
        self.write(nbytes, message)

    def send(self: NarrowPipe[bytes], data: bytes) -> None:
        """Send an encoded message."""
        self.put(data, len(data))

    def write(self, nbytes: int, message: M | None = None, then: Callable[[], None] | None = None) -> None:
        """Send bare stream bytes; `message` is delivered, or `then` called, when the last of them has arrived."""
        self._written += nbytes
        self._queue.append((self._written, message, then))
        self._pump()

    def begin(self) -> None:
        """The connection is there."""
        self._ready = True
        early, self._early = self._early, []
        for message, payload in early:
            self.put(message, payload)
        if self.room:
            self.on_room()

    def finish(self, action: Callable[[], None]) -> None:
        """The writer ends the pipe: `action` is carried out once everything before it was read."""
        if self.open:
            self.write(1, then=action)

    def hold(self, until: float) -> None:
        """Deliver nothing before `until`, in seconds."""
        self._held_until = max(self._held_until, ns_not_before(until))

    def close(self) -> None:
        """Lose everything that is under way, and deliver nothing more."""
        self.open = False
        self._queue.clear()
        self._flight.clear()
        self._early.clear()

    # -- sending -------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Book what is written, as far as the queue takes it."""
        while self._booked < self._written and not self._waits:
            size = min(self._spec.mss, self._written - self._booked)
            if not self._may_send(size, self._go_on):
                self._waits = True
                return
            outcome = self._sender.book(size)
            self._booked += size
            self._flight.append((self._booked, size, outcome))
            if len(self._flight) == 1:
                self._follow_head()

    def _go_on(self) -> None:
        self._waits = False
        if self.open:
            self._pump()

    def _may_send(self, size: int, again: Callable[[], None]) -> bool:
        """True if a segment finds room on the link now; else `again` is called when it may."""
        now, link = self._agenda.now_ns, self._sender.link
        if self._spec.tcp_backoff and (back := link.up_from(now)) > now:
            self._agenda.at_ns(resumes_after_outage(now, back, first_rto(self._rtt)), again)
            return False
        if (room := link.room_at(now, size)) > now:
            self._agenda.at_ns(room, again)
            return False
        return True

    # -- under way -----------------------------------------------------------------------------------------------

    def _follow_head(self) -> None:
        """What becomes of the first segment that is not across: it arrives, or is sent again after a stall."""
        _, _, outcome = self._flight[0]
        if isinstance(outcome, Passage):
            self._agenda.at_ns(outcome.release, self._arrive)
        else:
            stall = stall_after_loss(self._attempt, len(self._flight) - 1, self._rtt)
            self._agenda.at_ns(outcome.finish + stall, self._resend)

    def _resend(self) -> None:
        if not self._flight:
            return
        end, size, _ = self._flight[0]
        if self._may_send(size, self._resend):
            self._attempt += 1
            self._flight[0] = end, size, self._sender.book(size)
            self._follow_head()

    def _arrive(self) -> None:
        if not self._flight:
            return
        if self._agenda.now_ns < self._held_until:
            self._agenda.at_ns(self._held_until, self._arrive)
            return
        was_full = not self.room
        self._arrived, size, _ = self._flight.popleft()
        self._attempt = 0
        if self._flight:
            self._follow_head()
        self._receiver.received(size)
        self._deliver()
        if was_full and self.room:
            self.on_room()

    def _deliver(self) -> None:
        queue = self._queue
        while queue and queue[0][0] <= self._arrived:
            _, message, then = queue.popleft()
            if message is not None:
                self._receiver.owes_update = True
                self.on_frame(message)
            elif then is not None:
                then()


class NarrowStream(Generic[M]):
    """Two pipes over one link of its own; `up` runs from the edge to the cloud."""

    __slots__ = ("_agenda", "_syn_timeout", "client", "down", "server", "up")

    def __init__(self, agenda: Agenda, spec: LinkSpec, *, edge: int = 0, digest: EventDigest | None = None) -> None:
        up, down = make_link(spec)
        self.client = Host(agenda, up, spec.mss, edge, digest, Happening.PACKET_UP)
        self.server = Host(agenda, down, spec.mss, edge, digest, Happening.PACKET_DOWN)
        self.up: NarrowPipe[M] = NarrowPipe(agenda, spec, self.client, self.server, CALL_HEADERS_UP)
        self.down: NarrowPipe[M] = NarrowPipe(agenda, spec, self.server, self.client, CALL_HEADERS_DOWN)
        self._agenda = agenda
        self._syn_timeout = SYN_TIMEOUT

    def connect(self) -> None:
        """Set the connection up: SYN and SYN-ACK, an ACK, then both ends' settings; only then may the edge write."""
        self._cross(self.client, SYN_HEADER, self._syn_arrived, self.connect)

    def hold(self, until: float) -> None:
        """Deliver nothing either way before `until`."""
        self.up.hold(until)
        self.down.hold(until)

    def _syn_arrived(self) -> None:
        self._cross(self.server, SYN_HEADER, self._connected, self.connect)

    def _connected(self) -> None:
        self._acknowledge_syn()
        self.up.write(SETUP_UP)

    def _acknowledge_syn(self) -> None:
        self._cross(self.client, None, self._accepted, self._acknowledge_syn)

    def _accepted(self) -> None:
        self.down.begin()
        self.down.write(SETUP_DOWN, then=self.up.begin)

    def _cross(self, host: Host, header: int | None, then: Callable[[], None], again: Callable[[], None]) -> None:
        """Send a bare packet; `then` at its arrival, or `again` after a timeout if it is lost."""
        outcome = host.book(0, header)
        if isinstance(outcome, Passage):
            self._agenda.at_ns(outcome.release, then)
        else:
            self._agenda.at_ns(outcome.finish + self._syn_timeout, again)
            self._syn_timeout = min(2 * self._syn_timeout, LONGEST_RTO)


def _nobody(message: object) -> None:
    """A message that nobody reads."""


def _nothing() -> None:
    """Nobody waits for room."""
