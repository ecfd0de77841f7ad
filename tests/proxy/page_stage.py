"""A stage for the web page: its real routes, a real browser, and between them a server that does as the test says."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from acespec.edge.proxy.page_routes import LIVE_PATH, routes
from acespec.edge.view import View

playwright = pytest.importorskip("playwright.async_api", reason="no playwright: pip install playwright")

from playwright.async_api import Browser, Page, async_playwright  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_CHROMIUM = "no Chromium: apt-get install -y chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SESSION = "5e55"
SOLID, GUESS = ".answer:last-child .solid", ".answer:last-child .guess"


@dataclass
class Stage:
    """What the server shows and says. `key`: what it asks for; `refusal`: the error of the next completion."""

    key: str | None = None
    refusal: str | None = None
    view: View = field(default_factory=View)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[dict[str, object]] = field(default_factory=list)
    left_early: int = 0
    address: str = ""
    _said: asyncio.Queue[dict[str, object] | None] = field(default_factory=asyncio.Queue)
    _tokens: int = 0

    def views(self) -> list[tuple[str, View]]:
        """As `ClientPool.views`."""
        return [(SESSION, self.view)]

    def show(self, **changes: object) -> None:
        """Change the view of the one session."""
        self.view = replace(self.view, running=True, **changes)  # type: ignore[arg-type]

    def say(self, text: str, tokens: int = 1) -> None:
        """Commit `text`, which is so many tokens."""
        self._tokens += tokens
        self._send({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})

    def end(self) -> None:
        """Finish the answer."""
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._send({"choices": [], "usage": {"completion_tokens": self._tokens}})
        self._said.put_nowait(None)
        self._over()

    def fail(self, message: str) -> None:
        """Break the answer off with an error object."""
        self._said.put_nowait({"error": {"message": message}})
        self._said.put_nowait(None)
        self._over()

    def _over(self) -> None:
        self._tokens, self.view = 0, replace(self.view, running=False)

    def _send(self, chunk: dict[str, object]) -> None:
        self._said.put_nowait(chunk | {"acespec": {"session": SESSION, "tokens": self._tokens}})

    def comment(self, words: str) -> None:
        """A line beside the answer."""
        self._said.put_nowait({"comment": words})

    async def models(self, request: Request) -> Response:
        return self._locked(request) or JSONResponse({"data": [{"id": "a-model"}]})

    async def complete(self, request: Request) -> Response:
        if locked := self._locked(request):
            return locked
        self.asked.append(await request.json())
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return JSONResponse({"error": {"message": refusal}}, 400)
        self._send({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        return StreamingResponse(self._chunks(), media_type="text/event-stream")

    async def _chunks(self) -> AsyncIterator[str]:
        try:
            while (chunk := await self._said.get()) is not None:
                yield f": {chunk['comment']}\n\n" if "comment" in chunk else f"data: {json.dumps(chunk)}\n\n"
        except asyncio.CancelledError:
            self.left_early += 1
            self._over()
            raise
        yield "data: [DONE]\n\n"

    def _locked(self, request: Request) -> Response | None:
        if self.key is None or request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        return JSONResponse({"error": {"message": "wrong key"}}, 401)

    def app(self) -> Starlette:
        """The page's own routes; the live one behind the key."""
        shown, live = routes(self)

        async def locked_live(request: Request) -> Response:
            response = self._locked(request)
            return response if response is not None else await live.endpoint(request)

        return Starlette(
            routes=[
                shown,
                Route(LIVE_PATH, locked_live),
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
            ]
        )


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without a window."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


async def ask(page: Page, text: str = "Hello") -> None:
    """Send a message."""
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_role("button", name="Send").click()


@asynccontextmanager
async def staged(stage: Stage) -> AsyncIterator[Stage]:
    """Serve `stage` on loopback."""
    config = uvicorn.Config(stage.app(), host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    stage.address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield stage
    finally:
        stage.closing.set()
        stage.fail("the stage is over")
        server.should_exit = True
        await serving
