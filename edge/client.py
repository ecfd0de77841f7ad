"""Generates text with a verifier over gRPC: one session, many turns, surviving broken links.

The state machine decides everything; this module moves bytes, time and text. A turn that is cut off by the network is
resumed where it was, and no token is lost or shown twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Self

from acespec.edge.brain.controller import Controller
from acespec.edge.brain.draft_worker import DraftWorker
from acespec.edge.brain.tree_shape import CHAIN, TreeShape
from acespec.edge.channel import Endpoint
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.drafters.base import Drafter, TurnContext
from acespec.edge.events import Committed, Event, Finished, Reopened, TurnOpened
from acespec.edge.outage_policy import OUTAGE_TIMEOUT_S, OnOutage, outage_policy
from acespec.edge.session import EdgeSession
from acespec.edge.shared_link import Lease, SharedLink
from acespec.edge.stream import Stream, StreamEnded
from acespec.edge.turn_request import TurnRequest
from acespec.edge.turn_text import TurnText
from acespec.edge.view import View
from acespec.edge.viewing import view_of
from acespec.edge.watch import Outage, SessionWatcher
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import ProtocolError, Unavailable
from acespec.proto.messages import ModelCard

log = logging.getLogger(__name__)

BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 3.0)
CANCEL_S = 1.0
"""How long a cancelled turn waits for the cloud's last commit."""


