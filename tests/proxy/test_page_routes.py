"""The page's answers as any HTTP client sees them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from base64 import b64encode
from contextlib import aclosing
from dataclasses import fields, replace

from acespec.edge.proxy.page_routes import page, pictures
from acespec.edge.view import View


class Pool:
    """Two sessions, one of them ours to change."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.view = View()

    def views(self) -> list[tuple[str, View]]:
        return [("a", self.view), ("b", View())]


def test_the_policy_names_exactly_what_is_inline() -> None:
    html, policy = page().html.decode(), page().policy
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_nothing_is_fetched_from_elsewhere() -> None:
    html = page().html.decode()
    assert "{{" not in html
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", html)
    assert not re.findall(r"\s(?:style|on\w+)=", html), "the policy forbids it"
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", html)


def test_every_id_that_the_scripts_name_is_there() -> None:
    html = page().html.decode()
    ids = re.findall(r'\sid="([\w-]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:element|getElementById)\("([\w-]+)"\)', html)) <= set(ids)


async def test_a_picture_holds_all_that_a_view_has_but_ids() -> None:
    pool = Pool()
    pool.view = View(running=True, provisional=(1, 2), provisional_text=" é\n\n", waiting_since=time.monotonic() - 3)
    async with aclosing(pictures(pool)) as stream:
        block = await anext(stream)
    assert block.endswith(b"\n\n")
    assert block.count(b"\n") == 2
    live = json.loads(block.removeprefix(b"data: "))
    first, second = live["sessions"]
    assert (first["id"], second["id"]) == ("a", "b")
    assert first["provisional_text"] == " é\n\n"
    assert 3.0 <= first["waiting_s"] < 4.0
    assert second["waiting_s"] is None
    expected = {field.name for field in fields(View)} - {"provisional", "waiting_since"} | {"id", "waiting_s"}
    assert set(first) == expected


async def test_pictures_come_with_changes_and_end_with_the_pool() -> None:
    pool = Pool()
    came: list[bytes] = []

    async def collect() -> None:
        async for block in pictures(pool):
            came.append(block)  # noqa: PERF401  (looked at meanwhile)

    collecting = asyncio.create_task(collect())
    await asyncio.sleep(0.6)
    assert len(came) == 1, "unchanged sessions need no further picture"
    pool.view = replace(pool.view, running=True, committed=5)
    await asyncio.sleep(0.6)
    assert len(came) == 2
    for committed in range(6, 10):
        pool.view = replace(pool.view, committed=committed)
        await asyncio.sleep(0.15)
    assert len(came) >= 5
    pool.closing.set()
    await asyncio.wait_for(collecting, 0.2)
