"""What the machine code of every kernel looks like, and whether it keeps its gates; no GPU needed.

Compiles each case of each kernel for sm_90 and reads the result. A spill breaks every gate. `--out` writes the table
between the two marks of a Markdown file.

    python -m acespec.kernels.report [--only TEXT] [--json] [--check] [--out docs/kernels.md]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import triton

from acespec.kernels.ahead import Compiled, all_cases, compile_case, jit_function
from acespec.kernels.ahead_case import AheadCase
from acespec.kernels.machine_code import MachineCode, read_cubin
from acespec.proto.errors import AcespecError, UsageError

BEGIN, END = "<!-- machine code: begin -->", "<!-- machine code: end -->"

FAMILIES = ("HGMMA", "LDGSTS", "LDG", "STG", "FFMA", "FMUL", "FADD", "MUFU", "BAR")
WIDE = ("LDGSTS", "LDG", "STG")
"""Families whose 16-byte share is told."""

# An SM of compute capability 9.0 (CUDA C++ Programming Guide, technical specifications).
SM_REGISTERS, SM_SHARED, SM_WARPS, SM_PROGRAMS = 65536, 228 * 1024, 64, 32
SM_PARTS = 4
"""Each has a quarter of the registers and runs whole warps."""
RESERVED_SHARED = 1024
"""Of each program, for the system."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One case's machine code; `violations` says which gates it breaks."""

    compiled: Compiled
    code: MachineCode
    violations: tuple[str, ...]

    @property
    def case(self) -> AheadCase:
        return self.compiled.case

    @property
    def programs(self) -> int:
        """How many fit on one SM at a time."""
        warps = int(str(self.case.options["num_warps"]))
        a_warp = -(-self.code.registers // 8) * 8 * 32
        by_registers = SM_REGISTERS // SM_PARTS // a_warp * SM_PARTS // warps
        by_shared = SM_SHARED // (self.compiled.shared + RESERVED_SHARED)
        return min(by_registers, by_shared, SM_WARPS // warps, SM_PROGRAMS)


def read_case(case: AheadCase) -> Reading:
    """Compile, take apart, judge."""
    compiled = compile_case(case)
    code = read_cubin(compiled.cubin)
    return Reading(compiled, code, tuple(violations(compiled, code)))


def violations(compiled: Compiled, code: MachineCode) -> list[str]:
    """Every gate that the code breaks, in words: the case's own, and those of all kernels."""
    case, found = compiled.case, []
    if case.options.get("enable_fp_fusion") is not False:
        found.append("enable_fp_fusion is not off")
    if compiled.fused:
        found.append(f"{compiled.fused} fused multiply-adds")
    if code.spills or code.stack or code.local:
        found.append(f"spills: {code.spills} accesses, {code.stack + code.local} bytes")
    if code.registers > case.gate.registers:
        found.append(f"{code.registers} registers > {case.gate.registers}")
    for family, least in case.gate.at_least.items():
        if code.count(family) < least:
            found.append(f"{code.count(family)} {family} < {least}")
    found += [f"{code.count(family)} {family}, none allowed" for family in case.gate.none if code.count(family)]
    return found


def read_all(cases: Sequence[AheadCase]) -> list[Reading]:
    """Read each, with a line of progress on stderr."""
    readings = []
    for number, case in enumerate(cases, 1):
        reading = read_case(case)
        verdict = "; ".join(reading.violations) or "ok"
        sys.stderr.write(f"[{number}/{len(cases)}] {case.name}: {reading.compiled.seconds:.1f} s, {verdict}\n")
        readings.append(reading)
    return readings


def table(readings: Iterable[Reading]) -> str:
    """Markdown; numbers in brackets are those that move 16 bytes a thread."""
    head = ["kernel", "registers", "shared", "programs / SM", *FAMILIES, "all", "gate"]
    lines = [_row(head), _row(["---"] * len(head))]
    return "\n".join([*lines, *map(row, readings)])


def section(readings: Sequence[Reading]) -> str:
    """What stands between the marks: the table, then each kernel's floor and design."""
    about = f"Triton {triton.__version__}, `sm_90`, {len(readings)} compilations."
    texts: dict[tuple[str, str], list[str]] = {}
    for reading in readings:
        texts.setdefault((reading.case.floor, reading.case.design), []).append(reading.case.name)
    prose = [
        f"**{'; '.join(names)}**  \nFloor: {floor}  \nDesign: {design}" for (floor, design), names in texts.items()
    ]
    return "\n\n".join([about, table(readings), *prose])


def with_section(document: str, text: str) -> str:
    """The document with `text` between its marks.

    Raises:
        UsageError: a mark is missing.
    """
    if document.count(BEGIN) != 1 or document.count(END) != 1:
        raise UsageError(f"the document needs one line {BEGIN} and one line {END}; add them where the table belongs")
    before, rest = document.split(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}"


def as_json(readings: Iterable[Reading]) -> str:
    """All that was read, one object a case."""
    return json.dumps(
        [
            {
                "name": reading.case.name,
                "kernel": jit_function(reading.case).__name__,
                "registers": reading.code.registers,
                "stack": reading.code.stack,
                "local": reading.code.local,
                "shared": reading.compiled.shared,
                "fused": reading.compiled.fused,
                "programs_per_sm": reading.programs,
                "instructions": dict(sorted(reading.code.instructions.items())),
                "wide": dict(sorted(reading.code.wide.items())),
                "total": reading.code.total,
                "digest": reading.code.digest,
                "seconds": round(reading.compiled.seconds, 3),
                "violations": list(reading.violations),
                "row": row(reading),
            }
            for reading in readings
        ],
        indent=1,
    )


def row(reading: Reading) -> str:
    """A case's line of the table."""
    counts = [_count(reading.code, family) for family in FAMILIES]
    verdict = "; ".join(reading.violations) or "ok"
    sizes = (reading.code.registers, reading.compiled.shared, reading.programs)
    return _row([reading.case.name, *map(str, sizes), *counts, str(reading.code.total), verdict])


def _count(code: MachineCode, family: str) -> str:
    number = code.count(family)
    return f"{number} ({code.wide.get(family, 0)})" if family in WIDE and number else str(number)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m acespec.kernels.report", description="Machine code of every kernel, for sm_90."
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this")
    parser.add_argument("--json", action="store_true", help="all counts, for programs")
    parser.add_argument("--check", action="store_true", help="status 1 if a gate is broken")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rewrite the table of this Markdown file")
    options = parser.parse_args(arguments)
    try:
        return _report(options)
    except AcespecError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _report(options: argparse.Namespace) -> int:
    if options.only and options.out:
        raise UsageError("--out wants the whole table; leave out --only")
    readings = read_all([case for case in all_cases() if options.only in case.name])
    if options.out:
        options.out.write_text(with_section(options.out.read_text(), section(readings)))
    sys.stdout.write((as_json(readings) if options.json else table(readings)) + "\n")
    return int(options.check and any(reading.violations for reading in readings))


if __name__ == "__main__":
    sys.exit(main())
