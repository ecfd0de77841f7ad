"""The web page in a real browser: what a reader sees of commits, guesses, outages and faults."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright.async_api", reason="no playwright: pip install playwright")

from playwright.async_api import Browser, Page, expect

from tests.proxy.page_stage import CHROMIUM, GUESS, NO_CHROMIUM, SOLID, Stage, ask, chromium, staged

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.asyncio(loop_scope="module"),
]
FOREIGN_SCRIPT = """() => {
    try { document.body.append(Object.assign(document.createElement('script'), {src: '/v1/models'})); return 'ran'; }
    catch { return 'refused'; }
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    async with staged(Stage()) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, stage: Stage) -> AsyncIterator[Page]:
    page = await browser.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    await page.goto(stage.address)
    yield page
    await page.close()
    assert not faults


async def test_committed_text_is_plain_and_guesses_are_dimmed_behind_it(page: Page, stage: Stage) -> None:
    await ask(page)
    stage.show(provisional_text="The quick brown fox", committed=0)
    await expect(page.locator(GUESS)).to_have_text("The quick brown fox")
    await expect(page.locator(SOLID)).to_have_text("")
    stage.say("The quick", tokens=2)
    stage.show(provisional_text=" brown fox", committed=2)
    await expect(page.locator(SOLID)).to_have_text("The quick")
    await expect(page.locator(GUESS)).to_have_text(" brown fox")
    solid, guess = [await page.locator(place).evaluate("e => getComputedStyle(e).color") for place in (SOLID, GUESS)]
    assert solid != guess


async def test_a_wrong_guess_is_replaced_in_place(page: Page, stage: Stage) -> None:
    await ask(page)
    stage.show(provisional_text="The quick brown fox", committed=0)
    await expect(page.locator(GUESS)).to_have_text("The quick brown fox")
    stage.say("The slow", tokens=2)
    await expect(page.locator(SOLID)).to_have_text("The slow")
    await expect(page.locator(GUESS)).to_have_text("")
    stage.show(provisional_text=" green snail", committed=2)
    await expect(page.locator(GUESS)).to_have_text(" green snail")
    stage.end()
    await expect(page.locator(GUESS)).to_have_text("")
    await expect(page.locator(".answer .account")).to_contain_text("2 tokens")


async def test_a_guess_is_placed_behind_the_tokens_that_it_was_made_behind(page: Page, stage: Stage) -> None:
    await ask(page)
    stage.say("One two", tokens=2)
    await expect(page.locator(SOLID)).to_have_text("One two")
    stage.show(provisional_text="One two three", committed=0)  # It has been overtaken by the commit.
    await expect(page.locator(GUESS)).to_have_text(" three")
    stage.show(provisional_text=" five", committed=4)  # It has overtaken the commit.
    await page.wait_for_timeout(300)
    assert await page.locator(GUESS).inner_text() == " three"
    stage.say(" three four", tokens=2)
    await expect(page.locator(GUESS)).to_have_text(" five")


async def test_bursts_only_grow_and_end_whole(page: Page, stage: Stage) -> None:
    await ask(page)
    words = "".join(f" word{number}" for number in range(60))
    await watch_solid(page)
    stage.say(words[:20])
    await page.wait_for_timeout(200)
    stage.say(words[20:])
    await expect(page.locator(SOLID)).to_have_text(words)
    seen = await page.evaluate("seen")
    assert all(words.startswith(text) for text in seen)
    assert [len(text) for text in seen] == sorted({len(text) for text in seen})


async def watch_solid(page: Page) -> None:
    """Keep every state of the solid text in `seen`."""
    await page.evaluate(
        """() => { window.seen = []; const look = () => {
            const text = document.querySelector(".answer .solid")?.textContent ?? "";
            if (text !== (seen.at(-1) ?? "")) seen.push(text); requestAnimationFrame(look); }; look(); }"""
    )


