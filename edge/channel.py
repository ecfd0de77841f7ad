"""The gRPC channel to a verifier: arguments tuned for a narrow link, credentials, and faults as our own errors."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import grpc.aio

from acespec.proto.errors import BY_STATUS, Exhausted, ProtocolError, ServerFault, Unauthenticated, Unavailable

SESSION_METHOD = "/acespec.v1.Verifier/Session"
DESCRIBE_METHOD = "/acespec.v1.Verifier/Describe"

LOOKAHEAD_BYTES = 4096
"""HTTP/2 window beyond the message being read: small, so that stale commits cannot pile up in buffers."""
KEEPALIVE_S = 5.0
KEEPALIVE_TIMEOUT_S = 4.0
CONNECT_TIMEOUT_S = 3.0
FIRST_CONNECT_TIMEOUT_S = 12.0
"""While nothing is known of the link: a slow one with losses takes far longer than three seconds."""
LONGEST_CONNECT_TIMEOUT_S = 24.0
HANDSHAKE_ROUNDS = 4
HANDSHAKE_MARGIN = 1.5
TLS_HANDSHAKE_BYTES = 4300
"""The larger direction, with an RSA certificate."""
PLAIN_HANDSHAKE_BYTES = 400

RETRIED = frozenset({"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED", "UNKNOWN"})
"""Statuses of a transport that broke; a session resumes after them."""
FAILED_WRITE = "Internal error from Core"
"""What grpc.aio itself makes of a write on a connection that is breaking; it may be faster than the true status."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a verifier is and how to talk to it.

    Attributes:
        target: HOST:PORT.
        insecure: plain text instead of TLS.
        root_certificates: PEM of the authorities to trust; None: those of the system.
        api_key: sent once as a bearer token when a stream opens.
    """

    target: str
    insecure: bool = False
    root_certificates: bytes | None = None
    api_key: str | None = None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes up once per stream."""
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()

    def connect(self, attempt: int = 0, rtt: float = 0.0, rate: float | None = None) -> grpc.aio.Channel:
        """A new channel. `attempt` counts from 0; `rtt` in seconds (0: unknown), `rate` in bytes/s (None: unknown)."""
        options = channel_options(rtt, connect_timeout(attempt, rtt, rate, tls=not self.insecure))
        if self.insecure:
            return grpc.aio.insecure_channel(self.target, options=options)
        credentials = grpc.ssl_channel_credentials(root_certificates=self.root_certificates)
        return grpc.aio.secure_channel(self.target, credentials, options=options)


def connect_timeout(attempt: int, rtt: float, rate: float | None, *, tls: bool) -> float:
    """Seconds that a connection may take to come about: what the link needs for it by what is known of it.

    It is short where that is possible, because a SYN that was lost in an outage is repeated ever more rarely, while a
    new attempt sends one at once; each attempt waits twice as long as the one before, in case the link got slower.
    """
    if rtt == 0 and rate is None:
        return FIRST_CONNECT_TIMEOUT_S
    handshake = (TLS_HANDSHAKE_BYTES if tls else PLAIN_HANDSHAKE_BYTES) / rate if rate else 0.0
    needed = max(CONNECT_TIMEOUT_S, HANDSHAKE_MARGIN * (HANDSHAKE_ROUNDS * rtt + handshake))
    return min(needed * 2.0**attempt, max(LONGEST_CONNECT_TIMEOUT_S, needed))


def channel_options(rtt: float, connect: float) -> list[tuple[str, int]]:
    """gRPC channel arguments. `rtt` in seconds, 0 if unknown; `connect` is the connect timeout in seconds.

    Without BDP probes and with a small window a message costs half the bytes and no queue builds up; keepalive also
    sets TCP_USER_TIMEOUT, which finds a dead link within seconds. Where something on the way still acknowledges TCP,
    only the ping's own timeout finds it; gRPC's is a minute, whatever the keepalive timeout says.
    """
    timeout_ms = round(max(KEEPALIVE_TIMEOUT_S, 3 * rtt) * 1000)
    return [
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.keepalive_time_ms", round(KEEPALIVE_S * 1000)),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 3000),
        ("grpc.min_reconnect_backoff_ms", round(connect * 1000)),
    ]


def is_broken_transport(status: str, details: str | None) -> bool:
    """True if it is the connection that ended, and not the verifier that refused or broke."""
    if status == "INTERNAL":
        return details is not None and (details == FAILED_WRITE or "RST_STREAM" in details)
    return status in RETRIED


def error_of(status: str, details: str | None, target: str) -> ProtocolError:
    """Our error for a gRPC status name."""
    text = details or status
    if is_broken_transport(status, details):
        return Unavailable(_unreachable(text, target))
    if status == "PERMISSION_DENIED":
        return Unauthenticated(text)
    if status == "UNIMPLEMENTED":
        return ServerFault(f"{target} does not speak acespec.v1: check the address and the server's version")
    if status == "RESOURCE_EXHAUSTED":
        return Exhausted(text)
    return BY_STATUS.get(status, ServerFault)(text)


def _unreachable(details: str, target: str) -> str:
    """One line that says what a person can do; gRPC's own text lists addresses and error chains."""
    start = f"cannot reach the verifier at {target}"
    lower = details.lower()
    if "connection refused" in lower:
        return f"{start}: connection refused; is `acespec-verifier serve` running there?"
    if "dns" in lower or "resol" in lower or "lookup" in lower:
        return f"{start}: the host name does not resolve; check it"
    if "handshake" in lower or "ssl" in lower or "tls" in lower or "certificate" in lower:
        return (
            f"{start}: the TLS handshake failed; give --tls-ca FILE for its certificate, or --insecure for plain text"
        )
    if "timed out" in lower or "timeout" in lower or "deadline" in lower:
        return f"{start}: it does not answer; check the address, the port and the link"
    if "failed to connect" in lower and "socket closed" in lower:
        return f"{start}: it closes the connection at once; if it serves TLS, give --tls-ca FILE instead of --insecure"
    if details == FAILED_WRITE:
        return f"the connection to {target} broke"
    if any(word in lower for word in ("socket closed", "goaway", "connection reset", "rst_stream")):
        return f"the connection to {target} broke: {details.splitlines()[0]}"
    return f"{start}: {details.splitlines()[0]}"
