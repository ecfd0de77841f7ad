"""The default model over the real stack: the ids do not depend on how they are made, and it guesses itself."""

from __future__ import annotations

import pytest

from acespec.bench.identity import Cell, run_cells, self_draft, twenty_cells
from acespec.bench.prompts import PROMPTS

pytestmark = [pytest.mark.model]

MODEL = "smollm2-135m"
LEAD_BELOW_WHICH_A_MISS_IS_ROUNDING = 0.01


@pytest.mark.timeout(300)  # Two cells take 20 s on free cores; the model's steps slow down a lot on busy ones.
def test_two_cells() -> None:
    cells = [Cell("ngram", "4", 0.0, "never", PROMPTS[3]), Cell("ngram", "16", 0.7, "never", PROMPTS[3])]
    results = run_cells(MODEL, cells, 12)
    assert [same for _, _, same in results] == [True, True]
    assert results[0][1].totals.accepted_tokens > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_cells() -> None:
    cells = twenty_cells()
    assert len(cells) == 20
    results = run_cells(MODEL, cells, 24)
    assert [cell for cell, _, same in results if not same] == []
    assert len(results) == 20


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_model_guesses_itself(temperature: float) -> None:
    """Both ends share the noise, so only the rounding of two runtimes is between a guess and the truth."""
    (result,) = self_draft(MODEL, [temperature], PROMPTS[2:3], 32)
    assert result.positions == 32
    assert all(miss.lead < LEAD_BELOW_WHICH_A_MISS_IS_ROUNDING for miss in result.misses)
    assert len(result.misses) <= 1
    assert result.accepted >= 0.9 * result.drafted
