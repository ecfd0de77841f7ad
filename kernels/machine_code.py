"""What a compiled kernel consists of: registers, memory, instructions. Read with the tools that Triton brings along.

`cuobjdump` tells registers and stack, `nvdisasm` lists the instructions (CUDA Binary Utilities, NVIDIA). Two kernels
have the same digest if every instruction has the same 128 bits, scheduling hints included; their names, line numbers
and addresses do not enter.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import triton

from acespec.proto.errors import UsageError

SPILLS = ("LDL", "STL")
"""Loads and stores of a thread's local memory, which lies in device memory: what did not fit into registers."""

_RESOURCE = re.compile(r"\b(REG|STACK|LOCAL|SHARED):(\d+)")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?P<text>\S[^;]*?)\s*;\s+/\* (?P<low>0x[0-9a-f]{16}) \*/")
_SECOND_HALF = re.compile(r"^\s+/\* (0x[0-9a-f]{16}) \*/")
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_VECTOR = re.compile(r"\.128(\.|\b)")


@dataclass(frozen=True, slots=True)
class MachineCode:
    """One cubin.

    Attributes:
        registers: of a thread.
        stack, local: bytes of a thread that lie in device memory; 0 in a kernel that spills nothing.
        static_shared: bytes of shared memory that the cubin itself claims; Triton asks for the rest at launch.
        instructions: how often each family occurs, such as `LDGSTS` for `LDGSTS.E.BYPASS.128`.
        wide: how many of a family move 16 bytes a thread.
        digest: SHA-256 of all instruction words, 16 hex digits.
    """

    registers: int
    stack: int
    local: int
    static_shared: int
    instructions: Mapping[str, int]
    wide: Mapping[str, int]
    digest: str

    @property
    def total(self) -> int:
        """All instructions but the filling behind the end."""
        return sum(self.instructions.values()) - self.count("NOP")

    @property
    def spills(self) -> int:
        """Loads and stores of local memory."""
        return sum(self.count(family) for family in SPILLS)

    def count(self, family: str) -> int:
        """How many instructions are of a family."""
        return self.instructions.get(family, 0)


@cache
def read_cubin(cubin: bytes) -> MachineCode:
    """Take a cubin apart.

    Raises:
        UsageError: the bytes are no cubin that the bundled tools can read.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = _run("cuobjdump", "-res-usage", str(path))
        listing = _run("nvdisasm", "-c", "-hex", str(path))
    return parse(usage, listing)


def parse(usage: str, listing: str) -> MachineCode:
    """From the text of both tools, for one kernel or a kernel with the functions that it calls (the largest counts)."""
    resources: dict[str, int] = {}
    for name, number in _RESOURCE.findall(usage):
        resources[name] = max(int(number), resources.get(name, 0))
    operations = list(_operations(listing))
    if "REG" not in resources or not operations:
        raise UsageError("no kernel in this cubin; give the cubin of a compiled Triton kernel")
    return MachineCode(
        registers=resources["REG"],
        stack=resources.get("STACK", 0),
        local=resources.get("LOCAL", 0),
        static_shared=resources.get("SHARED", 0),
        instructions=Counter(_family(text) for text, _ in operations),
        wide=Counter(_family(text) for text, _ in operations if _VECTOR.search(text)),
        digest=hashlib.sha256("\n".join(word for _, word in operations).encode()).hexdigest()[:16],
    )


def _operations(listing: str) -> Iterator[tuple[str, str]]:
    """Each instruction as its text and its 128 bits, which `nvdisasm -hex` prints on two lines."""
    lines = iter(listing.splitlines())
    for line in lines:
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        second = _SECOND_HALF.match(next(lines, ""))
        if second is None:
            raise UsageError("nvdisasm prints instructions in another form than expected; pin Triton to 3.6 .. 3.9")
        yield _PREDICATE.sub("", found["text"]), found["low"] + second[1]


def _family(text: str) -> str:
    return re.split(r"[.\s]", text, maxsplit=1)[0]


def _run(tool: str, *arguments: str) -> str:
    command = [str(_tool(tool)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise UsageError(f"{tool} cannot read this cubin: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _tool(name: str) -> Path:
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    if not path.exists():
        raise UsageError(f"Triton {triton.__version__} brings no {name}; install the wheel from PyPI (3.6 .. 3.9)")
    return path
