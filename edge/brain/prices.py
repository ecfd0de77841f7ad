"""What time, bits and rows cost at the moment: all that a controller is told of the link and the verifier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """Times in seconds; what is not known yet is None or 0.

    Attributes:
        link_rate: bytes/s of the uplink.
        cycle: from the last draft sent to its verdict, the time that the cloud held it not counted: C without t_v.
        jitter: mean excess of round trips over the least.
        verify: a verify step.
        load: of the verifier, 0 to 1.
        headway: tokens that the cloud commits by itself while a draft is on its way.
        waits: the cloud lets the session wait until it is due, so drafting delays nothing.
    """

    link_rate: float | None = None
    cycle: float | None = None
    jitter: float = 0.0
    verify: float = 0.0
    load: float = 0.0
    headway: int = 0
    waits: bool = False

    def send_s(self, nbytes: float) -> float:
        """How long the uplink is busy with so many bytes; 0 while its rate is unknown."""
        return nbytes / self.link_rate if self.link_rate else 0.0


FREE = Prices()
"""Nothing is known to cost anything."""
