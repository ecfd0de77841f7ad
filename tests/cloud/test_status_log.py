"""The operator's line."""

from __future__ import annotations

import logging

import pytest

from acespec.cloud.scheduler import FreeRun
from acespec.cloud.status_log import StatusLog
from tests.cloud.engine_lab import Lab, truth


def test_the_line_says_what_was_done_and_comes_once_in_a_period(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(FreeRun.ALWAYS)
    turn = lab.open(max_tokens=200)
    status = StatusLog(lab.table, every_s=1.0)
    lab.prefill()
    with caplog.at_level(logging.INFO):
        for _ in range(21):
            lab.draft(turn, truth(turn, 3))
            step = lab.plan()
            assert step is not None
            done = lab.run(step, 0.1)
            status.stepped(lab.now, step, 0.1, sum(len(item.tokens) for _, item in done))
    lines = [r.message for r in caplog.records if "tokens/s" in r.message]
    assert len(lines) == 2
    assert "1 turns, 0 waiting" in lines[1]
    assert "40.0 tokens/s, 10.0 steps/s of 4.0 rows, busy 100 %" in lines[1]
    assert "KV pages 2 in use" in lines[1]
