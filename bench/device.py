"""Are the kernels' bits right on this GPU, and how near do they come to what its memory can do?

One script for a day on which a GPU is at hand: it needs no model and no network, takes under six minutes, and ends with
a short table; `--out` gets every figure. Bits come first. Each section runs in a process that may fail without
taking the others' figures with it. Without a GPU everything runs at tiny sizes in Triton's interpreter, to show that
it can: then there are no times.

    python -m acespec.bench.device --out device.json --profile-out h200.json

From a checkout that is not installed (torch, triton, numpy and safetensors are needed), make the package out of links:

    links=$(mktemp -d); mkdir $links/acespec; ln -s "$PWD"/{proto,models,kernels,cloud,bench} $links/acespec/
    PYTHONPATH=$links python3 -m acespec.bench.device --out device.json

How times are taken: launches are recorded in a CUDA graph, one after another, and the graph is replayed and timed by
the device's own events, median of many; so what a launch costs the host does not count, the gap between two kernels
does. Weights and keys change from launch to launch, so that several times the second-level cache pass by before one
is read again. Rates are relative to a copy inside the device's memory, read and written bytes counted. `wall` is
a whole step as its caller sees it.

The table shows what was measured for its own sake and every target that is missed; the status is 1 if a bit differs or
a section failed. That wide and narrow tiles differ is no fault: the narrow ones then serve all steps.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from acespec.bench.device_figures import Outcome, as_data, table
from acespec.bench.device_process import Plan, Supervisor

ORDER = (
    "device",
    "product bits",
    "noise and sampling bits",
    "model bits",
    "attention",
    "steps, bf16",
    "steps, w4",
    "products",
    "sampling",
    "small kernels",
    "timing profile",
)
"""In order of importance: what comes last is lost first when time is short."""
BITS = ORDER[:4]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Record:
    """Keeps outcomes, and writes them down after each section, so that little is lost if the run is stopped."""

    out: Path | None
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """One more section has ended."""
        log.info("%s: %s after %.1f s", outcome.section, outcome.status, outcome.seconds)
        if outcome.error:
            log.info("%s", outcome.error)
        self.outcomes.append(outcome)
        self.save(self.outcomes)

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Write what is known."""
        if self.out is not None:
            self.out.write_text(json.dumps(as_data(outcomes), indent=1) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every figure as JSON")
    parser.add_argument("--profile-out", type=Path, metavar="FILE", help="save the 8B model's timing profile")
    parser.add_argument("--budget-s", type=float, default=330.0, help="seconds after which no section goes on")
    parser.add_argument("--only", action="append", metavar="SECTION", choices=ORDER, help=f"of {', '.join(ORDER)}")
    options = parser.parse_args(argv)
    for path in (options.out, options.profile_out):
        if path is not None and not path.resolve().parent.is_dir():
            parser.error(f"{path} cannot be written: there is no such folder; make it first")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")

    sections = tuple(name for name in ORDER if options.only is None or name in options.only)
    record = Record(options.out)
    outcomes = Supervisor(Plan(sections, options.profile_out), options.budget_s, record.add).run()
    record.save(outcomes)
    sys.stdout.write(table(outcomes))
    return int(any(map(_bad, outcomes)))


def _bad(outcome: Outcome) -> bool:
    wrong = outcome.section in BITS and any(figure.verdict == "MISSED" for figure in outcome.figures)
    return wrong or outcome.status == "failed"


if __name__ == "__main__":
    sys.exit(main())
