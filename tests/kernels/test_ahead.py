"""Every kernel as machine code for an H100: no spills, the instructions expected, one code for all numbers of rows."""

from __future__ import annotations

from typing import Any

import pytest
import triton

from acespec.kernels.ahead import all_cases
from acespec.kernels.report import BEGIN, END
from tests.kernels.ahead_process import ROOT, results
from tests.kernels.launch_scenarios import ROWS, SCENARIOS

# The first test to ask waits for all compilations.
pytestmark = pytest.mark.timeout(600)

NAMES = [case.name for case in all_cases()]
DOCUMENT = ROOT / "docs" / "kernels.md"


def case(name: str) -> dict[str, Any]:
    told: dict[str, Any] = results()["cases"][name]
    assert "error" not in told, told["error"]
    return told


def small(name: str) -> dict[str, Any]:
    told: dict[str, Any] = results()["small"][name]
    assert "error" not in told, told["error"]
    return told


@pytest.mark.parametrize("name", NAMES)
def test_machine_code_keeps_its_gates(name: str) -> None:
    assert case(name)["violations"] == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_lies_in_local_memory(name: str) -> None:
    told = case(name)
    assert (told["stack"], told["local"]) == (0, 0)
    assert not {"LDL", "STL"} & told["instructions"].keys()


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_same_machine_code_for_every_number_of_rows(scenario: str) -> None:
    by_rows = results()["launches"][scenario]
    assert by_rows[0], "nothing is launched"
    assert {rows: keys for rows, keys in zip(ROWS, by_rows, strict=True) if keys != by_rows[0]} == {}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_launched_is_what_was_compiled(scenario: str) -> None:
    compiled = [told["key"] for told in results()["cases"].values() if "key" in told]
    for launched in results()["launches"][scenario][0]:
        like = [key for key in compiled if key.split(";")[0] == launched.split(";")[0]]
        if launched not in like:
            pytest.fail("\n".join([f"launched {launched}", *(f"compiled {key}" for key in like)]))


@pytest.mark.parametrize("name", NAMES)
def test_what_was_compiled_is_launched(name: str) -> None:
    launched = {key for by_rows in results()["launches"].values() for keys in by_rows for key in keys}
    assert case(name)["key"] in launched


def test_a_good_kernel_passes() -> None:
    told = small("good")
    assert told["violations"] == []
    assert told["registers"] > 0
    assert told["wide"]["LDG"] == told["instructions"]["LDG"] == 2
    assert "STG" not in told["wide"]


@pytest.mark.parametrize(
    ("name", "complaints"),
    [
        ("fused", ["enable_fp_fusion is not off", "fused multiply-adds", "FFMA, none allowed"]),
        ("greedy", ["registers > 8"]),
        ("no matrix unit", ["0 HGMMA < 1"]),
        ("crowded", ["spills: "]),
    ],
)
def test_a_gate_stops_what_breaks_it(name: str, complaints: list[str]) -> None:
    violations = small(name)["violations"]
    assert len(violations) == len(complaints)
    assert all(complaint in violation for complaint, violation in zip(complaints, violations, strict=True))


@pytest.mark.parametrize(
    ("kernel", "codes"), [("scale", 1), ("scale_if_aligned", 1), ("scale_if_one", 2), ("scale_careless", 3)]
)
def test_rows_that_are_not_exempt_change_the_machine_code(kernel: str, codes: int) -> None:
    by_rows = results()["small launches"][kernel]
    assert len({keys[0] for keys in by_rows}) == codes


def test_those_codes_do_differ() -> None:
    special, general = ["for one row", "for aligned rows"], small("for any rows")
    assert {small(name)["key"] for name in special} <= {k for (k,) in results()["small launches"]["scale_careless"]}
    assert all(small(name)["digest"] != general["digest"] for name in special)


def test_the_digest_knows_no_names() -> None:
    assert small("twice")["digest"] == small("twice by another name")["digest"] != small("good")["digest"]


def test_the_document_tells_of_every_case() -> None:
    written = _written()
    assert [name for name in NAMES if f"\n| {name} |" not in written] == []


def test_the_document_shows_the_present_machine_code() -> None:
    written = _written()
    if f"Triton {triton.__version__}," not in written:
        pytest.skip("the document was made with another version of Triton")
    stale = [name for name in NAMES if f"\n{case(name)['row']}\n" not in written]
    assert stale == [], "run python -m acespec.kernels.report --out docs/kernels.md"


def _written() -> str:
    return DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]
