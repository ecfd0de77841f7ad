"""The web page at `/`, and the live picture of the sessions that it draws.

The page is one answer: its style and scripts stand inside it, and a strict policy names them by their hashes, so that
nothing else can run in it or be fetched by it. The page itself holds no secret and needs no key; the live picture does,
since it shows what is being written.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from acespec.edge.proxy.event_stream import EventStream, data
from acespec.edge.report import Json
from acespec.edge.view import View

LIVE_PATH = "/acespec/live"
SCRIPTS = ("guess", "flow", "server", "picture", "panel", "thread", "reply", "chat", "app")
"""In the order in which they build on each other."""
RUNNING_S = 0.05
IDLE_S = 0.4
ALIVE_S = 10.0
"""At least so often something is sent, so that neither end takes the other for gone."""


class Views(Protocol):
    """What the page needs of the pool of clients."""

    @property
    def closing(self) -> asyncio.Event:
        """Set when streams without an end should end."""

    def views(self) -> Sequence[tuple[str, View]]:
        """The sessions by their ids."""


@dataclass(frozen=True, slots=True)
class Page:
    """The page and the `Content-Security-Policy` that fits it."""

    html: bytes
    policy: str

    @property
    def headers(self) -> dict[str, str]:
        """What keeps others from framing, guessing at and extending the page."""
        return {
            "content-security-policy": self.policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-cache",
        }


@cache
def page() -> Page:
    """The page, put together from the package's files."""
    folder = files("acespec.edge.proxy") / "page"

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    style = text("style.css")
    script = "\n".join(["'use strict';", "{", *(text(f"{name}.js") for name in SCRIPTS), "}"])
    html = text("index.html").replace("{{style}}", style).replace("{{script}}", script)
    return Page(html.encode(), _policy(style, script))


def routes(pool: Views) -> list[Route]:
    """The page's routes, to be mounted by the app."""

    async def show(request: Request) -> Response:
        return Response(page().html, media_type="text/html", headers=page().headers)

    async def live(request: Request) -> ASGIApp:
        return EventStream(pictures(pool))

    return [Route("/", show), Route(LIVE_PATH, live)]


async def pictures(pool: Views) -> AsyncGenerator[bytes, None]:
    """Server-sent events until the pool closes, each the sessions at that moment; unchanged ones are left out."""
    sent: list[Json] | None = None
    sent_at = 0.0
    while not pool.closing.is_set():
        now, views = time.monotonic(), pool.views()
        sessions: list[Json] = [_session(name, view, now) for name, view in views]
        if sessions != sent or now - sent_at > ALIVE_S:
            sent, sent_at = sessions, now
            yield data({"at": round(now, 3), "sessions": sessions})
        with suppress(TimeoutError):
            async with asyncio.timeout(RUNNING_S if any(view.running for _, view in views) else IDLE_S):
                await pool.closing.wait()


def _session(name: str, view: View, now: float) -> Json:
    return {
        "id": name,
        "running": view.running,
        "provisional_text": view.provisional_text,
        "waiting_s": None if view.waiting_since is None else round(now - view.waiting_since, 1),
        "alone": view.alone,
        "link_kbps": view.link_kbps,
        "rtt_ms": view.rtt_ms,
        "draft_length": view.draft_length,
        "acceptance_length": view.acceptance_length,
        "bytes_per_token": view.bytes_per_token,
        "up_bytes": view.up_bytes,
        "down_bytes": view.down_bytes,
        "committed": view.committed,
        "verifier_load": view.verifier_load,
        "verify_ms": view.verify_ms,
    }


def _policy(style: str, script: str) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
