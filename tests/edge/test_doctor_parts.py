"""Single checks of the doctor, and how its findings are told."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.edge.doctor.finding import Finding, Level, fault, ok, skipped, warning
from acespec.edge.doctor.machine import cache_finding, clock_finding, python_finding
from acespec.edge.doctor.packages import import_fault, runtime_of
from acespec.edge.doctor.port import port_finding
from acespec.edge.doctor.report import as_json, lines_of, summary
from acespec.edge.doctor.session import Probe, uplink
from acespec.edge.doctor.verifier import card_findings
from acespec.edge.doctor.weights import require_whole, require_whole_file
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto.errors import IntegrityError
from acespec.proto.messages import ModelCard
from acespec.sim.processes import free_port, serving
from tests.edge.doctor_lab import VOCAB, answering, replaying
from tests.tiny import tiny_model_folder

TOKENIZER = replay_tokenizer(300)
CARD = ModelCard(
    model="replay:300",
    vocab_size=300,
    fingerprint=TOKENIZER.fingerprint,
    eos_ids=TOKENIZER.eos_ids,
    max_length=4096,
    noise_version=1,
    noise_vector=b"",
    numerics_id="n",
    max_draft=16,
    max_nodes=64,
    max_prompt=4095,
    served=(),
    server_version="0.1.0",
    protocol_version=1,
    exact=True,
    free_run="idle",
)


# -- this machine ----------------------------------------------------------------------------------------------------


def test_an_old_python_is_a_fault() -> None:
    assert python_finding((3, 11)).level is Level.OK
    assert python_finding((3, 14)).level is Level.OK
    old = python_finding((3, 10))
    assert old.level is Level.FAULT
    assert "3.11" in old.fix


def test_a_clock_before_the_installation_is_a_fault() -> None:
    installed = 1.79e9
    assert clock_finding(installed + 5, installed).level is Level.OK
    assert clock_finding(installed - 3600, installed).level is Level.OK  # files from another time zone
    wrong = clock_finding(0.0, installed)
    assert wrong.level is Level.FAULT
    assert "1970-01-01" in wrong.what


def test_a_cache_that_is_not_there_yet_counts_as_the_folder_above(tmp_path: Path) -> None:
    assert cache_finding(tmp_path / "not" / "yet").level in (Level.OK, Level.WARNING)


def test_a_cache_that_cannot_be_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = cache_finding(tmp_path / "file")
    assert found.level is Level.FAULT
    assert "ACESPEC_CACHE" in found.fix


def test_runtimes_of_drafters() -> None:
    kinds = ("none", "ngram", "mlx", "gguf", "torch", "hybrid", "hybrid:torch", "hybrid:abacus")
    assert [runtime_of(kind) for kind in kinds] == [None, None, "mlx", "gguf", "torch", "mlx", "torch", "abacus"]


def test_a_runtime_is_tried_where_it_can_crash_alone() -> None:
    assert import_fault("pass") is None
    assert import_fault("raise ImportError('no such thing')") == "ImportError: no such thing"
    if os.name != "nt":
        assert import_fault("import os, signal; os.kill(os.getpid(), signal.SIGKILL)") == "it ends with status -9"


# -- weights ---------------------------------------------------------------------------------------------------------


def safetensors(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


WHOLE = safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {}}, b"8 bytes.")


def test_a_real_model_folder_is_whole(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    assert require_whole(folder) == (folder / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (WHOLE[:-1], f"cut off: {len(WHOLE) - 1} bytes of {len(WHOLE)}"),
        (WHOLE[:20], "broken header .it is cut off."),
        (WHOLE[:5], "broken header .it is cut off."),
        (b"", "no safetensors file"),
        (WHOLE + b"x", "1 bytes too many"),
        (b"<html>not found</html>", "no safetensors file"),
        (safetensors([1, 2], b""), "broken header"),
        (safetensors({"a": {}}, b""), "broken header"),
    ],
)
def test_weights_that_are_not_whole(content: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(WHOLE)
    require_whole_file(file)
    file.write_bytes(content)
    with pytest.raises(IntegrityError, match=why):
        require_whole_file(file)


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(IntegrityError, match=r"model-2\.safetensors"):
        require_whole(folder)


# -- verifier --------------------------------------------------------------------------------------------------------


def test_a_fitting_card_is_all_well() -> None:
    assert [finding.level for finding in card_findings(CARD, TOKENIZER)] == [Level.OK, Level.OK]


def test_what_a_card_can_have_against_it() -> None:
    older = card_findings(replace(CARD, protocol_version=0), TOKENIZER)[0]
    assert (older.level, "protocol 0" in older.what) == (Level.FAULT, True)
    louder = card_findings(replace(CARD, noise_version=2), TOKENIZER)[0]
    assert louder.level is Level.WARNING
    inexact = card_findings(replace(CARD, exact=False), TOKENIZER)[-1]
    assert (inexact.level, "exact" in inexact.what) == (Level.WARNING, True)
    other = card_findings(replace(CARD, fingerprint=b"0" * 16), TOKENIZER)[1]
    assert other.level is Level.FAULT
    assert TOKENIZER.fingerprint.hex() in other.what
    assert (b"0" * 16).hex() in other.what
    assert card_findings(CARD, None)[1].level is Level.SKIPPED


def test_the_rate_is_what_more_bytes_took_longer() -> None:
    slow = uplink(Probe(100, 0.15), Probe(1350, 0.35))
    assert "50 Kbps" in slow.what
    assert slow.level is Level.WARNING
    assert "500 Kbps" in uplink(Probe(100, 0.15), Probe(1350, 0.17)).what
    assert uplink(Probe(100, 0.15), Probe(1350, 0.14)).level is Level.OK


# -- the local port --------------------------------------------------------------------------------------------------


def test_a_port_that_is_free_and_one_that_is_taken() -> None:
    assert port_finding("127.0.0.1", free_port()).level is Level.OK
    with answering(lambda connection: connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")) as port:
        found = port_finding("127.0.0.1", port)
    assert found.level is Level.WARNING
    assert "--port" in found.fix


def test_a_port_that_our_own_proxy_has_is_well(tmp_path: Path) -> None:
    with replaying(tmp_path, "--insecure") as (verifier, _):
        port = free_port()
        options = ["--verifier", f"127.0.0.1:{verifier}", "--insecure", "--model", f"replay:{VOCAB}"]
        with serving("acespec.edge.cli", ["proxy", *options, "--port", str(port)], tmp_path / "log", timeout_s=30):
            found = port_finding("127.0.0.1", port)
    assert found == ok("local port", f"acespec proxy is running on 127.0.0.1:{port}")


# -- how it is told --------------------------------------------------------------------------------------------------


def test_each_finding_is_a_line_and_each_fix_another() -> None:
    assert lines_of(ok("tcp", "there")) == ["ok      tcp          there"]
    assert lines_of(fault("tcp", "gone", "find it")) == ["FAULT   tcp          gone", f"{'':20} -> find it"]
    assert "\x1b[" in lines_of(warning("a", "b", "c"), colour=True)[0]


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        ([ok("a", "")], "no fault, no warnings: acespec is ready"),
        ([warning("a", "", "x"), skipped("b", "")], "no fault, 1 warning: acespec is ready"),
        ([fault("a", "", "x"), fault("b", "", "x")], "2 faults, no warnings: begin with the first fault"),
    ],
)
def test_the_last_line_counts(findings: list[Finding], line: str) -> None:
    assert summary(findings) == line


def test_the_object_for_machines() -> None:
    told = as_json([ok("a", "b"), fault("c", "d", "e")], {"acespec": "1"})
    assert told["ok"] is False
    assert told["findings"] == [
        {"check": "a", "level": "ok", "what": "b", "fix": None},
        {"check": "c", "level": "fault", "what": "d", "fix": "e"},
    ]
    assert told["versions"] == {"acespec": "1"}
