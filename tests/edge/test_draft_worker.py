"""The drafter's thread: nothing that a drafter must hear is lost, whenever the session ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.draft_worker import DraftWorker
from acespec.edge.drafters.base import QuietDrafter
from acespec.edge.session import EdgeSession


class Listener(QuietDrafter):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[int] = []
        self.closed = False

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self.heard += tokens

    def close(self) -> None:
        self.closed = True


async def test_commits_that_wait_for_a_busy_thread_survive_the_end() -> None:
    drafter, free = Listener(), threading.Event()
    session = EdgeSession(fingerprint=bytes(16), vocab_size=8, controller=FixedController(4))
    worker = DraftWorker(drafter, session, on_drafts=lambda: None)
    worker._thread.submit(free.wait)
    running = asyncio.create_task(worker.run())
    worker.committed(2, (5, 6))
    await asyncio.sleep(0.02)
    worker.committed(4, (7,))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    asyncio.get_running_loop().call_later(0.02, free.set)
    await worker.close()
    assert drafter.heard == [5, 6, 7]
    assert drafter.closed
