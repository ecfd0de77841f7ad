"""What a bug report needs to say about a machine. No package is imported for it, and no secret is in it."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "grpcio",
    "protobuf",
    "numpy",
    "tokenizers",
    "safetensors",
    "zstandard",
    "typer",
    "rich",
    "starlette",
    "uvicorn",
    "mlx",
    "mlx-lm",
    "ik-llama-cpp-python",
    "torch",
    "transformers",
)
ABSENT = "not installed"


def version_report() -> dict[str, str]:
    """Names and values, the program first."""
    return {
        "acespec": installed("acespec"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores{_memory()}",
        "encoding": f"{sys.stdout.encoding or 'none'}, {'terminal' if sys.stdout.isatty() else 'no terminal'}",
        **{package: installed(package) for package in PACKAGES},
        "settings": ", ".join(names_set()) or "no ACESPEC_ variable is set",
    }


def installed(package: str) -> str:
    """Its version, or `ABSENT`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ABSENT


def names_set() -> list[str]:
    """The names, and never the values, of our variables in the environment."""
    return sorted(name for name in os.environ if name.startswith("ACESPEC_"))


def report_lines(report: dict[str, str]) -> list[str]:
    """Two columns; the first line is the program's, as other programs print it."""
    width = max(map(len, report))
    first, *rest = report.items()
    return [" ".join(first), *(f"{name:{width}}  {value}" for name, value in rest)]


def _memory() -> str:
    try:
        return f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf.
        return ""
