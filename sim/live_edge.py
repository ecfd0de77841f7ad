"""An edge of a live run: a real client over gRPC that asks what the world's user asks, and reports like the world."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.turn_request import TurnRequest
from acespec.edge.wire_stats import WireTotals
from acespec.proto.messages import FinishReason, Totals
from acespec.proto.replay_text import end_id
from acespec.sim.agenda import Agenda
from acespec.sim.world.place import Place, Wish


class LiveClock:
    """Lets an agenda's time follow the real one: what was asked for happens when `tick` notices."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._began = time.monotonic()

    def begin(self) -> None:
        """Now is 0."""
        self._began = time.monotonic()

    def tick(self) -> None:
        """Bring the agenda up to now."""
        self._agenda.run(time.monotonic() - self._began)


@dataclass(frozen=True, slots=True)
class Account:
    """What a turn came to, as the client tells at its end."""

    totals: Totals
    wire: WireTotals


class LiveEdge:
    """Lives at `place`; `rate` is what it asks for. `settled` hears each turn's account."""

    def __init__(
        self, place: Place, client: Client, clock: LiveClock, rate: float | None, settled: Callable[[Account], None]
    ) -> None:
        self._place = place
        self._client = client
        self._clock = clock
        self._rate = rate
        self._settled = settled
        self._wishes: asyncio.Queue[Wish | None] = asyncio.Queue()

    def start(self, wish: Wish) -> None:
        """See `Actor.start`."""
        self._wishes.put_nowait(wish)

    def leave(self) -> None:
        """No more wishes; a turn that runs is cancelled, and ends with its account."""
        self._client.session.cancel()
        self._wishes.put_nowait(None)

    async def run(self) -> None:
        """Fulfil wishes until `leave`. Raises what the client raises."""
        async with self._client:
            while (wish := await self._wishes.get()) is not None:
                done = await self._answer(wish)
                self._clock.tick()
                self._settled(Account(done.totals, done.wire))
                if done.finish is FinishReason.CANCELLED:
                    return
                self._place.over()

    async def _answer(self, wish: Wish) -> Completion:
        ids = [*self._client.session.ids, *wish.prompt]
        request = TurnRequest(
            seed=wish.seed, max_tokens=wish.tokens, end_ids=(end_id(self._place.vocab),), target_rate=self._rate
        )
        async with aclosing(self._client.stream(ids, request)) as parts:
            async for part in parts:
                if isinstance(part, Completion):
                    return part
                if part.token_ids:
                    self._clock.tick()
                    self._place.told(len(part.token_ids))
        raise RuntimeError("the stream ended without a completion")
