"""What becomes of promised rates when the verifier cannot keep them (sans-IO).

Granted rates fall first towards each session's knee, up to which its drafts carry it at few steps, then all by one
common factor. How far is found by feedback: while due sessions are served late by a verifier that is busy all the time
the level rises, otherwise it falls. A session that is late although the verifier has time is above its knee, and needs
more steps, not fewer tokens.
"""

from __future__ import annotations

from acespec.cloud.due import BURST_S

TOLERANCE_S = 0.05
"""Sessions that are served later than this after their due time call for lower rates."""
BUSY = 0.9
"""Share of its time that a verifier must have worked of late to count as overloaded."""
MEMORY_S = 1.0
"""Over how long that share is taken."""
GAIN_PER_S = 0.5
"""How fast the level moves if sessions are late, or in time, all the while."""
MOST = 50.0


class Overload:
    """The level: 0 grants what was promised, 1 at most each session's knee, 1 + x that divided by 1 + x."""

    def __init__(self) -> None:
        self.level = 0.0
        self._at: float | None = None
        self._busy = 0.0

    def observe(self, now: float, late_s: float, seconds: float) -> None:
        """A step of `seconds` has ended that served the latest of its sessions `late_s` after its due time."""
        elapsed = min(1.0, now - self._at) if self._at is not None else 0.0
        self._at = now
        if elapsed > 0:
            weight = min(1.0, elapsed / MEMORY_S)
            self._busy += weight * (min(1.0, seconds / elapsed) - self._busy)
        late = (late_s - TOLERANCE_S) / (BURST_S - TOLERANCE_S) * 2.0 if self._busy > BUSY else -1.0
        push = max(-1.0, min(1.0, late))
        self.level = min(MOST, max(0.0, self.level + GAIN_PER_S * elapsed * push * max(1.0, self.level)))

    def rate(self, promised: float, knee: float) -> float:
        """What a session that was promised `promised` tokens/s gets now."""
        if self.level == 0.0 or promised <= 0.0:
            return promised
        carried = min(promised, knee)
        if self.level <= 1.0:
            return promised + self.level * (carried - promised)
        return carried / self.level
