"""Time and rate in whole numbers: nanoseconds and bits per second, so that no rounding depends on the platform."""

from __future__ import annotations

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


def ns_from_ms(milliseconds: float) -> int:
    """Nearest whole nanosecond."""
    return round(milliseconds * MILLISECOND)


def ns_from_s(seconds: float) -> int:
    """Nearest whole nanosecond."""
    return round(seconds * SECOND)


def bps_from_kbps(kbps: float) -> int:
    """Kilobits (1000 bits) a second to whole bits a second."""
    return round(kbps * 1000)


def serialisation_ns(nbytes: int, rate_bps: int) -> int:
    """Time that `nbytes` occupy a line of `rate_bps`, rounded up: rounding must never beat the rate."""
    return -(-8 * nbytes * SECOND // rate_bps)