class Client:
    """A session with one verifier, used as an async context manager.

    Args:
        tokenizer: the target's; the verifier refuses another one.
        model: name of the target, "" for whatever is served.
        drafter: proposes tokens; closed with the client.
        outage_timeout: seconds without the verifier after which a turn that had begun is given up.
        on_outage: what a turn that had begun does meanwhile: "wait", "draft" or "fail"; see `outage_policy.py`.
        shape: how wide drafts may be.
        link: the connection, if other clients share it; its endpoint is that of the client.

    Attributes:
        session: the state machine.
        tokenizer: the target's.
        on_link: called with False when the link is found to be down during a turn, with True when it is up again; it
            must neither raise nor take long.
        opened: set while the verifier serves the newest turn, and thus holds its prompt.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tokenizer: Tokenizer,
        drafter: Drafter,
        controller: Controller,
        *,
        model: str = "",
        outage_timeout: float = OUTAGE_TIMEOUT_S,
        on_outage: OnOutage | str = OnOutage.WAIT,
        shape: TreeShape = CHAIN,
        link: SharedLink | None = None,
    ) -> None:
        self._link = SharedLink(endpoint, lingers=False) if link is None else link
        self._endpoint = self._link.endpoint
        self.tokenizer = tokenizer
        self._outage_timeout = outage_timeout
        self._on_outage = outage_policy(on_outage)
        self.on_link: Callable[[bool], None] | None = None
        self.session = EdgeSession(
            fingerprint=tokenizer.fingerprint,
            vocab_size=tokenizer.vocab_size,
            controller=controller,
            model=model,
            encode=tokenizer.encode,
            tls=not self._endpoint.insecure,
            shape=shape,
            budget=self._link.budget,
        )
        self.session.on_room = self._wake_stream
        self._worker = DraftWorker(
            drafter,
            self.session,
            on_drafts=self._wake_stream,
            on_cost=self.session.proposal_takes,
        )
        self._inbox: asyncio.Queue[Event | StreamEnded | BaseException] = asyncio.Queue()
        self._stream: Stream | None = None
        self._lease: Lease | None = None
        self._failed = 0
        self._turn: TurnText | None = None
        self._yields = False
        self._drafting: asyncio.Task[None] | None = None
        self._served = False
        self._attempt = 0
        self._down_since: float | None = None
        self._lost_at: float | None = None
        self._reconnects = 0
        self._watcher: SessionWatcher | None = None
        self.opened = asyncio.Event()

    def watch(self, watcher: SessionWatcher) -> None:
        """Let `watcher` see the session, and outages. Call it before the first turn, once."""
        self._watcher = watcher
        self.session.watch(watcher)

    async def __aenter__(self) -> Self:
        self._drafting = asyncio.create_task(self._worker.run())
        self._drafting.add_done_callback(self._drafting_ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drafting is not None:
            self._drafting.cancel()
            await asyncio.gather(self._drafting, return_exceptions=True)
        await self._drop_stream(suspect=False)
        await self._worker.close()

    async def describe(self) -> ModelCard:
        """What the verifier serves. Costs a connection of its own.

        Raises:
            ProtocolError: it cannot be reached, or refuses.
        """
        return await self._link.describe()

    def view(self) -> View:
        """What may be shown now; cheap enough for every 50 ms. Between turns its figures are those of the last one."""
        since = self.session.silent_since(time.monotonic()) if self._down_since is None else self._lost_at
        return view_of(self.session, self._turn, running=self._yields, waiting_since=since)

    async def stream(
        self, ids: Sequence[int], request: TurnRequest, *, text: str | None = None, shared: int = 0
    ) -> AsyncGenerator[TextDelta | Completion, None]:
        """Generate behind `ids`: text as it is committed, and a `Completion` at last.

        Leaving the iteration early, or cancelling the task, cancels the turn at the verifier.

        Args:
            ids: the prompt. What the session holds of it already does not go up again.
            text: what `ids` were encoded from, if they were.
            shared: leading ids that another session has sent to this verifier; they do not go up again.

        Raises:
            ProtocolError: the verifier refuses, breaks, or cannot be reached for too long.
        """
        now = time.monotonic()
        turn = TurnText(self.tokenizer, request, now, self.session.wire_totals(now))
        await self._begin(ids, request, text, shared)
        self._turn, self._yields = turn, True
        try:
            while True:
                item = await self._inbox.get()
                match item:
                    case Committed():
                        yield turn.committed(item)
                    case Finished():
                        last = turn.finished(item)
                        if last.text:
                            yield last
                        yield self._completion(turn, item, request)
                        return
                    case TurnOpened():
                        self._up_again(item)
                    case Reopened():
                        log.info("the turn was opened again: %s", item.reason)
                    case StreamEnded():
                        await self._recover(item)
                    case BaseException():
                        raise item
        finally:
            self._yields = False
            self._down_since = None
            if self.session.running:
                await self._stop_turn()

    async def _begin(self, ids: Sequence[int], request: TurnRequest, text: str | None, shared: int) -> None:
        self._reconnects = 0
        self.opened.clear()
        await self._forget_old_news()
        self._worker.begin(
            TurnContext(
                request.params,
                request.seed,
                len(ids),
                self.tokenizer.vocab_size,
                banned=request.end_ids,
                min_tokens=request.min_tokens,
            )
        )
        self.session.start_turn(time.monotonic(), ids, request, text=text, shared=shared)
        if self._stream is None:
            self._connect()
        self._worker.wake()
        self._wake_stream()

    async def _forget_old_news(self) -> None:
        """Drop what came in after the last turn; a fault of the drafter stays."""
        while not self._inbox.empty():
            item = self._inbox.get_nowait()
            if isinstance(item, StreamEnded):
                await self._drop_stream()
            elif isinstance(item, BaseException):
                raise item

    def _completion(self, turn: TurnText, end: Finished, request: TurnRequest) -> Completion:
        now = time.monotonic()
        terms = self.session.terms
        if terms is None:
            raise RuntimeError("a turn finished that was never opened")
        return Completion(
            text="".join(turn.pieces),
            token_ids=tuple(turn.token_ids),
            finish=end.reason,
            prompt_tokens=self.session.prompt_len,
            seed=request.seed,
            drafter=self._worker.name,
            ttft_s=(turn.first_at or now) - turn.started,
            first_tokens=turn.first_tokens,
            total_s=now - turn.started,
            totals=end.totals,
            wire=self.session.wire_totals(now) - turn.wire_before,
            rtts=tuple(self.session.rtts),
            terms=terms,
            reconnects=self._reconnects,
            resyncs=self.session.reopened,
            logprobs=None if request.top_logprobs is None else tuple(turn.logprobs),
        )

    # -- the stream below ----------------------------------------------------------------------------------------

    def _connect(self) -> None:
        rtt = max(self.session.rtts, default=self._link.budget.pacer.last_rtt or 0.0)
        self._lease = self._link.lease(failed=self._failed, attempt=self._attempt, rtt=rtt, rate=self.session.link_rate)
        self._stream = Stream(
            self._lease.channel, self._endpoint, self.session, on_event=self._on_event, on_end=self._on_end
        )

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Committed):
            self._worker.committed(event.start, event.tokens)
        self._worker.wake()
        self._inbox.put_nowait(event)

    def _on_end(self, stream: Stream, ended: StreamEnded) -> None:
        if stream is self._stream:
            self._inbox.put_nowait(ended)

    def _drafting_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._inbox.put_nowait(error)

    def _wake_stream(self) -> None:
        if self._stream is not None:
            self._stream.wake()

    async def _drop_stream(self, *, suspect: bool = True) -> None:
        """End the stream; `suspect`: because of what its connection did, or did not."""
        stream, self._stream = self._stream, None
        lease, self._lease = self._lease, None
        if stream is not None and lease is not None:
            self._failed = lease.number if suspect else 0
            await stream.close()
            await self._link.release(lease, suspect=suspect)

    def _up_again(self, opened: TurnOpened) -> None:
        if self._down_since is not None:
            log.warning(
                "connected to %s again after %.1f s", self._endpoint.target, time.monotonic() - self._down_since
            )
            self._tell(up=True)
        if not opened.terms.exact:
            log.warning("the verifier does not promise exact output: its self-check failed on that machine")
        self._served = True
        self.opened.set()
        self._attempt = 0
        self._down_since = None

    async def _recover(self, ended: StreamEnded) -> None:
        """Resume the turn on a new stream, or raise why that is not to be."""
        await self._drop_stream()
        if not self._served and ended.vague:
            await self.describe()  # A verifier that refuses us says so here, too, and why.
        if not ended.retry or not self._served:
            raise ended.error
        if self._watcher is not None:
            self._watcher.saw(Outage(str(ended.error)))
        if self._on_outage is OnOutage.FAIL:
            raise Unavailable(f"{ended.error}; the answer ends here, as --on-outage fail asks") from ended.error
        now = time.monotonic()
        if self._down_since is None:
            log.warning("%s; resuming", ended.error)
            self._down_since, self._lost_at = now, self.session.silent_since(now) or now
            self._tell(up=False)
        if self._on_outage is OnOutage.DRAFT:
            self.session.draft_alone()
            self._worker.wake()
        if now - self._down_since > self._outage_timeout:
            raise _given_up(ended.error, self._outage_timeout)
        await asyncio.sleep(BACKOFF_S[min(self._attempt, len(BACKOFF_S) - 1)] * random.uniform(0.8, 1.2))
        self.session.reconnect(time.monotonic())
        self._connect()
        self._attempt += 1
        self._reconnects += 1

    def _tell(self, *, up: bool) -> None:
        if self.on_link is not None:
            self.on_link(up)

    async def _stop_turn(self) -> None:
        """The caller has left: tell the verifier, and wait a moment for its last word."""
        self.session.cancel()
        self._wake_stream()
        try:
            async with asyncio.timeout(CANCEL_S):
                while self.session.running and self._stream is not None:
                    if isinstance(await self._inbox.get(), StreamEnded | BaseException):
                        break
        except TimeoutError:
            log.info("the verifier did not confirm the cancellation within %.0f s", CANCEL_S)
        if self.session.running:
            self.session.abandon()
            await self._drop_stream()


def _given_up(error: ProtocolError, seconds: float) -> Unavailable:
    return Unavailable(
        f"gave up after {seconds:.0f} s without the verifier ({error}); a longer --outage-timeout waits more"
    )
