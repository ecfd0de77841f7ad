"""The runtimes of draft models: installed, and able to start here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from acespec.edge.doctor.finding import Finding, fault, ok
from acespec.edge.version_report import ABSENT, installed

IMPORTS = {
    "mlx": "import mlx.core as mx, mlx_lm; mx.eval(mx.zeros(1))",
    "gguf": "import ik_llama_cpp",
    "torch": "import torch, transformers; torch.zeros(1)",
}
"""A first move of each runtime; a wheel for another machine fails here, some with a signal."""
DISTRIBUTIONS = {"mlx": ("mlx", "mlx-lm"), "gguf": ("ik-llama-cpp-python",), "torch": ("torch", "transformers")}
IMPORT_TIMEOUT_S = 120.0


def runtime_of(drafter: str) -> str | None:
    """The runtime that a kind of drafter needs; None for those without a model."""
    base, _, runtime = drafter.partition(":")
    if base == "hybrid":
        return runtime or "mlx"
    return base if base in IMPORTS else None


def package_findings(drafter: str) -> Iterator[Finding]:
    """The runtime of this drafter by trying it, the others by their names."""
    runtime = runtime_of(drafter)
    if runtime is not None:
        yield (
            _tried(runtime)
            if runtime in IMPORTS
            else fault(
                "drafter", f"--drafter {drafter} names no runtime", f"take one of {', '.join(IMPORTS)} behind the colon"
            )
        )
    others = "; ".join(f"{name}: {_versions(name)}" for name in IMPORTS if name != runtime)
    yield ok("runtimes", f"not in use now: {others}")


def _tried(runtime: str) -> Finding:
    missing = [package for package in DISTRIBUTIONS[runtime] if installed(package) == ABSENT]
    what = f"drafter {runtime}: {_versions(runtime)}"
    if missing:
        return fault(
            "drafter", f"{what}", f"pip install 'acespec[{runtime}]', or choose --drafter ngram, which needs nothing"
        )
    if (why := import_fault(IMPORTS[runtime])) is not None:
        return fault(
            "drafter",
            f"{what}, but it does not start here: {why}",
            f"pip install --force-reinstall 'acespec[{runtime}]', or choose --drafter ngram, which needs nothing",
        )
    return ok("drafter", what)


def import_fault(program: str) -> str | None:
    """Run `program` in a Python of its own, which may crash; what went wrong, or None."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end after {IMPORT_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return None
    last = done.stderr.strip().splitlines()[-1:]
    return last[0] if last else f"it ends with status {done.returncode}"


def _versions(runtime: str) -> str:
    return ", ".join(f"{package} {installed(package)}" for package in DISTRIBUTIONS[runtime])
