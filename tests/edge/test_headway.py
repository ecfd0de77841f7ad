from __future__ import annotations

from acespec.edge.brain.headway import QUIET_S, Headway

RTT = 0.2


def heard(steps: int, tokens: int = 1, gap: float = 0.01, next_in: float = 0.0) -> Headway:
    headway = Headway()
    for step in range(steps):
        headway.heard(step * gap, tokens, next_in)
    return headway


def test_it_is_the_output_of_a_round_trip() -> None:
    headway = heard(50, tokens=2, gap=0.02)
    assert headway.tokens(1.0, RTT) in (19, 20), "100 tokens/s for 0.2 s"
    assert headway.tokens(1.0, 2 * RTT) in (39, 40)


def test_bursts_count_by_what_they_last() -> None:
    headway = Headway()
    now = 0.0
    for _ in range(40):
        for gap, tokens in ((0.001, 1), (0.199, 19)):
            now += gap
            headway.heard(now, tokens, 0.0)
    assert 16 <= headway.tokens(now, RTT) <= 24


def test_nothing_is_known_at_first() -> None:
    assert Headway().tokens(0.0, RTT) == 0
    assert heard(1).tokens(0.0, RTT) == 0
    assert heard(50).tokens(0.5, None) == 0


def test_a_cloud_that_waits_makes_no_headway() -> None:
    assert heard(50, next_in=0.3).tokens(0.5, RTT) == 0


def test_after_a_silence_it_is_not_believed_any_more() -> None:
    headway = heard(50)
    assert headway.tokens(0.5, RTT) > 0
    assert headway.tokens(0.5 + QUIET_S + 2 * RTT, RTT) == 0
