"""How long TCP holds back a byte stream after a loss or an outage, where only the stream is seen.

One home for the rules, for real time and virtual time alike. Times are nanoseconds. The retransmission timeout is
Linux's minimum of 0.2 s above the round trip, doubled at each failure, at most 120 s (RFC 6298 asks for 60 or more).
"""

from __future__ import annotations

from acespec.sim.units import MILLISECOND, SECOND

RTO_MARGIN = 200 * MILLISECOND
LONGEST_RTO = 120 * SECOND
FAST_RETRANSMIT_PACKETS = 3


def first_rto(rtt: int) -> int:
    """The timeout before any failure."""
    return min(RTO_MARGIN + rtt, LONGEST_RTO)


def stall_after_loss(attempt: int, later_packets: int, rtt: int) -> int:
    """From the loss of a packet to its next transmission; `attempt` counts those lost before.

    One round trip if enough later packets give duplicate ACKs (RFC 5681, 3.2), else the timer.
    """
    if attempt == 0 and later_packets >= FAST_RETRANSMIT_PACKETS:
        return rtt
    return min(first_rto(rtt) << min(attempt, 16), LONGEST_RTO)


def resumes_after_outage(lost_at: int, back_at: int, rto: int) -> int:
    """When a sender tries again with success, if its packets are lost from `lost_at` until the link is `back_at`.

    That is the first of lost_at + rto (2^k - 1), each wait at most 120 s, that is not before `back_at`: a lag of up to
    the length of the outage again.
    """
    t, wait = lost_at, rto
    while t < back_at:
        t += wait
        wait = min(2 * wait, LONGEST_RTO)
    return t
