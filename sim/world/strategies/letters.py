"""Messages between the two halves of an actor: each carries what its receiver does, and costs the bytes it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acespec.proto.framing import message_bytes
from acespec.sim.spec import LinkSpec
from acespec.sim.theory.bits import packed_bytes
from acespec.sim.world.place import Place

ENVELOPE = 6
"""Protobuf bytes around a message's body: tags, lengths, a round number (theory: 94 bytes hold 6 of them)."""
COUNT = 1
"""Bytes of how many drafts were kept."""


@dataclass(frozen=True, slots=True)
class Letter:
    """`read` is called where it arrives, when all of its bytes have."""

    read: Callable[[], None]


class Line:
    """The one stream of a place, for letters."""

    __slots__ = ("_agenda", "_stream")

    def __init__(self, place: Place) -> None:
        self._agenda = place.agenda
        self._stream = place.connect(Letter)
        self._stream.up.on_frame = self._stream.down.on_frame = _open

    def up(self, payload: int, read: Callable[[], None]) -> None:
        """Send a letter of `payload` protobuf bytes to the cloud."""
        self._stream.up.put(Letter(read), payload)

    def down(self, payload: int, read: Callable[[], None]) -> None:
        """Send a letter of `payload` protobuf bytes to the edge."""
        self._stream.down.put(Letter(read), payload)

    @property
    def down_is_clear(self) -> bool:
        """True if a letter down would wait for one packet at most: who writes then fills the link but no queue."""
        return self._stream.down.room and not self._stream.server.link.waiting_bytes(self._agenda.now_ns)


def ids_bytes(ids: int, vocab: int) -> int:
    """A message of packed token ids."""
    return ENVELOPE + packed_bytes(ids, vocab)


def pairs_bytes(pairs: int, bits: int) -> int:
    """A message of so many items of `bits` each, as of an id with its probability."""
    return ENVELOPE + -(-pairs * bits // 8)


def round_ms(spec: LinkSpec, up: int, down: int) -> float:
    """tau: serialisation of a message up and one down, of so many protobuf bytes, at the link's mean rates."""
    return message_bytes(up) * 8 / spec.rate_up_kbps + message_bytes(down) * 8 / spec.rate_down_kbps


def _open(letter: Letter) -> None:
    letter.read()
