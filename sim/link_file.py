"""Own links as TOML files: any field of `LinkSpec`, on top of a preset if one is named.

Two things a file may say that a spec cannot: `preset`, the link to start from, and in `rate_up` and `rate_down` a
`trace`, a file (relative to this one) to read the rate from, with `scale_to_mean_kbps`.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.rate import RateTrace
from acespec.sim.rate_trace import read_rate_trace
from acespec.sim.spec import LinkSpec
from acespec.sim.spec_reader import spec_from_table


def read_link_file(path: str | os.PathLike[str]) -> LinkSpec:
    """The link of a TOML file; its name is that of the file unless given. Raises UsageError naming file and field."""
    table = _parse(Path(path))
    try:
        return _spec(table, Path(path))
    except UsageError as error:
        raise UsageError(f"{os.fspath(path)}: {error}") from error


def _spec(table: dict[str, object], path: Path) -> LinkSpec:
    table.setdefault("name", path.stem)
    preset = table.pop("preset", None)
    if preset is not None and not isinstance(preset, str):
        raise UsageError(f"link preset is {preset!r}: it must be the name of a preset, in quotes")
    for field in ("rate_up", "rate_down"):
        rate = table.get(field)
        if isinstance(rate, dict) and "trace" in rate:
            trace = _trace(field, rate, path.parent)
            table[field] = {"points": trace.points, "period_s": trace.period_s}
    return spec_from_table(table, None if preset is None else LinkSpec.preset(preset))


def _trace(field: str, table: dict[str, object], folder: Path) -> RateTrace:
    if extra := sorted(set(table) - {"trace", "scale_to_mean_kbps"}):
        raise UsageError(f"{field} has no field {extra[0]!r} beside trace: its fields are trace, scale_to_mean_kbps")
    name, mean = table["trace"], table.get("scale_to_mean_kbps")
    if not isinstance(name, str):
        raise UsageError(f"link {field} trace is {name!r}: it must be the name of a file, in quotes")
    trace = read_rate_trace(folder / name)
    if mean is None:
        return trace
    if isinstance(mean, bool) or not isinstance(mean, (int, float)):
        raise UsageError(f"link {field} scale_to_mean_kbps is {mean!r}: it must be a number")
    return trace.scale_to_mean_kbps(mean)


def _parse(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read link file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"link file {path} is not TOML: {error}") from error
