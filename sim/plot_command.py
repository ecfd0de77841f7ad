"""The body of `acespec-sim plot`: pictures of a sweep, the usual ones or the one asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from acespec.proto.errors import UsageError
from acespec.sim.sweep_store import SweepData, SweepStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS = "plots"


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """See the options of the command."""

    folder: Path
    x: str | None = None
    y: str | None = None
    by: str | None = None
    format: str = "png"


def plot_command(options: PlotOptions) -> str:
    """The names of the files that were written. Raises UsageError."""
    require_matplotlib()
    from acespec.sim.plots import style

    if options.format not in style.FORMATS:
        raise UsageError(f"--format {options.format}: choose one of {', '.join(style.FORMATS)}")
    data = load_cells(options.folder)
    target = options.folder / PLOTS
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    written = []
    for name, figure in _figures(data, options):
        written.append(target / f"{name}.{options.format}")
        style.save(figure, written[-1])
    return "\n".join(map(str, written))


def load_cells(folder: Path) -> SweepData:
    """A sweep with finished cells. Raises UsageError."""
    data = SweepStore(folder).load()
    if not data.cells:
        raise UsageError(f"{folder} has no finished cells yet: run acespec-sim sweep again")
    return data


def require_matplotlib() -> None:
    """Raises UsageError if it is missing."""
    if find_spec("matplotlib") is None:
        raise UsageError("plots need matplotlib: pip install 'acespec[sim]'")


def _figures(data: SweepData, options: PlotOptions) -> Iterable[tuple[str, Figure]]:
    from acespec.sim.plots.catalogue import standard_plots, xs_of
    from acespec.sim.plots.curves import one_figure
    from acespec.sim.plots.grid import find_axis, strategy_axis

    if options.x is None and options.y is None and options.by is None:
        return standard_plots(data)
    x = options.x or xs_of(data)[0]
    y = options.y or "tokens_per_s"
    by = strategy_axis(data) if options.by is None else find_axis(options.by, data)
    name = f"{y}_over_{x.replace('.', '_')}"
    pages = one_figure(data, x, y, by)
    return [(name if number == 1 else f"{name}_{number}", page) for number, page in enumerate(pages, 1)]
