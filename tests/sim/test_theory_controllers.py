"""Published stopping rules decide at their thresholds; every form says where it comes from."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.sim import theory
from acespec.sim.theory import controllers
from acespec.sim.theory.acceptance import tokens_per_step
from acespec.sim.theory.costs import Costs
from acespec.sim.theory.stopping import stopping_depth


def test_specdec_stops_once_a_rejection_is_likely() -> None:
    assert not controllers.specdec_stops([0.9, 0.9], 0.2)
    assert controllers.specdec_stops([0.9, 0.9, 0.9], 0.2)
    assert not controllers.specdec_stops([], 0.0)


def test_adaedl_stops_on_entropy() -> None:
    assert not controllers.adaedl_stops(1.25, 0.5)
    assert controllers.adaedl_stops(1.26, 0.5)


def test_pipesd_verifies_on_the_product_or_on_one_doubtful_token() -> None:
    assert not controllers.pipesd_verifies([0.9, 0.8], R1=0.7, R2=0.3)
    assert controllers.pipesd_verifies([0.9, 0.8], R1=0.73, R2=0.3)
    assert controllers.pipesd_verifies([0.9, 0.8, 0.9], R1=0.7, R2=0.3)
    assert controllers.pipesd_verifies([0.9, 0.3], R1=0.1, R2=0.3)
    assert not controllers.pipesd_verifies([0.3, 0.9], R1=0.1, R2=0.3)
    assert controllers.pipesd_product_threshold(0.040, 5) == pytest.approx(0.20)


def test_specedge_balances_draft_and_verify() -> None:
    assert controllers.specedge_depth(Costs(t_d=5, t_v=40, t_ar=25, R=15)) == 5
    assert controllers.specedge_depth(Costs(t_d=5, t_v=40, t_ar=25, R=60)) == 0


def test_ollama_takes_the_best_ratio_and_none_on_a_tie() -> None:
    assert controllers.ollama_draft_count([1, 1.8, 2.3], [10, 12, 18]) == 1
    assert controllers.ollama_draft_count([1, 1.5], [10, 15]) == 0


def test_ucb_counts_unseen_depths_as_certain() -> None:
    assert controllers.ucb_rates([0.1, 0.1, 0.5], [0, 10**9, 8], 1) == (1.0, pytest.approx(0.1), 0.5)
    # ln 10 / 50 = .0461: a^ + .303 at 50 visits.
    assert controllers.ucb_rates([0.4], [50], 10) == (pytest.approx(0.4 + (2 * 2.302585 / 50) ** 0.5),)
    assert controllers.ucb_tokens([0.5, 0.9], [0, 0], 5) == (1, 2, 3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(1, 500))
def test_ucb_ends_at_the_best_arm(rates: list[float], R: float) -> None:
    costs = Costs(t_d=5, t_v=25, t_ar=1e6, R=R)
    visits = [10**15] * len(rates)
    assert controllers.ucb_tokens(rates, visits, 1)[-1] == pytest.approx(tokens_per_step(rates, len(rates)))
    arm = controllers.ucb_arm(costs, rates, visits, 1)
    best = max(1, stopping_depth(rates, costs.t_d, costs.C, len(rates)))
    assert (arm * costs.t_d + costs.C) / tokens_per_step(rates, arm) == pytest.approx(
        (best * costs.t_d + costs.C) / tokens_per_step(rates, best)
    )


def test_ucb_turns_drafting_off_where_the_cloud_alone_is_faster() -> None:
    visits = [10**9] * 4
    assert controllers.ucb_arm(Costs(t_d=5, t_v=25, t_ar=25, R=100), [0.6] * 4, visits, 2) == 0
    assert controllers.ucb_arm(Costs(t_d=5, t_v=25, t_ar=25, R=5), [0.6] * 4, visits, 2) > 0


def test_regret_grows_slower_than_time() -> None:
    # 8 arms x 100 rounds: 100 sqrt(800 ln 800), ln 800 = 6.6846.
    assert controllers.ucb_regret_order(100, 8, 100) == pytest.approx(100 * (800 * 6.684612) ** 0.5)
    early, late = (controllers.ucb_regret_order(100, 8, rounds) / rounds for rounds in (100, 10_000))
    assert late < early / 5


def test_every_form_names_its_source() -> None:
    source = re.compile(r"arXiv\s+\d{4}\.\d{5}|\bderived\b|\bDefinition:|\(definition|Ollama")
    checked = 0
    for module in pkgutil.iter_modules(theory.__path__, theory.__name__ + "."):
        loaded = importlib.import_module(module.name)
        for name, form in inspect.getmembers(loaded, inspect.isfunction):
            if form.__module__ == module.name and not name.startswith("_"):
                assert source.search(inspect.getdoc(form) or ""), f"{module.name}.{name}"
                checked += 1
    assert checked > 70
