"""For the tests of the doctor: the program in this process, real verifiers, and a Python without some packages."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

import acespec.edge
from acespec.edge.cli import app
from acespec.proto.command_line import program_of
from acespec.sim.processes import free_port, serving

VOCAB = 1000
KEY = "let-me-in"


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor said."""

    code: int
    findings: list[dict[str, str]]

    @property
    def faults(self) -> list[dict[str, str]]:
        return [finding for finding in self.findings if finding["level"] == "fault"]

    def at(self, check: str) -> list[dict[str, str]]:
        return [finding for finding in self.findings if finding["check"] == check]


@dataclass(frozen=True)
class Guarded:
    """A verifier with a certificate and a key."""

    port: int
    authority: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """What lets one in."""
        return (
            "--verifier",
            f"127.0.0.1:{self.port}",
            "--tls-ca",
            str(self.authority),
            "--api-key-file",
            str(self.key),
            "--model",
            f"replay:{VOCAB}",
        )


def call(*arguments: str) -> int:
    """Run the program in this process; its exit status."""
    code = program_of(app)(args=list(arguments), standalone_mode=False, prog_name="acespec")
    return code if isinstance(code, int) else 0


def diagnosis(capsys: pytest.CaptureFixture[str], *options: str, before: Sequence[str] = ()) -> Diagnosis:
    """Run `acespec doctor --json` in this process; `before`: options of the program itself."""
    capsys.readouterr()
    code = call(*before, "doctor", "--json", "--wait", "5", *options)
    return Diagnosis(code, json.loads(capsys.readouterr().out)["findings"])


@contextmanager
def replaying(folder: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A real verifier without a model, in a process of its own; yields its port."""
    port = free_port()
    arguments = ["serve", "--backend", "replay", "--vocab", str(VOCAB), "--port", str(port), *options]
    with serving("acespec.cloud.cli", arguments, folder / f"{port}.log", timeout_s=30.0) as process:
        yield port, process


@contextmanager
def guarding(folder: Path) -> Iterator[Guarded]:
    """The same with a certificate for 127.0.0.1 and one key."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(folder / "chain.pem", append=True)
    key = folder / "api.key"
    key.write_text(f"{KEY}\n")
    options = ("--tls-cert", str(folder / "chain.pem"), "--tls-key", str(folder / "key.pem"))
    with replaying(folder, *options, "--api-key-file", str(key)) as (port, _):
        yield Guarded(port, folder / "ca.pem", key)


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on loopback that deals with each connection by `answer`; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    answer(connection)
                except OSError:
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def handshaking(certificate: trustme.LeafCert, protocols: Sequence[str] = ()) -> Callable[[socket.socket], None]:
    """For `answering`: a TLS handshake with this certificate, and no more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    if protocols:
        context.set_alpn_protocols(list(protocols))

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)

    return answer


@dataclass(frozen=True)
class BarePython:
    """A Python in which some packages are not installed."""

    environment: dict[str, str]

    def run(self, *arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """`acespec ARGUMENTS` in it."""
        command = [sys.executable, "-S", "-m", "acespec.edge.cli", *arguments]
        environment = self.environment | more
        return subprocess.run(
            command, env=environment, input=stdin, capture_output=True, text=True, timeout=40, check=False
        )


def python_without(folder: Path, *prefixes: str) -> BarePython:
    """A Python that sees every installed package but those whose files begin with one of `prefixes`."""
    site = folder / "site"
    site.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not entry.name.lower().startswith(prefixes) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    ours = Path(acespec.edge.__file__).parents[2]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ACESPEC_")}
    own = {"PYTHONPATH": f"{ours}{os.pathsep}{site}", "ACESPEC_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return BarePython(clean | own | {"OMP_NUM_THREADS": "1"})
