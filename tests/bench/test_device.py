"""The script for a day with a GPU: it runs from end to end, and no fault of one section costs another's figures."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from acespec.bench import device, device_checks
from acespec.bench.device_figures import Figure, Outcome, as_data, table
from acespec.bench.device_lab import Lab, differing, relative_error
from acespec.bench.device_process import Plan, Supervisor
from acespec.cloud.cuda_backend.product import Product
from acespec.proto.timing_profile import TimingProfile

FAULTY = "tests.bench.faulty_sections"


@pytest.mark.timeout(600)
def test_the_whole_script_in_the_interpreter(tmp_path: Path) -> None:
    out, profile = tmp_path / "device.json", tmp_path / "profile.json"
    files = ["--out", str(out), "--profile-out", str(profile)]
    command = [sys.executable, "-m", "acespec.bench.device", "--budget-s", "550", *files]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout
    told: list[dict[str, Any]] = json.loads(out.read_text())
    assert [(section["section"], section["status"]) for section in told] == [(name, "done") for name in device.ORDER]
    bits = [f for section in told if section["section"] in device.BITS for f in section["figures"] if f["target"]]
    assert len(bits) > 30
    assert {f["verdict"] for f in bits if "plain code" not in f["name"]} == {"met"}
    timed = [f for section in told if section["section"] not in device.BITS for f in section["figures"]]
    assert len(timed) > 30
    assert {f["value"] for f in timed} == {None}
    assert TimingProfile.load(profile).name == "tiny model in the interpreter, no device"
    assert done.stdout.splitlines()[-1].startswith(f"{len(device.ORDER)} of {len(device.ORDER)} sections complete")


def supervised(*sections: str, budget_s: float = 50.0, profile_out: Path | None = None) -> list[Outcome]:
    told: list[Outcome] = []
    plan = Plan(sections, profile_out, FAULTY)
    outcomes = Supervisor(plan, budget_s, told.append, patience_s=4.0).run()
    assert told == [outcome for outcome in outcomes if outcome.status != "skipped"]
    return outcomes


def test_a_fault_costs_no_other_section_its_figures() -> None:
    outcomes = supervised("good", "raises", "dies", "hangs", "good again")
    assert [(o.section, o.status, len(o.figures)) for o in outcomes] == [
        ("good", "done", 1),
        ("raises", "failed", 1),
        ("dies", "failed", 1),
        ("hangs", "failed", 1),
        ("good again", "done", 1),
    ]
    reasons = ("RuntimeError: an illegal address", "without a word", "no sign of life")
    assert all(reason in outcome.error for reason, outcome in zip(reasons, outcomes[1:4], strict=True))
    shown = table(outcomes)
    assert "RuntimeError: an illegal address" in shown
    assert shown.splitlines()[-1] == "2 of 5 sections complete; targets: none"


def test_what_does_not_fit_into_the_time_is_said() -> None:
    outcomes = supervised("good", "hangs", "good again", budget_s=3.0)
    assert [o.status for o in outcomes] == ["done", "cut off", "skipped"]
    assert outcomes[2].error


def test_what_cannot_begin_is_not_tried_again(tmp_path: Path) -> None:
    outcomes = supervised("good", "good again", profile_out=tmp_path)
    assert [o.status for o in outcomes] == ["failed", "failed"]
    assert all(o.error.endswith("RuntimeError: the device is lost from the start\n") for o in outcomes)


def test_a_file_that_cannot_be_written_is_told_before_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        device.main(["--out", "no/such/folder/device.json"])
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("figure", "target", "verdict"),
    [
        (Figure("", 0, "", at_most=0), "0", "met"),
        (Figure("", 1, "", at_most=0), "0", "MISSED"),
        (Figure("", 1.1, "", at_most=1.1), "<= 1.1", "met"),
        (Figure("", 74.9, "", at_least=75.0), ">= 75", "MISSED"),
        (Figure("", 75.0, "", at_least=75.0), ">= 75", "met"),
        (Figure("", math.nan, "", at_most=0.1), "<= 0.1", "MISSED"),
        (Figure("", None, "", at_least=75.0), ">= 75", "not measured"),
        (Figure("", 5.0, ""), "", ""),
    ],
)
def test_verdicts(figure: Figure, target: str, verdict: str) -> None:
    assert (figure.target, figure.verdict) == (target, verdict)


def test_the_table_shows_headlines_and_what_is_missed() -> None:
    figures = [
        Figure("met quietly", 0, "differ", at_most=0),
        Figure("missed", 2, "differ", at_most=0),
        Figure("headline", 4.25, "ms", note="of one step", headline=True),
        Figure("lost", math.nan, "relative", at_most=0.1),
    ]
    outcomes = [Outcome("bits", figures, "done", 1.0)]
    shown = table(outcomes)
    assert "met quietly" not in shown
    assert all(word in shown for word in ("missed", "4.25 ms", "of one step", "nan"))
    assert shown.splitlines()[-1] == "1 of 1 sections complete; targets: 2 MISSED, 1 met"
    assert [f["verdict"] for f in as_data(outcomes)[0]["figures"]] == ["met", "MISSED", "", "MISSED"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome("model bits", [Figure("", 0, "", at_most=0)], "done"), False),
        (Outcome("model bits", [Figure("", 1, "", at_most=0)], "done"), True),
        (Outcome("attention", [Figure("", 1, "", at_least=80)], "done"), False),
        (Outcome("attention", [], "failed"), True),
        (Outcome("attention", [], "skipped"), False),
    ],
)
def test_only_bits_and_failures_spoil_the_status(outcome: Outcome, status: bool) -> None:
    assert device._bad(outcome) == status


def test_a_product_that_knows_its_number_of_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = device_checks._run

    def careless(lab: Lab, product: Product, x: torch.Tensor, *, wide: bool = False) -> torch.Tensor:
        out = honest(lab, product, x, wide=wide)
        return torch.nextafter(out, torch.full_like(out, math.inf)) if len(x) == 1 else out

    monkeypatch.setattr(device_checks, "_run", careless)
    lab = Lab.here()
    with lab.fixed_order():
        first = next(device_checks.product_bits(lab))
    assert first.verdict == "MISSED"


COMPILE = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from acespec.bench.device_noise import words_kernel
source = ASTSource(words_kernel, {"words": "*i32", "out": "*fp32", "count": "i32"}, {"BLOCK": 1024})
compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "enable_fp_fusion": False})
"""


def test_the_one_kernel_of_the_script_s_own_compiles() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_measures_of_difference() -> None:
    a = torch.tensor([0.0, 1.0, math.nan])
    assert differing(a, a) == 0
    assert differing(a, torch.tensor([-0.0, 1.0, math.nan])) == 1
    assert relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 5.0])) == pytest.approx(1 / math.sqrt(34))
    assert math.isnan(relative_error(a, torch.ones(3)))
