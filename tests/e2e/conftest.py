"""Verifier processes that several tests share: an open one, and one behind TLS and a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.e2e.processes import Process, server
from tests.tiny import tiny_model_folder

MAX_LENGTH = 4096
VOCAB = 500
"""No power of two, so that packed ids can lie outside."""
GRACE_S = 0.5
KEY = "correct-horse"


@dataclass(frozen=True)
class Served:
    """A running verifier process, and how to talk to it."""

    process: Process
    address: str
    model: Path

    def edge(self, *more: str) -> list[str]:
        """Arguments of `acespec generate` and `chat`, after the command."""
        return ["--verifier", self.address, "--model", str(self.model), *more]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("e2e")


@pytest.fixture(scope="session")
def model_folder(folder: Path) -> Path:
    return tiny_model_folder(folder / "target", vocab=VOCAB, kv_heads=4, head_dim=32, max_length=MAX_LENGTH)


@pytest.fixture(scope="session")
def other_folder(folder: Path) -> Path:
    """A model with another tokenizer."""
    return tiny_model_folder(folder / "other", vocab=400)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def open_server(folder: Path, model_folder: Path) -> Iterator[Served]:
    # So little KV memory that any crowd has used all of it once.
    arguments = ["--model", str(model_folder), "--insecure", "--grace", str(GRACE_S), "--kv-memory", "0.02"]
    # glibc then gives freed tensors back at once: resident memory is what is in use.
    exact_memory = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}
    with server(arguments, folder / "open", **exact_memory) as (process, address):
        yield Served(process, address, model_folder)
        assert process.popen.poll() is None, f"the verifier died: {process.stderr[-3000:]}"
        assert "Traceback" not in process.stderr, process.stderr[-3000:]


@pytest.fixture(scope="session")
def guarded_server(folder: Path, model_folder: Path, authority: trustme.CA) -> Iterator[Served]:
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "keys").write_text(f"# who may come in\n{KEY}\n")
    arguments = ["--model", str(model_folder), "--tls-cert", str(folder / "cert.pem"), "--tls-key"]
    arguments += [str(folder / "key.pem"), "--api-key-file", str(folder / "keys")]
    with server(arguments, folder / "guarded") as (process, address):
        yield Served(process, address, model_folder)
        assert "Traceback" not in process.stderr, process.stderr[-3000:]
