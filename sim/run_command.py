"""The body of `acespec-sim run`: one scenario in virtual time, on the live stack, or on both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.result_text import comparison_text, result_text
from acespec.sim.scenario_file import read_scenario
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import Scenario
from acespec.sim.world.world import run

QUIET_S = 2.0
"""A bar is worth its line only for what takes longer."""

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """See the options of the command."""

    scenario: Path
    settings: tuple[str, ...] = ()
    out: Path | None = None
    json: bool = False
    live: bool = False
    compare: bool = False


def run_command(options: RunOptions) -> str:
    """What to print. Raises UsageError, and what the live stack raises."""
    if options.compare and not options.live:
        raise UsageError("--compare sets the live stack beside virtual time: give --live with it")
    scenario = read_scenario(options.scenario, options.settings)
    results = list(_results(scenario, options))
    if options.out is not None:
        results[-1].save(options.out)
    if options.json:
        return _as_json(results)
    return result_text(results[0]) if len(results) == 1 else comparison_text(*results)


def _results(scenario: Scenario, options: RunOptions) -> Iterator[Result]:
    """In virtual time, live, or first the one and then the other."""
    if options.live:
        from acespec.sim.live import check_live, run_live

        check_live(scenario)
    if not options.live or options.compare:
        with progress_bar("virtual time", scenario.duration_s) as progress:
            yield run(scenario, progress)
    if options.live:
        with progress_bar("live", scenario.duration_s) as progress:
            yield run_live(scenario, progress)


def _as_json(results: Sequence[Result]) -> str:
    if len(results) == 1:
        return json.dumps(results[0].as_json())
    return json.dumps({"sim": results[0].as_json(), "live": results[1].as_json()})


@contextmanager
def progress_bar(words: str, seconds: float) -> Iterator[Progress]:
    """A bar on stderr once the work has taken a while; it hears shares from 0 to 1 of `seconds`."""
    from tqdm import tqdm

    often = 0.1 if sys.stderr.isatty() else QUIET_S
    form = "{desc}: {percentage:3.0f} % of {total:.0f} s |{bar}| {elapsed}, {remaining} left"
    with tqdm(
        desc=words, total=seconds, delay=QUIET_S, mininterval=often, leave=False, file=sys.stderr, bar_format=form
    ) as bar:

        def progress(share: float) -> None:
            bar.update(share * seconds - bar.n)

        yield progress
