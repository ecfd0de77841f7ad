"""All that is compiled ahead of time for the tests, in a process of its own, as one JSON object on stdout.

The other tests interpret kernels, and Triton decides that when a kernel is defined; so nothing is compiled in their
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE_S = 500


def results() -> dict[str, Any]:
    """What `main` tells, from one run of this file."""
    done = _run()
    assert done.returncode == 0, done.stderr[-4000:]
    return _read(done.stdout)


@cache
def _run() -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # `timeout` ends it with a status, so that a run that hangs is not tried again by each test.
    command = ["timeout", str(PATIENCE_S), sys.executable, "-m", "tests.kernels.ahead_process"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)


@cache
def _read(answer: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer)
    return told


def main() -> None:
    """Write down: `cases` by name, `launches` by scenario (one list for each number of rows), `small` kernels."""
    from triton import CompilationError

    from acespec.kernels.ahead import all_cases, specialisation
    from acespec.kernels.report import as_json, read_case
    from acespec.proto.errors import UsageError
    from tests.kernels import launch_scenarios, small_kernels
    from tests.kernels.launch_keys import launched

    def read(case: Any) -> dict[str, Any]:
        try:
            (told,) = json.loads(as_json([read_case(case)]))
        except (CompilationError, RuntimeError, UsageError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
        return told | {"key": specialisation(case).as_text()}

    def keys(launch: Callable[[int], None]) -> list[list[str]]:
        return [[key.as_text() for key in launched(partial(launch, rows))] for rows in launch_scenarios.ROWS]

    told = {
        "cases": {case.name: read(case) for case in all_cases()},
        "launches": {name: keys(launch) for name, launch in launch_scenarios.SCENARIOS.items()},
        "small": {name: read(case) for name, case in small_kernels.CASES.items()},
        "small launches": {name: keys(launch) for name, launch in small_kernels.LAUNCHES.items()},
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