async def test_no_character_is_ever_split(page: Page, stage: Stage) -> None:
    await ask(page)
    family = "👩‍👩‍👧‍👦"
    await watch_solid(page)
    stage.say(family * 8)
    await expect(page.locator(SOLID)).to_have_text(family * 8)
    for text in await page.evaluate("seen"):
        assert text == family * (len(text) // len(family))


async def test_an_outage_is_told_once_and_taken_back(page: Page, stage: Stage) -> None:
    await ask(page)
    stage.say("So far")
    notice = page.locator("#notice")
    await expect(notice).to_be_hidden()
    stage.show(waiting_since=time.monotonic() - 5, provisional_text=" so good", committed=1)
    await expect(notice).to_contain_text("Waiting for the link since")
    await expect(notice).to_contain_text(re.compile(r"\(([5-9]|\d\d) s\)"))
    stage.show(alone=True)
    await expect(notice).to_contain_text("provisional")
    await expect(page.locator(".answer.waiting .guess")).to_have_text(" so good")
    stage.show(waiting_since=None, alone=False)
    await expect(notice).to_be_hidden()
    await expect(page.locator(".answer.waiting")).to_have_count(0)


async def test_what_the_endpoint_says_beside_the_answer_is_shown_until_it_comes(page: Page, stage: Stage) -> None:
    await ask(page)
    stage.comment("waiting for a free session")
    await expect(page.locator("#notice")).to_have_text("Waiting for a free session.")
    stage.say("Here.")
    await expect(page.locator(SOLID)).to_have_text("Here.")
    await expect(page.locator("#notice")).to_be_hidden()


async def test_stop_keeps_what_was_said_and_tells_the_server(page: Page, stage: Stage) -> None:
    await ask(page, "First")
    stage.show(provisional_text=" and more", committed=0)
    stage.say("Half an")
    await expect(page.locator(SOLID)).to_have_text("Half an")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".answer .account")).to_have_text("stopped")
    await expect(page.locator(GUESS)).to_have_text("")
    await ask(page, "Second")
    stage.say("Yes.")
    stage.end()
    await expect(page.locator(SOLID)).to_have_text("Yes.")
    assert stage.left_early == 1
    assert stage.asked[1]["messages"] == [
        {"role": "user", "content": "First"},
        {"role": "assistant", "content": "Half an"},
        {"role": "user", "content": "Second"},
    ]


async def test_the_settings_go_into_the_request(page: Page, stage: Stage) -> None:
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("System prompt").fill("Be brief.")
    await page.get_by_label("Temperature").fill("0")
    await page.get_by_label("Most tokens").fill("7")
    await page.get_by_label("Seed").fill("3")
    await ask(page)
    stage.say("Hi.")
    stage.end()
    await expect(page.locator(SOLID)).to_have_text("Hi.")
    (request,) = stage.asked
    assert request["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert request | {"messages": None} == {
        "model": "a-model",
        "messages": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 7,
        "seed": 3,
    }


async def test_a_new_chat_forgets_and_a_reload_does_not(page: Page, stage: Stage) -> None:
    await ask(page, "Remember this")
    stage.say("I do.")
    stage.end()
    await expect(page.locator(".answer .account")).to_be_visible()
    await page.reload()
    await expect(page.locator(".message")).to_have_text(["Remember this", "I do."])
    await page.get_by_role("button", name="New chat").click()
    await expect(page.locator(".message")).to_have_count(0)
    await ask(page, "Afresh")
    stage.say("Yes.")
    await expect(page.locator(SOLID)).to_have_text("Yes.")
    assert stage.asked[-1]["messages"] == [{"role": "user", "content": "Afresh"}]


async def test_faults_are_shown_and_can_be_tried_again(page: Page, stage: Stage) -> None:
    stage.refusal = "the verifier cannot be reached: check --verifier"
    await ask(page)
    await expect(page.get_by_role("alert")).to_contain_text("check --verifier")
    await page.get_by_role("button", name="Try again").click()
    stage.say("Some")
    stage.fail("the link is gone")
    await expect(page.get_by_role("alert")).to_contain_text("the link is gone")
    await page.get_by_role("button", name="Try again").click()
    stage.say("All of it.")
    stage.end()
    await expect(page.locator(SOLID)).to_have_text("All of it.")
    await expect(page.locator(".message")).to_have_count(2)
    assert [request["messages"] for request in stage.asked] == [[{"role": "user", "content": "Hello"}]] * 3


async def test_the_key_is_asked_once_and_kept_in_the_tab(browser: Browser, stage: Stage) -> None:
    stage.key = "right"
    page = await browser.new_page()
    await page.goto(stage.address)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("asks for a key")
    await page.get_by_label("API key").fill("wrong")
    await page.get_by_role("button", name="Use it").click()
    await expect(dialog).to_contain_text("not accepted")
    await page.get_by_label("API key").fill("right")
    await page.get_by_role("button", name="Use it").click()
    await expect(dialog).to_be_hidden()
    await expect(page.locator("#model")).to_have_text("a-model")
    stage.show(link_kbps=50.0)
    await expect(page.locator("#rate")).to_contain_text("50")
    await page.reload()
    await ask(page)
    stage.say("Hi.")
    await expect(page.locator(SOLID)).to_have_text("Hi.")
    await expect(dialog).to_be_hidden()
    assert await page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    await page.close()


