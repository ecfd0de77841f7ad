"""Bad input, wrong settings and missing peers, over real processes: one clear line, the right exit code."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trustme

from acespec.models.tokenizer import Tokenizer
from acespec.proto.messages import Draft, EdgeMessage, Open
from tests.e2e.conftest import KEY, MAX_LENGTH, Served
from tests.e2e.processes import EDGE, VERIFIER, run
from tests.e2e.raw_edge import draft_frame, open_frame, status_after

SHORT = ["--max-tokens", "4", "-p", "The river"]


def test_unknown_model_at_the_edge(open_server: Served, tmp_path: Path) -> None:
    done = run(EDGE, ["generate", "--verifier", open_server.address, "--model", "nosuch", *SHORT], tmp_path)
    assert done.code == 1
    assert "no model 'nosuch'" in done.error
    assert "smollm2-135m" in done.error, "it says what there is"


def test_unknown_model_at_the_verifier(tmp_path: Path) -> None:
    done = run(VERIFIER, ["serve", "--model", "nosuch", "--insecure", "--port", "0"], tmp_path)
    assert done.code == 1
    assert "no model 'nosuch'" in done.error
    assert "ready" not in done.stderr


def test_another_tokenizer_is_refused_with_both_fingerprints(
    open_server: Served, other_folder: Path, tmp_path: Path
) -> None:
    arguments = ["generate", "--verifier", open_server.address, "--insecure", "--model", str(other_folder), *SHORT]
    done = run(EDGE, arguments, tmp_path)
    assert done.code == 1
    for folder in (other_folder, open_server.model):
        assert Tokenizer.load(folder).fingerprint.hex() in done.error
    assert "--model" in done.error


def test_a_prompt_over_the_limit(open_server: Served, tmp_path: Path) -> None:
    text = "the river, " * MAX_LENGTH
    done = run(EDGE, ["generate", *open_server.edge("--insecure", "--max-tokens", "4", "-p", text)], tmp_path)
    assert done.code == 1
    assert str(MAX_LENGTH - 1) in done.error
    assert "shorten the prompt" in done.error


def test_no_verifier_there(model_folder: Path, tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # Bound, but nobody listens.
        address = f"127.0.0.1:{held.getsockname()[1]}"
        arguments = ["generate", "--verifier", address, "--insecure", "--model", str(model_folder), *SHORT]
        done = run(EDGE, arguments, tmp_path)
    assert done.code == 1
    assert address in done.error
    assert "acespec-verifier serve" in done.error


@pytest.mark.parametrize(
    ("address", "words"), [(None, "--verifier"), ("nowhere", "HOST:PORT"), ("nohost.invalid:1", "does not resolve")]
)
def test_an_address_that_makes_no_sense(address: str | None, words: str, model_folder: Path, tmp_path: Path) -> None:
    where = ["--verifier", address] if address else []
    done = run(EDGE, ["generate", *where, "--insecure", "--model", str(model_folder), *SHORT], tmp_path)
    assert done.code == (1 if words == "does not resolve" else 2)
    assert words in done.error


def test_the_port_is_in_use(open_server: Served, tmp_path: Path) -> None:
    port = open_server.address.rpartition(":")[2]
    done = run(VERIFIER, ["serve", "--model", str(open_server.model), "--insecure", "--port", port], tmp_path)
    assert done.code == 2
    assert open_server.address in done.error
    assert "in use" in done.error


def test_plain_text_beyond_loopback_is_refused(model_folder: Path, tmp_path: Path) -> None:
    done = run(VERIFIER, ["serve", "--model", str(model_folder), "--insecure", "--host", "0.0.0.0"], tmp_path)
    assert done.code == 2
    assert "--tls-cert" in done.error


def test_a_server_without_tls_or_consent_is_refused(model_folder: Path, tmp_path: Path) -> None:
    done = run(VERIFIER, ["serve", "--model", str(model_folder)], tmp_path)
    assert done.code == 2
    assert "--insecure" in done.error


def test_certificate_and_key_that_are_none(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("not a certificate\n")
    junk = ["--tls-cert", str(tmp_path / "junk.pem"), "--tls-key", str(tmp_path / "junk.pem")]
    done = run(VERIFIER, ["serve", "--model", str(model_folder), "--port", "0", *junk], tmp_path)
    assert done.code == 2
    assert "certificate" in done.error


def test_tls_and_the_right_key(guarded_server: Served, folder: Path, tmp_path: Path) -> None:
    trust = ["--tls-ca", str(folder / "ca.pem"), "--json"]
    done = run(EDGE, ["generate", *guarded_server.edge(*trust, *SHORT)], tmp_path, ACESPEC_API_KEY=KEY)
    assert done.code == 0, done.stderr
    assert '"completion_tokens": 4' in done.stdout
    assert KEY not in done.stderr + guarded_server.process.stderr


@pytest.mark.parametrize(("key", "words"), [(None, "wants a key"), ("wrong", "not one of this verifier's")])
def test_a_missing_and_a_wrong_key(
    key: str | None, words: str, guarded_server: Served, folder: Path, tmp_path: Path
) -> None:
    given = ["--api-key", key] if key else []
    trust = ["--tls-ca", str(folder / "ca.pem")]
    done = run(EDGE, ["generate", *guarded_server.edge(*trust, *given, *SHORT)], tmp_path)
    assert done.code == 1
    assert words in done.error
    assert "--api-key-file" in done.error


def test_a_certificate_of_another_authority(guarded_server: Served, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    done = run(EDGE, ["generate", *guarded_server.edge("--tls-ca", str(tmp_path / "other.pem"), *SHORT)], tmp_path)
    assert done.code == 1
    assert "TLS handshake failed" in done.error


def test_tls_against_plain_text(guarded_server: Served, open_server: Served, tmp_path: Path) -> None:
    for server, arguments in ((guarded_server, ["--insecure"]), (open_server, [])):
        done = run(EDGE, ["generate", *server.edge(*arguments, *SHORT)], tmp_path)
        assert done.code == 1
        assert "--tls-ca" in done.error


async def test_corrupt_frames_end_their_own_stream_with_a_reason(open_server: Served) -> None:
    tokenizer = Tokenizer.load(open_server.model)
    ids = tokenizer.encode("The river")
    vocab = tokenizer.vocab_size

    def opening(number: int, **changes: object) -> Open:
        return open_frame(tokenizer, ids, 1000 + number, **changes)

    good = opening(0)
    cases: list[tuple[list[EdgeMessage | bytes], str, str]] = [
        ([b"\xff" * 40], "INVALID_ARGUMENT", "undecodable"),
        ([b""], "INVALID_ARGUMENT", "without content"),
        ([Draft(received=0)], "INVALID_ARGUMENT", "Open"),
        ([opening(1, append=b"\x07junk")], "INVALID_ARGUMENT", ""),
        ([opening(2, append=good.append[:-1])], "INVALID_ARGUMENT", ""),
        ([opening(3, stop_ids=(vocab,))], "INVALID_ARGUMENT", "outside the vocabulary"),
        ([opening(4, prompt_len=len(ids) + 1)], "INVALID_ARGUMENT", "prompt_len"),
        ([opening(5, max_tokens=0)], "INVALID_ARGUMENT", "max_tokens"),
        ([opening(6, version=99)], "FAILED_PRECONDITION", "99"),
        ([opening(7), draft_frame(len(ids), [vocab], vocab + 1)], "INVALID_ARGUMENT", ""),
        ([opening(8), draft_frame(len(ids), [1] * 300, vocab)], "INVALID_ARGUMENT", ""),
        ([opening(9), Draft(received=len(ids), nodes=b"\xff")], "INVALID_ARGUMENT", ""),
        ([opening(10), Draft(received=len(ids) + 3999)], "INVALID_ARGUMENT", "were sent"),
        ([opening(11), Draft(received=len(ids), base=3999)], "INVALID_ARGUMENT", "base"),
        ([opening(12), opening(12)], "ABORTED", "epoch"),
    ]
    for frames, status, words in cases:
        found, details = await status_after(open_server.address, frames)
        assert found == status, (frames[-1], found, details)
        assert words in details
        assert details
    assert "Traceback" not in open_server.process.stderr


async def test_ids_beyond_the_vocabulary_never_reach_the_model(open_server: Served) -> None:
    tokenizer = Tokenizer.load(open_server.model)
    wide = open_frame(tokenizer, [5, tokenizer.vocab_size, 6], 2000)
    status, details = await status_after(open_server.address, [wide])
    assert status == "INVALID_ARGUMENT"
    assert "vocabulary" in details
