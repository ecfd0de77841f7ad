"""The status line says what there is to say, the most important first, in one row."""

from __future__ import annotations

from datetime import datetime

import pytest
from rich.cells import cell_len

from acespec.edge.chat.status import status_of
from acespec.edge.view import View

CLOCK = datetime(2026, 3, 1, 12, 0, 30)
BUSY = View(
    running=True,
    link_kbps=41.4,
    rtt_ms=102.0,
    draft_length=6,
    acceptance_length=2.345,
    bytes_per_token=43.2,
    committed=40,
    verifier_load=0.12,
)


def test_all_figures_have_their_units() -> None:
    status = status_of(BUSY, 12.0, CLOCK, asked=9.0, first=10.0, width=100)
    assert status.text == "40 tokens 20/s · 41 Kbps · RTT 102 ms · D 6 · AL 2.3 · 43 B/token · load 12 %"
    assert not status.alarm


@pytest.mark.parametrize("width", [20, 40, 60, 77, 78, 79])
def test_what_does_not_fit_is_left_out_whole(width: int) -> None:
    whole = status_of(BUSY, 12.0, CLOCK, asked=9.0, first=10.0, width=200).text
    cut = status_of(BUSY, 12.0, CLOCK, asked=9.0, first=10.0, width=width).text
    assert cell_len(cut) < width
    assert whole == cut or whole.startswith(cut + " · ")


def test_before_the_first_token_it_says_for_how_long() -> None:
    status = status_of(View(running=True), 12.4, CLOCK, asked=9.0, first=None, width=80)
    assert status.text == "waiting for the first token 3 s · D 0"


def test_an_outage_stands_out_with_its_beginning() -> None:
    down = View(running=True, waiting_since=5.0)
    status = status_of(down, 12.0, CLOCK, asked=1.0, first=2.0, width=80)
    assert status.text == "waiting for the link since 12:00:23 (7 s)"
    assert status.alarm


def test_alone_it_says_how_far_ahead_it_is() -> None:
    alone = View(running=True, waiting_since=5.0, alone=True, draft_length=131)
    status = status_of(alone, 112.0, CLOCK, asked=1.0, first=2.0, width=80)
    assert status.text == "waiting for the link since 11:58:43 (107 s) · drafting alone: 131 tokens ahead"
