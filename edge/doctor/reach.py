"""The way to the verifier, step by step: name, TCP, TLS with its certificate, HTTP/2. Each step names its own fault.

gRPC reports most of these as "unavailable"; plain sockets say which it is.
"""

from __future__ import annotations

import os
import pkgutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from acespec.edge.channel import Endpoint
from acespec.edge.doctor.finding import Finding, fault, ok, warning

NAME, TCP, TLS, HTTP2 = "name", "tcp", "tls", "http/2"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""What an HTTP/2 client says first: the magic words and an empty SETTINGS frame (RFC 9113, section 3.4)."""
FRAME_HEADER, SETTINGS = 9, 4
TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake begin."""
WRONG_TIME, WRONG_NAME = (9, 10), (62, 64)
"""OpenSSL's reasons (x509_vfy.h): not yet valid, expired; another host name, another IP address."""
SOON_S = 14 * 86_400
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class _Way:
    """An endpoint in the parts that sockets take."""

    endpoint: Endpoint
    host: str
    port: int
    timeout: float

    @property
    def target(self) -> str:
        return self.endpoint.target


def reach_findings(endpoint: Endpoint, timeout: float) -> Iterator[Finding]:
    """The steps as far as they go; the last one is a fault, or all are passed. `timeout` in seconds is for each."""
    host, _, port = endpoint.target.rpartition(":")
    way = _Way(endpoint, host.strip("[]"), int(port), timeout)
    yield (resolved := _resolve(way))
    if resolved.fix:
        return
    try:
        started = time.monotonic()
        connection = socket.create_connection((way.host, way.port), timeout)
    except OSError as error:
        yield _unreached(way, error)
        return
    with closing(connection):
        milliseconds = (time.monotonic() - started) * 1000
        yield ok(TCP, f"{way.target} accepts connections, in {milliseconds:.0f} ms")
        yield from _plain(way, connection) if endpoint.insecure else _secure(way, connection)


