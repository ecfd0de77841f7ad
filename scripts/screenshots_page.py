"""Takes the pictures of the web page that the docs show: docs/pictures/page.png, page-dark.png and page-phone.png.

The page is the real one, served by the real proxy, in mid-draft. Behind it stands the real stack over a shaped 50 Kbps
link; only the model is replayed: at the speed of a 70B model on four A100 (`a100-70b`), a text that was written for the
picture, in the tokens of SmolLM2. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.engine import EngineBackend
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import serving as serving_grpc
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.drafters.replay import ReplayDrafter
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.edge.proxy.app import make_app
from acespec.edge.proxy.loading import Loading
from acespec.edge.proxy.metrics import Metrics
from acespec.edge.proxy.pool import ClientPool
from acespec.edge.proxy.serve import Server
from acespec.edge.proxy.settings import Settings
from acespec.edge.shared_link import SharedLink
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.replay_profiles import find_drafter, find_verifier
from acespec.proto.replay_text import RecordedText, mix
from acespec.sim.processes import free_port, serving

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
MODEL = "smollm2-135m"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--force-color-profile=srgb",
]
ACCURACY = DepthAccuracy((0.86,))
TIMEOUT_S = 90.0
GUESSED = 40
"""Characters of a guess that is worth a picture."""
QUESTION = "Why is a slow link no reason to wait for a large model?"
ANSWER = """Because the two ends need not take turns.

A small model beside you can guess what the large one is about to say. Most words are easy: once “on the other” is \
written, “hand” is hardly news. So the small model runs ahead, and sends its guesses up the line while the large \
model is still thinking. One step of the large model then checks a whole run of guesses at once. Where they agree, \
many words are settled for the price of one; where they differ, the large model’s own word stands, and the drafts \
behind it are thrown away.

What crosses the link is tiny. A guess is the number of a word, two bytes or so, and a confirmation is shorter still: \
“right so far, up to here”. A line that carries fifty thousand bits a second, which would choke on a single \
photograph, has room to spare for that.

And nothing is lost in the bargain. The large model has the last word on every token, so the text is exactly what it \
would have written alone, only sooner. If the line fails for a while, both ends remember where they were, and go on \
from there when it is back.
"""


@asynccontextmanager
async def verifier(tokenizer: Tokenizer) -> AsyncIterator[int]:
    """A replayed 70B model; yields its port."""
    runner = ReplayRunner(text(tokenizer), find_verifier("a100-70b"), vocab_size=tokenizer.vocab_size, never_idle=True)
    target = Target("a replayed 70B model", runner, tokenizer)
    limits = Limits(max_length=4096)
    card = target.card(limits, FreeRun.ALWAYS, 4095)
    table = TurnTable(runner, limits=limits, decoder=target.decoder, free_run=FreeRun.ALWAYS)
    async with EngineBackend(runner, table) as backend:
        hosts = Hosts(Admission(card, tokenizer.encode), backend)
        async with serving_grpc(card, hosts, address="127.0.0.1:0", keys=Keys(), drain_s=0.1) as port:
            yield port


def text(tokenizer: Tokenizer) -> RecordedText:
    return RecordedText(((*tokenizer.encode(ANSWER), *tokenizer.eos_ids[:1]),), tokenizer.vocab_size)


class PlausibleDrafter(ReplayDrafter):
    """Its wrong guesses are words of the text, where the usual one takes any of the vocabulary."""

    words: tuple[int, ...] = ()

    def _wrong(self, position: int, rank: int = 0) -> int:
        turn = self._known_turn()
        truth = self._text.token(turn.seed, position, turn.prompt_len)
        others = [word for word in self.words if word != truth]
        return others[(mix(turn.seed, position) + rank) % len(others)]


@asynccontextmanager
async def proxy(tokenizer: Tokenizer, verifier_port: int) -> AsyncIterator[str]:
    """The proxy with the page; yields its address."""
    endpoint = Endpoint(f"127.0.0.1:{verifier_port}", insecure=True)
    loading, settings = Loading(), Settings(drain_s=0.5)
    async with SharedLink(endpoint) as link:

        def make_client(draft_tokens: int | None) -> Client:
            drafter = PlausibleDrafter(text(tokenizer), ACCURACY, find_drafter("m3-0.6b-4bit").token_s)
            drafter.words = tuple(sorted({i for word in ANSWER.split() for i in tokenizer.encode(f" {word}")[:1]}))
            return Client(
                endpoint, tokenizer, drafter, make_controller("auto"), shape=tree_shape("siblings:3"), link=link
            )

        pool = ClientPool(make_client)
        await loading.run(lambda: tokenizer, link.describe)
        app = make_app(pool, settings, loading, Metrics(pool))
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = Server(app, settings, address)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield address
        finally:
            server.should_exit = True
            await running
            await pool.close()


async def shoot(browser: Browser, address: str, out: Path, dark: bool, width: int, height: int) -> None:
    """One picture, at a moment at which much is drafted."""
    page = await browser.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=2,
        color_scheme="dark" if dark else "light",
    )
    await page.goto(address)
    await page.get_by_label("Message", exact=True).fill(QUESTION)
    await page.get_by_role("button", name="Send").click()
    async with asyncio.timeout(TIMEOUT_S):
        await until(page, solid=620)
        while not await pictured_in_mid_draft(page, out):
            await until(page, guess=GUESSED)
    await page.close()
    sys.stdout.write(f"{out.name} is taken\n")


async def until(page: Page, **least: int) -> None:
    """Wait for so many characters of a kind."""
    for kind, fewest in least.items():
        for _ in itertools.count():
            if await length(page, kind) >= fewest:
                break
            await asyncio.sleep(0.02)


async def pictured_in_mid_draft(page: Page, out: Path) -> bool:
    """Take the picture; False if what was guessed was gone meanwhile."""
    before = await length(page, "guess")
    await page.screenshot(path=out)
    return min(before, await length(page, "guess")) >= GUESSED


async def length(page: Page, kind: str) -> int:
    """Characters of the answer that are committed (`solid`) or guessed (`guess`) now."""
    return int(await page.evaluate("kind => document.querySelector(`.answer .${kind}`)?.textContent.length ?? 0", kind))


async def main(out: Path, chromium: str) -> None:
    """Take all pictures."""
    tokenizer = Tokenizer.load(resolve(MODEL, weights=False))
    with tempfile.TemporaryDirectory() as folder:
        async with verifier(tokenizer) as port, async_playwright() as driver:
            shaped = free_port()
            link = ["link", "--preset", "wan50", "--listen", f"127.0.0.1:{shaped}", "--to", f"127.0.0.1:{port}"]
            with serving("acespec.sim.cli", link, Path(folder) / "link.log"):
                async with proxy(tokenizer, shaped) as address:
                    browser = await driver.chromium.launch(executable_path=chromium, args=FLAGS)
                    await shoot(browser, address, out / "page.png", False, 1180, 760)
                    await shoot(browser, address, out / "page-dark.png", True, 1180, 760)
                    await shoot(browser, address, out / "page-phone.png", False, 390, 780)
                    await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURES)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    options = parser.parse_args()
    asyncio.run(main(options.out, options.chromium))
