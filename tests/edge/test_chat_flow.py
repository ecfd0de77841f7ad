"""Bursts flow evenly, nothing is late, nothing is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.chat.cells import clusters
from acespec.edge.chat.flow import Flow

FRAME_S = 0.04
LATE_S = 0.3


def play(bursts: list[tuple[float, str]], until: float) -> list[tuple[float, str]]:
    """What is shown at each frame."""
    flow, shown, waiting = Flow(), [], list(bursts)
    for frame in range(int(until / FRAME_S) + 1):
        now = frame * FRAME_S
        while waiting and waiting[0][0] <= now:
            flow.push(*waiting.pop(0))
        shown.append((now, flow.due(now)))
    shown.append((until, flow.rest()))
    return shown


def test_the_first_text_is_shown_at_once() -> None:
    flow = Flow()
    flow.push(1.0, "Hello")
    assert flow.due(1.0) == "Hello"


@pytest.mark.parametrize("distance", [0.1, 0.2, 0.24])
def test_even_bursts_become_an_even_flow(distance: float) -> None:
    """24 characters at a time; after the first two bursts every 0.2 s see about as much as they should."""
    bursts = [(n * distance, "x" * 24) for n in range(1, int(6 / distance))]
    shown = play(bursts, 5.0)
    rate = 24 / distance
    for start in range(25, 115, 5):
        seen = sum(len(text) for _at, text in shown[start : start + 5])
        assert seen == pytest.approx(rate * 5 * FRAME_S, rel=0.25)


def test_bursts_with_jitter_leave_few_gaps() -> None:
    dice = random.Random(1)
    at, bursts = 0.0, []
    for _ in range(60):
        at += dice.uniform(0.12, 0.2)
        bursts.append((at, "x" * dice.randrange(10, 30)))
    frames = [text for now, text in play(bursts, at) if now > 1][:-1]
    assert sum(not text for text in frames) < 0.1 * len(frames)
    assert max(map(len, frames)) < 12  # a burst shown as it comes has up to 29


def test_single_tokens_are_hardly_delayed() -> None:
    flow = Flow()
    late: list[float] = []
    for n in range(200):
        now = n * 0.02
        flow.push(now, "word ")
        flow.due(now)
        late.append(len(flow.waiting))
    assert max(late[10:]) <= 10


@given(
    st.lists(st.tuples(st.floats(0, 1.5), st.text(max_size=30)), max_size=20),
    st.floats(0.01, 0.2),
)
def test_nothing_is_late_and_nothing_is_lost(bursts: list[tuple[float, str]], frame: float) -> None:
    flow = Flow()
    now, shown = 0.0, ""
    pushed: list[tuple[float, int]] = []  # when, and how much there was then
    for pause, text in bursts:
        for _ in range(int(pause / frame)):
            now += frame
            shown += flow.due(now)
            old = max((total for at, total in pushed if at <= now - LATE_S - 1e-9), default=0)
            assert len(shown) >= old
        flow.push(now, text)
        pushed.append((now, (pushed[-1][1] if pushed else 0) + len(text)))
        assert shown + flow.waiting == "".join(t for _p, t in bursts)[: len(shown + flow.waiting)]
    assert shown + flow.rest() == "".join(text for _pause, text in bursts)
    assert flow.waiting == ""


def test_a_character_of_several_code_points_is_shown_whole() -> None:
    text = "👩‍🚀é" * 8
    flow = Flow()
    flow.push(0.0, "a")
    flow.due(0.0)
    flow.push(0.2, text)
    whole = {cluster for cluster, _cells in clusters(text)}
    for n in range(40):
        piece = flow.due(0.2 + n * 0.01)
        assert {cluster for cluster, _cells in clusters(piece)} <= whole


def test_time_that_stands_still_shows_nothing_twice() -> None:
    flow = Flow()
    flow.push(0.0, "abc")
    assert flow.due(0.0) == "abc"
    flow.push(0.2, "defghi")
    assert len(flow.due(0.25)) == len("defghi") - len(flow.waiting)
    before = flow.waiting
    assert flow.due(0.25) == ""
    assert flow.waiting == before