def _resolve(way: _Way) -> Finding:
    try:
        found = socket.getaddrinfo(way.host, way.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        return fault(
            NAME, f"the host name {way.host!r} does not resolve: {reason}", "check --verifier, DNS and the VPN"
        )
    return ok(NAME, f"{way.host} is {', '.join(dict.fromkeys(str(entry[4][0]) for entry in found))}")


def _unreached(way: _Way, error: OSError) -> Finding:
    if isinstance(error, ConnectionRefusedError):
        return fault(
            TCP,
            f"{way.target} refuses connections: nothing listens on port {way.port} there",
            "check the port in --verifier (acespec-verifier takes 7717 by default) and that it is running",
        )
    if isinstance(error, TimeoutError):
        return fault(
            TCP,
            f"{way.target} does not answer within {way.timeout:.0f} s",
            "check address and port; a firewall may drop the packets; on a very slow link give a longer --wait",
        )
    return fault(TCP, f"{way.target} cannot be reached: {error.strerror or error}", "check the network and the address")


# -- TLS -------------------------------------------------------------------------------------------------------------


def _secure(way: _Way, connection: socket.socket) -> Iterator[Finding]:
    try:
        context = _trusting(way.endpoint)
    except ssl.SSLError:
        yield fault(TLS, "the file of --tls-ca holds no certificate in PEM form", "give the authority's .pem file")
        return
    try:
        with context.wrap_socket(connection, server_hostname=way.host) as secured:
            yield _certificate(secured)
            yield _negotiated(way, secured)
    except ssl.SSLCertVerificationError as error:
        yield _untrusted(way, error)
    except (ssl.SSLError, OSError) as error:
        yield _no_handshake(way, error)


def _trusting(endpoint: Endpoint) -> ssl.SSLContext:
    """Trusts what gRPC trusts: the given authorities, else those that come with gRPC."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    roots = endpoint.root_certificates or _grpc_roots()
    if roots is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=roots.decode("ascii", errors="ignore"))
    return context


def _grpc_roots() -> bytes | None:
    if chosen := os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        return Path(chosen).read_bytes()
    return pkgutil.get_data("grpc._cython", "_credentials/roots.pem")


def _certificate(secured: ssl.SSLSocket) -> Finding:
    stated = secured.getpeercert() or {}
    ends = ssl.cert_time_to_seconds(str(stated["notAfter"]))
    until = time.strftime("%Y-%m-%d", time.gmtime(ends))
    if ends - time.time() < SOON_S:
        return warning(
            TLS, f"the certificate is trusted, but ends on {until}", "whoever runs the verifier must renew it"
        )
    return ok(TLS, f"{secured.version()}; the certificate is trusted, until {until}")


def _negotiated(way: _Way, secured: ssl.SSLSocket) -> Finding:
    if secured.selected_alpn_protocol() == "h2":
        return ok(HTTP2, "spoken")
    return fault(
        HTTP2,
        f"{way.target} speaks TLS, but not HTTP/2: it is no verifier, or a proxy in between cannot pass gRPC on",
        "check the port in --verifier; a proxy on the way has to pass HTTP/2 through",
    )


def _untrusted(way: _Way, error: ssl.SSLCertVerificationError) -> Finding:
    why = error.verify_message
    if error.verify_code in WRONG_NAME:
        fix = "name the host in --verifier as the certificate does, or have one made for this name"
        return fault(TLS, f"the certificate is not made for {way.host}: {why}", fix)
    if error.verify_code in WRONG_TIME:
        return fault(
            TLS, f"the certificate's time is over or has not come: {why}", "check this machine's clock, then renew it"
        )
    signer = "authority in --tls-ca" if way.endpoint.root_certificates else "public authority"
    fix = "--tls-ca FILE with the authority's certificate (PEM); ask whoever runs the verifier for it"
    return fault(TLS, f"the certificate is not trusted: {why}; no {signer} has signed it", fix)


def _no_handshake(way: _Way, error: OSError) -> Finding:
    if _settings_frame(_first_words(way)):
        return fault(
            TLS,
            f"{way.target} speaks plain text, not TLS",
            "--insecure, if the way is trusted (loopback, a tunnel); else let it serve TLS (--tls-cert, --tls-key)",
        )
    reason = getattr(error, "reason", None) or error.strerror or error
    return fault(TLS, f"no TLS handshake with {way.target}: {reason}", "check that a verifier listens on this port")


# -- plain text ------------------------------------------------------------------------------------------------------


def _plain(way: _Way, connection: socket.socket) -> Iterator[Finding]:
    if way.host not in LOOPBACK:
        yield warning(
            TLS,
            f"--insecure: key and text go to {way.host} in plain text",
            "leave --insecure out unless a tunnel carries the connection",
        )
    answer = _answer_to_preface(connection)
    if _settings_frame(answer):
        yield ok(HTTP2, "spoken, in plain text")
    elif answer.startswith(b"HTTP/1"):
        yield fault(
            HTTP2,
            f"{way.target} is a web server, and no verifier",
            "check the port in --verifier (acespec-verifier takes 7717 by default)",
        )
    elif answer[:2] in TLS_RECORDS or _speaks_tls(way):
        yield fault(
            TLS,
            f"{way.target} wants TLS, and --insecure is set",
            "leave --insecure out; --tls-ca FILE if its certificate is of a private authority",
        )
    else:
        yield fault(HTTP2, f"{way.target} does not speak HTTP/2: it is no verifier", "check address and port")


def _first_words(way: _Way) -> bytes:
    """What a fresh connection answers to HTTP/2."""
    try:
        with socket.create_connection((way.host, way.port), way.timeout) as connection:
            return _answer_to_preface(connection)
    except OSError:
        return b""


def _answer_to_preface(connection: socket.socket) -> bytes:
    try:
        connection.sendall(PREFACE)
        return connection.recv(FRAME_HEADER)
    except OSError:
        return b""


def _settings_frame(answer: bytes) -> bool:
    return len(answer) == FRAME_HEADER and answer[3] == SETTINGS


def _speaks_tls(way: _Way) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((way.host, way.port), way.timeout) as bare, context.wrap_socket(bare):
            return True
    except OSError:
        return False
