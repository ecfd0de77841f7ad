"""What `acespec proxy` does: listen at once, load meanwhile, serve until a signal, let answers end, go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace

import uvicorn
from starlette.applications import Starlette

from acespec.edge.client import Client
from acespec.edge.proxy.app import make_app
from acespec.edge.proxy.loading import Loading
from acespec.edge.proxy.metrics import Metrics
from acespec.edge.proxy.pool import ClientPool
from acespec.edge.proxy.service import Service
from acespec.edge.proxy.session_meter import SessionMeter
from acespec.edge.proxy.settings import Settings
from acespec.edge.run_options import RunOptions
from acespec.edge.shared_link import SharedLink
from acespec.edge.tracing.trace_writer import TraceWriter
from acespec.proto.errors import AcespecError, UsageError

log = logging.getLogger(__name__)

LAST_S = 2.0
"""How long what was cut may take to say so."""
BACKLOG = 256
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(options: RunOptions, settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM; a second one skips the wait for answers.

    Raises:
        AcespecError: the address cannot be bound, or what is asked for cannot be served.
    """
    options.endpoint()  # Complain about the address before anything is loaded.
    if not settings.loopback and not settings.keys:
        log.warning("%s is open to others and no key is asked for: --proxy-key-file sets one", settings.host)
    with options.open_trace() as trace, _listening(settings) as listener:
        asyncio.run(_serve(options, settings, trace, listener))


async def _serve(options: RunOptions, settings: Settings, trace: TraceWriter | None, listener: socket.socket) -> None:
    loading = Loading()
    async with SharedLink(options.endpoint()) as link:

        def make_client(draft_tokens: int | None) -> Client:
            chosen = options if draft_tokens is None else replace(options, num_draft_tokens=str(draft_tokens))
            client = chosen.client(loading.served.tokenizer, link=link)
            beside = None if trace is None else trace.session()
            client.watch(SessionMeter(metrics, client.session, options.on_outage, beside))
            return client

        pool = ClientPool(make_client, max_sessions=settings.max_sessions, max_waiting=settings.max_waiting)
        metrics = Metrics(pool)
        app = make_app(pool, settings, loading, metrics)
        server = Server(app, settings, _url(listener))
        sys.stderr.write(f"listening on {server.url}\n")
        sys.stderr.flush()
        ready = asyncio.create_task(_load(options, loading, link, server))
        try:
            await server.serve(sockets=[listener])
        finally:
            ready.cancel()
            failed = (await asyncio.gather(ready, return_exceptions=True))[0]
            await pool.close()
    if isinstance(failed, AcespecError):
        raise failed


async def _load(options: RunOptions, loading: Loading, link: SharedLink, server: Server) -> None:
    """Say when the proxy is ready; end the server if it never will be."""
    try:
        served = await loading.run(options.tokenizer, link.describe)
    except AcespecError:
        server.should_exit = True
        raise
    sys.stderr.write(f"ready: {served.card.model} at {server.url}/v1\n")
    sys.stderr.flush()


class Server(uvicorn.Server):
    """uvicorn over one `Service`, with an end that is told to clients instead of befalling them."""

    def __init__(self, app: Starlette, settings: Settings, url: str) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(settings.drain_s + LAST_S),
            )
        )
        self.url = url
        self._service: Service = app.state.service
        self._drain_s = settings.drain_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers under way get the time to end; those that do not are told."""
        self._service.pool.closing.set()
        cutting = asyncio.create_task(self._cut())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As in uvicorn, but a signal that was heeded is not raised again at the end: stopping is no failure."""
        before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _cut(self) -> None:
        await asyncio.sleep(self._drain_s)
        self._service.cut()


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
            "choose another --port or --host"
        ) from error
    with listener:
        yield listener
