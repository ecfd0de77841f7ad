"""Table III of "Speculation at a Distance" (arXiv 2606.25091), found in the world: up to which round trip stop-and-wait
with D = 5, t_d = 10, t_v = t_ar and no transmission time beats plain decoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from acespec.sim.theory.acceptance import tokens_per_step
from acespec.sim.theory.costs import Costs
from acespec.sim.theory.distance import rtt_max_ms

from .strategy_lab import flat_target, scene, speed

RATES = (0.5, 0.7, 0.85, 0.9)
TABLE = {
    100: (47, 144, 265, 319),
    50: (-2, 47, 108, 134),
    30: (-21, 8, 45, 61),
    20: (-31, -11, 13, 24),
}
"""ms by t_ar, for `RATES`; below 0, where the paper prints a dash, it never pays."""
CLOSE = 0.03
"""How far a simulated round may be from the closed form's."""


@pytest.mark.parametrize("t_ar", TABLE)
def test_the_sign_changes_where_the_table_says(t_ar: int, tmp_path: Path) -> None:
    target = flat_target(tmp_path, t_ar)
    plain = speed(scene("plain", R=20, a=0.5, tokens=200, target=target, free_run="always"))
    for a, printed in zip(RATES, TABLE[t_ar], strict=True):
        bar = CLOSE * t_ar * tokens_per_step(a, 5)
        wins = [
            speed(scene("stop-and-wait", R=R, a=a, t_d=10, tokens=2000, target=target, draft=5)) > plain
            for R in (printed - bar, printed + bar)
            if R >= 0
        ]
        assert wins == ([True, False] if printed > 0 else [False] * len(wins))
        if printed < 0:
            assert speed(scene("stop-and-wait", R=0, a=a, t_d=10, tokens=2000, target=target, draft=5)) < plain


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("t_ar", TABLE)
def test_the_crossings_themselves(t_ar: int, tmp_path: Path) -> None:
    """Two long runs and the line between them; a cell is met within 1 % of the round that breaks even."""
    target = flat_target(tmp_path, t_ar)
    costs = Costs(t_d=10, t_v=t_ar, t_ar=t_ar)
    plain_ms = 1000 / speed(scene("plain", R=20, a=0.5, tokens=500, target=target, free_run="always"))
    for a, printed in zip(RATES, TABLE[t_ar], strict=True):
        near, far = (
            1000 / speed(scene("stop-and-wait", R=R, a=a, t_d=10, tokens=20_000, target=target, draft=5))
            for R in (0, 400)
        )
        crossing = 400 * (plain_ms - near) / (far - near)
        assert crossing == pytest.approx(rtt_max_ms(costs, a, 5), abs=0.01 * t_ar * tokens_per_step(a, 5))
        assert (crossing < 0) == (printed < 0)
