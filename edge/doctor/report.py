"""The doctor's findings for people, a line or two each, and for machines, one JSON object."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from acespec.edge.doctor.finding import Finding, Level

MARKS = {Level.OK: "ok", Level.WARNING: "warning", Level.FAULT: "FAULT", Level.SKIPPED: "-"}
COLOURS = {Level.OK: "32", Level.WARNING: "33", Level.FAULT: "1;31", Level.SKIPPED: "2"}
WIDTH = 12


def lines_of(finding: Finding, *, colour: bool = False) -> list[str]:
    """`  ok      check        what`, and the fix in a line of its own."""
    mark = f"{MARKS[finding.level]:8}"
    if colour:
        mark = f"\x1b[{COLOURS[finding.level]}m{mark}\x1b[0m"
    first = f"{mark}{finding.check:{WIDTH}} {finding.what}"
    return [first, f"{'':{8 + WIDTH}} -> {finding.fix}"] if finding.fix else [first]


def summary(findings: Sequence[Finding]) -> str:
    """The last line."""
    count = Counter(finding.level for finding in findings)
    faults, warnings = count[Level.FAULT], count[Level.WARNING]
    if faults:
        return f"{_many(faults, 'fault')}, {_many(warnings, 'warning')}: begin with the first fault"
    return f"no fault, {_many(warnings, 'warning')}: acespec is ready"


def as_json(findings: Sequence[Finding], versions: dict[str, str]) -> dict[str, object]:
    """The object of `--json`."""
    return {
        "ok": not any(finding.level is Level.FAULT for finding in findings),
        "findings": [{"check": f.check, "level": str(f.level), "what": f.what, "fix": f.fix or None} for f in findings],
        "versions": versions,
    }


def teller(*, quiet: bool) -> Callable[[Finding], None]:
    """Writes each finding to stdout as soon as it is there: a slow link makes for slow checks."""
    colour = sys.stdout.isatty() and not _no_colour()

    def tell(finding: Finding) -> None:
        if not quiet:
            sys.stdout.write("".join(f"{line}\n" for line in lines_of(finding, colour=colour)))
            sys.stdout.flush()

    return tell


def _no_colour() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _many(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"
