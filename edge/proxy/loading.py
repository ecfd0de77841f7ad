"""From the start of the proxy to the moment when it can answer: read the tokenizer, reach the verifier, compare.

The HTTP server runs meanwhile, and says that it is loading.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from acespec.edge.proxy.conversations import Conversations
from acespec.edge.proxy.errors import ApiError
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import Mismatch, Unavailable
from acespec.proto.messages import ModelCard

log = logging.getLogger(__name__)

AGAIN_S = (0.5, 1.0, 2.0, 5.0)
"""Between attempts to reach the verifier; the last one for ever."""
LOADING = "Loading model"


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, once it is. `since` is a Unix time."""

    tokenizer: Tokenizer
    card: ModelCard
    conversations: Conversations
    since: int


class Loading:
    """Runs once; `served` fails until it is through."""

    def __init__(self) -> None:
        self._served: Served | None = None
        self._state = LOADING

    @property
    def served(self) -> Served:
        """What is served.

        Raises:
            ApiError: nothing yet.
        """
        if self._served is None:
            raise ApiError(self._state, status=503, kind="unavailable_error", code="loading", retry_after=AGAIN_S[-1])
        return self._served

    @property
    def state(self) -> str | None:
        """What it waits for; None once it is through."""
        return None if self._served is not None else self._state

    async def run(self, load: Callable[[], Tokenizer], describe: Callable[[], Awaitable[ModelCard]]) -> Served:
        """Load, and wait for the verifier as long as it takes.

        Args:
            load: reads the tokenizer, in a thread.

        Raises:
            AcespecError: what waiting will not cure: no such model, a key that is refused, another tokenizer.
        """
        tokenizer = await asyncio.to_thread(load)
        card = await self._reach(describe)
        if card.fingerprint != tokenizer.fingerprint:
            raise Mismatch(
                f"tokenizers differ: {tokenizer.fingerprint.hex()} here, {card.fingerprint.hex()} for '{card.model}' "
                "at the verifier; point --model at the served model"
            )
        self._served = Served(tokenizer, card, Conversations(tokenizer), int(time.time()))
        return self._served

    async def _reach(self, describe: Callable[[], Awaitable[ModelCard]]) -> ModelCard:
        for attempt in range(1_000_000):
            try:
                return await describe()
            except Unavailable as fault:
                if not attempt:
                    log.warning("%s; waiting for it", fault)
                self._state = f"{LOADING}: {fault}"
                await asyncio.sleep(AGAIN_S[min(attempt, len(AGAIN_S) - 1)])
        raise Unavailable("the verifier was never reached; start the proxy again")
