"""Broken set-ups, each made for real: the doctor names the one fault, and what to do about it."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import trustme

from acespec.sim.processes import free_port
from tests.edge.doctor_lab import (
    KEY,
    VOCAB,
    Guarded,
    answering,
    diagnosis,
    guarding,
    handshaking,
    python_without,
    replaying,
)
from tests.tiny import tiny_model_folder

MODEL = ("--model", f"replay:{VOCAB}")
needs_mlx = pytest.mark.skipif(find_spec("mlx") is None or find_spec("mlx_lm") is None, reason="MLX is not here")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Options that work: a verifier in plain text."""
    with replaying(tmp_path_factory.mktemp("plain"), "--insecure") as (port, _):
        yield ("--verifier", f"127.0.0.1:{port}", "--insecure", *MODEL)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarding(tmp_path_factory.mktemp("guarded")) as served:
        yield served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real model."""
    return tiny_model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("ACESPEC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACESPEC_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


Capture = pytest.CaptureFixture[str]


def assert_fault(capsys: Capture, options: tuple[str, ...], check: str, what: str, fix: str, *before: str) -> None:
    """One fault, in `check`, that says `what` and `fix`."""
    found = diagnosis(capsys, *options, before=before)
    assert found.code == 1
    assert [fault["check"] for fault in found.faults] == [check], found.findings
    assert what in found.faults[0]["what"], found.faults
    assert fix in found.faults[0]["fix"], found.faults


# -- nothing is wrong ------------------------------------------------------------------------------------------------


def test_a_sound_set_up_has_no_fault_and_is_measured(plain: tuple[str, ...], capsys: Capture) -> None:
    found = diagnosis(capsys, *plain)
    assert found.code == 0, found.findings
    assert "24 tokens" in found.at("session")[0]["what"]
    assert "ms" in found.at("round trip")[0]["what"]
    assert "IP bytes" in found.at("uplink")[0]["what"]
    assert all(not finding["fix"] for finding in found.findings if finding["level"] == "ok")


def test_a_sound_set_up_with_tls_and_key(guarded: Guarded, capsys: Capture) -> None:
    found = diagnosis(capsys, *guarded.options, "--drafter", "none")
    assert found.code == 0, found.findings
    assert "trusted" in found.at("tls")[0]["what"]
    assert found.at("key")[0]["what"] == "accepted"


def test_without_a_session_nothing_is_generated(plain: tuple[str, ...], capsys: Capture) -> None:
    found = diagnosis(capsys, *plain, "--no-session")
    assert found.code == 0
    assert not found.at("session")
    assert found.at("health")


# -- the way to the verifier -----------------------------------------------------------------------------------------


def test_no_address(capsys: Capture) -> None:
    assert_fault(capsys, MODEL, "address", "no verifier", "--verifier HOST:PORT")


def test_a_name_that_does_not_resolve(capsys: Capture) -> None:
    assert_fault(capsys, ("--verifier", "no..host:7717", *MODEL), "name", "does not resolve", "--verifier")


def test_the_wrong_port(capsys: Capture) -> None:
    options = ("--verifier", f"127.0.0.1:{free_port()}", "--insecure", *MODEL)
    assert_fault(capsys, options, "tcp", "nothing listens", "check the port")


def test_tls_is_wanted_and_not_spoken_by_us(guarded: Guarded, capsys: Capture) -> None:
    options = ("--verifier", f"127.0.0.1:{guarded.port}", "--insecure", *MODEL)
    assert_fault(capsys, options, "tls", "wants TLS", "leave --insecure out")


def test_tls_is_not_spoken_by_the_verifier(plain: tuple[str, ...], capsys: Capture) -> None:
    options = tuple(option for option in plain if option != "--insecure")
    assert_fault(capsys, options, "tls", "plain text, not TLS", "--insecure")


def test_a_certificate_of_nobody_known(guarded: Guarded, capsys: Capture) -> None:
    options = ("--verifier", f"127.0.0.1:{guarded.port}", "--api-key", KEY, *MODEL)
    assert_fault(capsys, options, "tls", "no public authority has signed it", "--tls-ca FILE")


def test_a_certificate_of_another_authority(guarded: Guarded, tmp_path: Path, capsys: Capture) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    options = ("--verifier", f"127.0.0.1:{guarded.port}", "--tls-ca", str(tmp_path / "other.pem"), *MODEL)
    assert_fault(capsys, options, "tls", "no authority in --tls-ca has signed it", "--tls-ca FILE")


def test_a_file_of_authorities_that_is_none(guarded: Guarded, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "ca.pem").write_text("BEGIN NOTHING\n")
    options = ("--verifier", f"127.0.0.1:{guarded.port}", "--tls-ca", str(tmp_path / "ca.pem"), *MODEL)
    assert_fault(capsys, options, "tls", "no certificate", ".pem")


def test_a_certificate_for_another_name(guarded: Guarded, capsys: Capture) -> None:
    options = ("--verifier", f"localhost:{guarded.port}", "--tls-ca", str(guarded.authority), *MODEL)
    assert_fault(capsys, options, "tls", "not made for localhost", "name the host")


def test_a_certificate_whose_time_is_over(tmp_path: Path, capsys: Capture) -> None:
    authority = trustme.CA()
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with answering(handshaking(authority.issue_cert("127.0.0.1", not_after=past))) as port:
        options = ("--verifier", f"127.0.0.1:{port}", "--tls-ca", str(tmp_path / "ca.pem"), *MODEL)
        assert_fault(capsys, options, "tls", "expired", "clock")


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path, capsys: Capture) -> None:
    authority = trustme.CA()
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with answering(handshaking(authority.issue_cert("127.0.0.1", not_after=soon), ["http/1.1"])) as port:
        options = ("--verifier", f"127.0.0.1:{port}", "--tls-ca", str(tmp_path / "ca.pem"), *MODEL)
        found = diagnosis(capsys, *options)
    assert found.at("tls")[0]["level"] == "warning"
    assert "renew" in found.at("tls")[0]["fix"]
    assert "not HTTP/2" in found.faults[0]["what"]


def test_a_web_server(capsys: Capture) -> None:
    with answering(lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n") if c.recv(64) else None) as port:
        options = ("--verifier", f"127.0.0.1:{port}", "--insecure", *MODEL)
        assert_fault(capsys, options, "http/2", "a web server", "port")


def test_the_wrong_key(guarded: Guarded, capsys: Capture) -> None:
    options = ("--verifier", f"127.0.0.1:{guarded.port}", "--tls-ca", str(guarded.authority), *MODEL)
    assert_fault(capsys, (*options, "--api-key", "wrong"), "key", "is refused", "--api-key-file")
    assert_fault(capsys, options, "key", "none is given", "--api-key-file")


def test_a_key_file_that_is_not_there(guarded: Guarded, capsys: Capture) -> None:
    options = (*guarded.options, "--api-key-file", "/no/such/key")
    assert_fault(capsys, options, "address", "/no/such/key", "")


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT to send there")
def test_a_verifier_that_is_draining(tmp_path: Path, capsys: Capture) -> None:
    with replaying(tmp_path, "--insecure", "--drain", "20") as (port, verifier):
        options = ("--verifier", f"127.0.0.1:{port}", "--insecure", *MODEL)
        command = [sys.executable, "-m", "acespec.edge.cli", "generate", *options, "-m", "20000", "--target-rate", "5"]
        with subprocess.Popen([*command, "-p", "on and on"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as busy:
            assert busy.stdout is not None
            busy.stdout.read(1)
            verifier.send_signal(signal.SIGINT)
            verifier_log = next(tmp_path.glob("*.log"))
            while "draining" not in verifier_log.read_text():
                assert verifier.poll() is None
            assert_fault(capsys, options, "health", "draining", "wait")
            busy.kill()


# -- models ----------------------------------------------------------------------------------------------------------


def test_a_tokenizer_that_is_not_the_verifier_s(plain: tuple[str, ...], folder: Path, capsys: Capture) -> None:
    for model in (f"replay:{VOCAB + 1}", str(folder)):
        assert_fault(capsys, (*plain, "--model", model), "tokenizer", "every session will be refused", "--model")


def test_a_target_that_is_not_here(plain: tuple[str, ...], capsys: Capture) -> None:
    options = (*plain, "--model", "smollm2-135m")
    assert_fault(capsys, (*options, "--offline"), "tokenizer", "not here", "acespec models pull smollm2-135m")
    found = diagnosis(capsys, *options)
    assert found.code == 0
    assert found.at("tokenizer")[0]["level"] == "warning"
    assert "acespec models pull smollm2-135m" in found.at("tokenizer")[0]["fix"]
    assert found.at("session")[0]["level"] == "skipped"


def test_a_draft_model_that_is_not_named(plain: tuple[str, ...], capsys: Capture) -> None:
    assert_fault(capsys, (*plain, "--drafter", "gguf"), "draft model", "none is named", "--draft-model NAME")


def test_a_draft_model_that_is_missing(plain: tuple[str, ...], tmp_path: Path, capsys: Capture) -> None:
    gone = str(tmp_path / "gone.gguf")
    assert_fault(capsys, (*plain, "--drafter", "gguf", "--draft-model", gone), "draft model", gone, "path")


@needs_mlx
def test_weights_that_are_cut_off(plain: tuple[str, ...], tmp_path: Path, capsys: Capture) -> None:
    folder = tiny_model_folder(tmp_path / "m")
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 100)
    options = (*plain, "--drafter", "mlx", "--draft-model", str(folder))
    assert_fault(capsys, options, "draft model", "is cut off", f"acespec models pull {folder}")


def test_a_drafter_that_does_not_exist(plain: tuple[str, ...], capsys: Capture) -> None:
    assert_fault(capsys, (*plain, "--drafter", "crystal-ball"), "drafter", "crystal-ball", "ngram")


def test_a_runtime_that_is_not_installed(plain: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    bare = python_without(tmp_path, "mlx")
    options = (*plain, "--drafter", "mlx", "--draft-model", str(folder))
    done = bare.run("doctor", *options)
    assert done.returncode == 1, done.stderr
    fault, fix = done.stdout[done.stdout.index("FAULT") :].splitlines()[:2]
    assert "drafter mlx: mlx not installed" in fault
    assert "pip install 'acespec[mlx]'" in fix
    assert "--drafter ngram" in fix
    assert done.stdout.count("FAULT") == 1
    assert "24 tokens" in done.stdout


@needs_mlx
def test_a_runtime_that_does_not_start(
    plain: tuple[str, ...], folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlx_lm.py").write_text("raise ImportError('built for another machine')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    options = (*plain, "--drafter", "mlx", "--draft-model", str(folder))
    assert_fault(capsys, options, "drafter", "built for another machine", "pip install --force-reinstall")


# -- settings --------------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_toml(plain: tuple[str, ...], tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "s.toml"
    file.write_text("verifier = \n")
    assert_fault(capsys, plain, "settings", "is not TOML", "acespec init", "--config", str(file))


def test_a_file_that_is_not_there(plain: tuple[str, ...], capsys: Capture) -> None:
    assert_fault(capsys, plain, "settings", "/no/such.toml", "acespec init", "--config", "/no/such.toml")


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        ("verifer = 'a:1'", "'verifer' in the top", "`verifier`"),
        ("[chat]\ntemprature = 1.0", "'temprature' in [chat]", "`temperature`"),
        ("[chta]\ntemp = 1.0", "[chta]", "[chat]"),
        ("[generate]\nmax_tokens = 'many'", "'max_tokens' in [generate]", "--max-tokens"),
        ("top_p = 1.5", "'top_p' in the top", "--top-p"),
        ("stop = 'END'", "'stop' in the top", "--stop"),
    ],
)
def test_settings_that_cannot_be(
    text: str, what: str, fix: str, plain: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    assert_fault(capsys, plain, "settings", what, fix, "--config", str(file))


def test_a_slip_in_the_environment(plain: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACESPEC_VERIFER", "a:1")
    monkeypatch.setenv("ACESPEC_SOMETHING_ELSE", "1")
    found = diagnosis(capsys, *plain)
    assert found.code == 0
    slips = [finding for finding in found.at("settings") if finding["level"] == "warning"]
    assert len(slips) == 1
    assert "ACESPEC_VERIFER" in slips[0]["what"]
    assert "ACESPEC_VERIFIER" in slips[0]["fix"]


@pytest.mark.skipif(os.name == "nt", reason="files have no such bits there")
def test_a_key_that_others_can_read(plain: tuple[str, ...], tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "s.toml"
    file.write_text('api_key = "secret-word"\n')
    file.chmod(0o644)
    found = diagnosis(capsys, *plain, before=("--config", str(file)))
    assert [finding["fix"] for finding in found.at("settings") if finding["level"] == "warning"] == [
        f"chmod 600 {file}"
    ]
    assert "secret-word" not in str(found.findings)
    file.chmod(0o600)
    found = diagnosis(capsys, *plain, before=("--config", str(file)))
    assert all(finding["level"] == "ok" for finding in found.at("settings"))
