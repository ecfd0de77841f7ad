"""The page's own arithmetic, run in a browser without a server: the flow of bursts, and where a guess stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.resources import files
from itertools import pairwise

import pytest
import pytest_asyncio

pytest.importorskip("playwright.async_api", reason="no playwright: pip install playwright")

from playwright.async_api import Page

from tests.proxy.page_stage import CHROMIUM, NO_CHROMIUM, chromium

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page() -> AsyncIterator[Page]:
    folder = files("acespec.edge.proxy") / "page"
    async with chromium() as browser:
        page = await browser.new_page()
        for name in ("guess", "flow"):
            await page.add_script_tag(content=(folder / f"{name}.js").read_text())
        yield page


async def flowed(page: Page, bursts: list[tuple[int, int]], times: list[int]) -> list[int]:
    """Solid characters at `times` (ms), after bursts of (time, length of the text)."""
    result: list[int] = await page.evaluate(
        """([bursts, times]) => { const flow = new Flow(); return times.map(now => {
            while (bursts.length && bursts[0][0] <= now) {
                const [at, end] = bursts.shift();
                flow.at(at);
                flow.burst(end, at);
            }
            return flow.at(now); }); }""",
        [bursts, times],
    )
    return result


async def test_even_bursts_become_an_even_flow(page: Page) -> None:
    bursts = [(500 * number, 50 * (number + 1)) for number in range(20)]
    solid = await flowed(page, bursts, list(range(5000, 9500, 100)))
    steps = [later - earlier for earlier, later in pairwise(solid)]
    assert sum(steps) == pytest.approx(440, abs=15)
    assert max(steps) <= 14, "ten characters each 100 ms are due"
    assert min(steps) >= 6


async def test_no_more_than_what_came_is_solid_and_a_pause_leaves_nothing_behind(page: Page) -> None:
    times = list(range(0, 4000, 10))
    bursts = [(0, 40), (30, 45), (700, 300)]
    for now, solid in zip(times, await flowed(page, list(bursts), times), strict=True):
        assert solid <= max((end for at, end in bursts if at <= now), default=0)
    assert (await flowed(page, list(bursts), [699, 3999]))[-1] == 300


@pytest.mark.parametrize(
    ("events", "ahead"),
    [
        pytest.param([("see", "abc", 0)], "abc", id="before the first commit"),
        pytest.param([("see", "abcd", 0), ("commit", "ab", 2)], "cd", id="right"),
        pytest.param([("see", "abcd", 0), ("commit", "ax", 2)], "", id="wrong"),
        pytest.param([("commit", "ab", 2), ("see", "abcd", 0)], "cd", id="overtaken by a commit that it foresaw"),
        pytest.param([("commit", "ax", 2), ("see", "abcd", 0)], "", id="overtaken by one that it did not"),
        pytest.param([("see", "abcd", 0), ("see", "ef", 4), ("commit", "abc", 3)], "d", id="ahead of its commit"),
        pytest.param([("see", "ef", 4), ("commit", "abc", 3), ("commit", "d", 4)], "ef", id="caught up with"),
        pytest.param([("see", "ef", 4), ("commit", "abcde", 5)], "", id="made within a commit: no telling where"),
        pytest.param([("commit", "ab", 2), ("see", "xy", 3), ("see", "cd", 2)], "cd", id="a newer one takes its place"),
        pytest.param([("commit", "very ", None), ("see", "very far", 7)], "very far", id="without counts"),
    ],
)
async def test_a_guess_stands_where_it_was_made(page: Page, events: list[tuple[str, str, int]], ahead: str) -> None:
    shown = await page.evaluate(
        """events => { const guess = new Guess();
            for (const [name, ...rest] of events) guess[name](...rest);
            return guess.ahead; }""",
        events,
    )
    assert shown == ahead


async def test_a_cut_never_splits_what_a_reader_takes_for_one_character(page: Page) -> None:
    text = "a👩‍👩‍👧‍👦é한🇫🇷b"
    cuts: list[int] = await page.evaluate(
        "text => Array.from({ length: text.length + 1 }, (_, at) => wholeCut(text, 0, at))",
        text,
    )
    assert cuts == sorted(cuts)
    pieces = [text.encode("utf-16-le")[: 2 * cut].decode("utf-16-le") for cut in sorted(set(cuts))]
    assert pieces == ["", "a", "a👩‍👩‍👧‍👦", "a👩‍👩‍👧‍👦é", "a👩‍👩‍👧‍👦é한", "a👩‍👩‍👧‍👦é한🇫🇷", text]
