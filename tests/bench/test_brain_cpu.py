"""The bench of the brain's cost measures what it says, and leaves sessions as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acespec.bench.brain.__main__ import main
from acespec.bench.brain.cpu import brain_scenario, in_the_world, with_full_tree
from acespec.bench.brain.cpu_shares import shares
from acespec.bench.brain.stopwatch import METHODS, PARTS, Spent, brain_time
from acespec.edge.session import EdgeSession


def test_a_drafting_brain_has_guesses_and_nodes_and_a_plain_one_has_none() -> None:
    plain = in_the_world(brain_scenario("h100-70b-fp8", "wan50", 60, "plain"))
    tree = in_the_world(brain_scenario("h100-70b-fp8", "wan50", 60, "rate, tree"))
    assert plain.tokens == tree.tokens == 60
    assert plain.guesses == plain.peak == 0
    assert tree.guesses > 60
    assert 0 < tree.nodes <= tree.peak <= 64
    assert all(tree.calls[part] for part in PARTS)
    assert tree.total_s > 0


def test_full_trees_are_full() -> None:
    spent = with_full_tree(256, steps=5)
    assert spent.tokens == 5 * 3
    assert 200 < spent.nodes <= 256


def test_sessions_are_as_before_afterwards() -> None:
    before = [getattr(EdgeSession, name) for name in METHODS]
    with pytest.raises(ZeroDivisionError), brain_time(Spent()):
        assert EdgeSession.poll is not before[list(METHODS).index("poll")]
        raise ZeroDivisionError
    assert [getattr(EdgeSession, name) for name in METHODS] == before


def test_the_shares_of_all_ideas_add_up() -> None:
    parts = shares(brain_scenario("h100-70b-fp8", "wan50", 40, "rate, tree"))
    assert sum(parts.values()) == pytest.approx(1.0)
    assert all(parts[idea] > 0.01 for idea in ("tree", "estimates", "pricing", "coding", "session"))


def test_the_command_prints_tables_and_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    assert main(["cpu", "--tokens", "30", "--runs", "1", "--sizes", "16", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "fixed:16, tree" in shown
    assert "16 nodes" in shown
    costs = json.loads(file.read_text())["costs"]
    assert [row["name"] for row in costs["a full tree"]] == ["16 nodes"]
    assert costs["a100-70b, wan50"][0]["guesses"] == 0
