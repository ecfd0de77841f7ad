"""A verifier server: service, health, reflection, TLS, draining."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from acespec.cloud.auth import Keys
from acespec.cloud.host import Hosts
from acespec.cloud.service import SERVICE, VerifierService
from acespec.proto import verifier_pb2
from acespec.proto.errors import UsageError
from acespec.proto.messages import ModelCard

log = logging.getLogger(__name__)

CHANNEL_OPTIONS = (
    # A BDP probe answers data with pings and nearly doubles the bytes of small messages.
    ("grpc.http2.bdp_probe", 0),
    # Bounds how much a flooding edge can queue before its writes block.
    ("grpc.http2.lookahead_bytes", 4096),
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Without its own value, a ping that nobody answers is waited for a minute.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
)

EXPIRE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM bytes of the server's certificate chain and key."""

    certificate: bytes
    key: bytes


@asynccontextmanager
async def serving(
    card: ModelCard,
    hosts: Hosts,
    *,
    address: str,
    keys: Keys,
    tls: Tls | None = None,
    reflection: bool = False,
    drain_s: float = 5.0,
) -> AsyncIterator[int]:
    """Serve on `address` ("host:port"; port 0 picks one) while the context lasts; yields the port.

    On exit new streams are refused, running turns get `drain_s` seconds, and then every stream ends with UNAVAILABLE.

    Raises:
        UsageError: the address cannot be bound, or certificate and key do not fit.
    """
    service = VerifierService(card, hosts, keys)
    health = health_aio.HealthServicer()
    server = grpc.aio.server(options=CHANNEL_OPTIONS)
    server.add_generic_rpc_handlers((service.handlers(),))
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if reflection:
        _reflect(server)
    port = _bind(server, address, tls)
    await server.start()
    for name in ("", SERVICE):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    janitor = asyncio.create_task(_expire(hosts))
    try:
        yield port
    finally:
        janitor.cancel()
        await health.enter_graceful_shutdown()
        service.drain()
        await _drain(hosts, drain_s)
        service.end_streams()
        await server.stop(grace=0.5)
        hosts.end_all()


def _bind(server: grpc.aio.Server, address: str, tls: Tls | None) -> int:
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
            port = server.add_secure_port(address, credentials)
    except (RuntimeError, ValueError):
        port = 0
    if port == 0:
        tail = "" if tls is None else ", or certificate and key are not a pair of PEM files"
        raise UsageError(f"cannot listen on {address}: the port is in use, or the host is not this machine's{tail}")
    return int(port)


def _reflect(server: grpc.aio.Server) -> None:
    from grpc_reflection.v1alpha import reflection

    names = (verifier_pb2.DESCRIPTOR.services_by_name["Verifier"].full_name, "grpc.health.v1.Health")
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)


async def _expire(hosts: Hosts) -> None:
    while True:
        await asyncio.sleep(EXPIRE_EVERY_S)
        hosts.expire(time.monotonic())


async def _drain(hosts: Hosts, drain_s: float) -> None:
    if hosts.running:
        log.info("draining: %d turns have %.0f s to finish", hosts.running, drain_s)
    await hosts.wait_idle(drain_s)
