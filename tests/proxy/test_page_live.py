"""The page on the real proxy, over a verifier that replays a text: what is shown in the end is the text."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright.async_api", reason="no playwright: pip install playwright")

from playwright.async_api import Browser, Page, expect

from acespec.edge.proxy.settings import Settings
from tests.e2e.relay import Relay
from tests.proxy.page_stage import CHROMIUM, GUESS, NO_CHROMIUM, SOLID, ask, chromium
from tests.proxy.stack import proxy, stack, verifier, words

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.asyncio(loop_scope="module"),
]
TOKENS = 40
SEED = 7
TEXT = words("Hello", TOKENS, SEED)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


async def opened(browser: Browser, url: str, key: str = "") -> Page:
    page = await browser.new_page()
    if key:
        await page.add_init_script(f"sessionStorage.setItem('acespec.key', '{key}')")
    await page.goto(url)
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Most tokens").fill(str(TOKENS))
    await page.get_by_label("Seed").fill(str(SEED))
    return page


async def ends_well(page: Page) -> None:
    """The answer is complete, and exactly the text."""
    await expect(page.locator(".answer .account")).to_contain_text(f"{TOKENS} tokens", timeout=20_000)
    await expect(page.locator(SOLID)).to_have_js_property("textContent", TEXT)
    await expect(page.locator(GUESS)).to_have_text("")
    await expect(page.locator("#notice")).to_be_hidden()


async def test_drafts_run_ahead_and_the_answer_is_the_text(browser: Browser) -> None:
    async with stack(Settings(keys=("secret",), drain_s=0.5), step_s=0.12) as (_, near):
        page = await opened(browser, near.url, "secret")
        await expect(page.locator("#model")).to_have_text("replay")
        await page.evaluate(
            """() => { window.seen = []; setInterval(() => {
                const [solid, guess] = [...document.querySelectorAll(".answer .body span")].map(e => e.textContent);
                if (guess) seen.push(solid + guess); }, 20); }"""
        )
        await ask(page)
        await ends_well(page)
        seen: list[str] = await page.evaluate("seen")
        assert any(TEXT.startswith(shown) for shown in seen), "some guesses are right"
        assert any(not TEXT.startswith(shown) for shown in seen), "and some are not"
        await page.close()


async def test_an_outage_is_shown_and_survived(browser: Browser) -> None:
    async with verifier(0.12) as far, Relay(far.address) as relay, proxy(relay.address, on_outage="draft") as near:
        page = await opened(browser, near.url)
        await ask(page)
        await expect(page.locator(SOLID)).not_to_be_empty()
        away, relay.target = relay.target, "127.0.0.1:1"
        relay.cut()
        await expect(page.locator("#notice")).to_contain_text("No link since")
        await expect(page.locator(".answer.waiting .guess")).not_to_be_empty()
        await expect(page.locator("#state")).to_have_text("waiting")
        relay.target = away
        await ends_well(page)
        await page.close()


@pytest.mark.slow  # The proxy speaks up after five seconds.
async def test_a_question_asked_during_an_outage_says_that_it_waits(browser: Browser) -> None:
    async with verifier() as far, Relay(far.address) as relay, proxy(relay.address) as near:
        page = await opened(browser, near.url)
        away, relay.target = relay.target, "127.0.0.1:1"
        relay.cut()
        await ask(page)
        await expect(page.locator("#notice")).to_contain_text("aiting for the link since", timeout=10_000)
        relay.target = away
        await ends_well(page)
        await page.close()
