"""Gates, the table and its place in the document."""

from __future__ import annotations

import pytest

from acespec.kernels.ahead import Compiled, all_cases, compile_case
from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.machine_code import MachineCode
from acespec.kernels.report import BEGIN, END, Reading, main, row, section, violations, with_section
from acespec.proto.errors import UsageError


def compiled(fused: int = 0, shared: int = 0, warps: int = 4, **options: object) -> Compiled:
    gate = Gate(100, at_least={"HGMMA": 2}, none=("FFMA",))
    given = {"num_warps": warps, "num_stages": 2, "enable_fp_fusion": False} | options
    case = AheadCase("a kernel", None, {}, {}, (), given, gate, floor="bytes", design="few")
    return Compiled(case, b"", shared, fused, 1.0)


def code(registers: int = 100, stack: int = 0, **instructions: int) -> MachineCode:
    return MachineCode(registers, stack, 0, 0, {"HGMMA": 2, "LDG": 3, "NOP": 9} | instructions, {"LDG": 1}, "00")


def test_code_within_its_gates_breaks_none() -> None:
    assert violations(compiled(), code()) == []


@pytest.mark.parametrize(
    ("made", "read", "complaint"),
    [
        (compiled(), code(registers=101), "101 registers > 100"),
        (compiled(), code(HGMMA=1), "1 HGMMA < 2"),
        (compiled(), code(FFMA=3), "3 FFMA, none allowed"),
        (compiled(), code(LDL=1, STL=2), "spills: 3 accesses, 0 bytes"),
        (compiled(), code(stack=8), "spills: 0 accesses, 8 bytes"),
        (compiled(fused=5), code(), "5 fused multiply-adds"),
        (compiled(enable_fp_fusion=True), code(), "enable_fp_fusion is not off"),
    ],
)
def test_each_gate_is_told_apart(made: Compiled, read: MachineCode, complaint: str) -> None:
    assert violations(made, read) == [complaint]


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "programs"),
    [
        (32, 0, 4, 16),  # by warps
        (16, 0, 1, 32),  # by programs
        (168, 0, 4, 3),  # by registers
        (130, 0, 2, 6),  # a quarter holds three warps of 136 registers, though four times as many would hold 15
        (32, 100 * 1024, 4, 2),  # by shared memory
    ],
)
def test_programs_that_fit_on_a_multiprocessor(registers: int, shared: int, warps: int, programs: int) -> None:
    assert Reading(compiled(shared=shared, warps=warps), code(registers), ()).programs == programs


def test_a_row_of_the_table() -> None:
    reading = Reading(compiled(shared=1024), code(FFMA=4), ("4 FFMA",))
    assert row(reading) == "| a kernel | 100 | 1024 | 4 | 2 | 0 | 3 (1) | 0 | 4 | 0 | 0 | 0 | 0 | 9 | 4 FFMA |"


def test_cases_that_share_their_floor_share_a_paragraph() -> None:
    text = section([Reading(compiled(), code(), ())] * 2)
    assert "**a kernel; a kernel**  \nFloor: bytes  \nDesign: few" in text


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_section(document, "new")
    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert with_section(once, "new") == once


@pytest.mark.parametrize("document", ["", BEGIN, END, f"{BEGIN}{BEGIN}{END}"])
def test_a_document_without_both_marks_is_left_alone(document: str) -> None:
    with pytest.raises(UsageError, match="needs one line"):
        with_section(document, "new")


def test_kernels_that_are_interpreted_are_not_compiled() -> None:
    with pytest.raises(UsageError, match="unset TRITON_INTERPRET"):
        compile_case(all_cases()[0])


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "embed", "--out", "docs/kernels.md"]) == 2
    assert main(["--only", "embed"]) == 2
    assert "unset TRITON_INTERPRET" in capsys.readouterr().err
