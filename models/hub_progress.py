"""The hub library draws its own bars; this one draws nothing and tells our listener instead."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from acespec.models.progress import Report

if TYPE_CHECKING:
    from tqdm.asyncio import tqdm_asyncio  # type: ignore[import-untyped, unused-ignore]

STAGE = "downloading"


def forwarding_bar(report: Report) -> type[tqdm_asyncio[Any]]:
    """A bar class for `snapshot_download`: its byte counters go to `report`, nothing goes to the terminal.

    The library keeps one byte bar for the network and one for the disk; the further of them is what is done.
    """
    from tqdm.asyncio import tqdm_asyncio

    furthest = {"done": 0, "total": 0}

    class ForwardingBar(tqdm_asyncio):  # type: ignore[type-arg, misc, unused-ignore]
        def __init__(self, *args: Any, **settings: Any) -> None:
            settings.pop("name", None)
            settings["file"] = io.StringIO()
            settings["disable"] = False
            self._counts_bytes = settings.get("unit") == "B"
            super().__init__(*args, **settings)

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            """Draw nothing."""

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            if self._counts_bytes:
                furthest["done"] = max(furthest["done"], int(self.n))
                furthest["total"] = max(furthest["total"], int(self.total or 0))
                report(STAGE, furthest["done"], furthest["total"])
            return drawn

    return ForwardingBar
