"""Generate the gRPC stubs of proto/verifier.proto, or check that the committed ones are up to date.

protoc is given the final package path, so that the generated imports are right as they are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "proto"
SOURCE = "acespec/proto/verifier.proto"


def generate(out: Path) -> list[Path]:
    """Write the stubs below `out`; their paths."""
    tools = Path(sys.executable).parent
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-Iacespec/proto={FOLDER.name}",
            f"--plugin=protoc-gen-mypy={tools / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={tools / 'protoc-gen-mypy_grpc'}",
            *(f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")),
            SOURCE,
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return sorted((out / "acespec" / "proto").iterdir())


def main() -> int:
    """Entry point; 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        stale = []
        for path in generate(Path(folder)):
            committed = FOLDER / path.name
            if committed.exists() and committed.read_bytes() == path.read_bytes():
                continue
            stale.append(path.name)
            if not check:
                committed.write_bytes(path.read_bytes())
    if check and stale:
        sys.stderr.write(f"generated stubs are out of date ({', '.join(stale)}): run 'make proto'\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