async def test_what_comes_from_outside_never_becomes_markup(page: Page, stage: Stage) -> None:
    hostile = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    await ask(page, hostile)
    stage.show(provisional_text=hostile, committed=1)
    stage.say(hostile)
    await expect(page.locator(SOLID)).to_have_text(hostile)
    await expect(page.locator(GUESS)).to_have_text(hostile)
    stage.fail(hostile)
    await expect(page.get_by_role("alert")).to_contain_text(hostile)
    assert await page.locator("img").count() == 0
    assert await page.title() == "acespec"
    assert await page.evaluate(FOREIGN_SCRIPT) == "refused"


async def test_the_page_asks_its_own_endpoint_only(browser: Browser, stage: Stage) -> None:
    page = await browser.new_page()
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    await page.goto(stage.address)
    await ask(page)
    stage.say("Hi.")
    await expect(page.locator(SOLID)).to_have_text("Hi.")
    paths = {url.removeprefix(stage.address) for url in seen if not url.startswith("data:")}
    assert paths == {"/", "/v1/models", "/acespec/live", "/v1/chat/completions"}
    await page.close()


async def test_the_link_is_drawn_and_told(page: Page, stage: Stage) -> None:
    await ask(page)
    for step in range(1, 6):
        stage.show(
            up_bytes=300 * step, down_bytes=200 * step, committed=3 * step, draft_length=step, rtt_ms=120.0 + step,
            link_kbps=49.6, acceptance_length=2.75, bytes_per_token=33.4, verifier_load=0.25,
        )  # fmt: skip
        await page.wait_for_timeout(150)
    for figure, words in {
        "rate": "50kbit/s", "rtt": "125ms", "draft": "5tokens", "accepted": "2.8a commit",
        "per-token": "33bytes", "load": "25% busy",
    }.items():  # fmt: skip
        await expect(page.locator(f"#{figure}")).to_have_text(words)
    for strip in ("bytes", "trips", "tokens"):
        inked = await page.locator(f"canvas#{strip}").evaluate(
            """c => c.getContext('2d').getImageData(0, 0, c.width, c.height)
                .data.filter((value, index) => index % 4 === 3 && value).length"""
        )
        assert inked > 100, f"nothing is drawn in {strip}"
    await expect(page.locator("canvas#bytes")).to_have_attribute(
        "aria-label", "Last 30 seconds: 1500 bytes up, 1000 bytes down"
    )
    await expect(page.locator("canvas#tokens")).to_have_attribute(
        "aria-label", "Last 30 seconds: 15 tokens confirmed, now 5 ahead"
    )


async def test_a_screen_reader_hears_sentences_and_no_guess(page: Page, stage: Stage) -> None:
    await ask(page)
    stage.show(provisional_text=" Wrong guess. Wrong.", committed=1)
    stage.say("It is so. Because")
    spoken = page.locator("#spoken")
    await expect(spoken).to_have_text("It is so.")
    stage.say(" it is")
    stage.end()
    await expect(spoken).to_have_text("It is so. Because it is")
    assert await page.locator(".guess").last.get_attribute("aria-hidden") == "true"
    nameless = await page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea')].filter(e =>
             !(e.textContent.trim() || e.labels?.length || e.ariaLabel)).map(e => e.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("width", [320, 768])
async def test_it_fits_a_phone(browser: Browser, stage: Stage, width: int) -> None:
    page = await browser.new_page(viewport={"width": width, "height": 700})
    await page.goto(stage.address)
    await ask(page, "x" * 300)
    stage.say("An answer of one long" + "word" * 60)
    await expect(page.locator(GUESS)).to_have_text("")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await page.locator("#link summary").click()
    box = await page.get_by_role("button", name="Stop").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 700
    assert box["x"] + box["width"] <= width
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await page.close()


async def test_the_page_says_that_its_endpoint_is_gone(page: Page, stage: Stage) -> None:
    stage.show(rtt_ms=1.0)
    await expect(page.locator("#state")).to_have_text("answering")
    stage.closing.set()
    await expect(page.locator("#notice")).to_contain_text("has lost its endpoint")
    stage.closing.clear()
    await expect(page.locator("#notice")).to_be_hidden()
