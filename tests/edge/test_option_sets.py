"""Sets of options: they stand where the set stood, with their own defaults unless the command says otherwise."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.testing import CliRunner

from acespec.edge.option_sets import EdgeOptions, FormatOptions, SamplingOptions, expanding
from acespec.edge.run_options import RunOptions

seen: list[tuple[SamplingOptions, str, int]] = []
app = typer.Typer()


@app.command()
@expanding(temp=0.5)
def command(sampling: SamplingOptions, word: Annotated[str, typer.Option()], number: int = 3) -> None:
    """Say so."""
    seen.append((sampling, word, number))


def test_a_command_gets_its_sets_whole() -> None:
    seen.clear()
    given = ["--word", "w", "--top-k", "7", "--stop", "a", "--stop", "b"]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert seen == [(SamplingOptions(temp=0.5, top_k=7, stop=["a", "b"]), "w", 3)]


def test_what_is_no_option_of_a_set_is_refused() -> None:
    assert CliRunner().invoke(app, ["--word", "w", "--json-object"]).exit_code == 2


def test_a_run_has_what_its_sets_say() -> None:
    edge = EdgeOptions(verifier="v:1", draft_tree="off", on_outage="fail")
    options = RunOptions.of(edge, SamplingOptions(temp=0.7, seed=4, stop=["x"]), format=FormatOptions().format)
    assert (options.verifier, options.draft_tree, options.on_outage) == ("v:1", "off", "fail")
    assert (options.params.temperature, options.seed, options.stop) == (0.7, 4, ("x",))
    assert options.max_kv_size == EdgeOptions().max_kv_size
