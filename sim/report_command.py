"""The body of `acespec-sim report`: a sweep's folder in, one HTML file out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.plot_command import load_cells, require_matplotlib

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """See the options of the command; `out` None puts it into the folder."""

    folder: Path
    out: Path | None = None


def report_command(options: ReportOptions) -> str:
    """The name of the file that was written. Raises UsageError."""
    require_matplotlib()
    from acespec.sim.report import report_html

    data = load_cells(options.folder)
    target = options.out or options.folder / REPORT
    try:
        target.write_text(report_html(data), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    return str(target)
