"""One turn as the engine sees it: committed tokens, pending drafts, its next block, and what a step's samples do."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.cloud.acceptance import Acceptance, CostCurve
from acespec.cloud.backend import Committed, Offer, TurnSpec
from acespec.cloud.draft_tree import DraftTree
from acespec.cloud.due import DueClock
from acespec.cloud.runner import Block, prefill_chunks
from acespec.cloud.stops import Stop, StopRule
from acespec.proto.messages import FinishReason, Totals


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows a turn.

    Attributes:
        max_draft: draft tokens of one path in a step.
        max_nodes: draft nodes in one message, and pending in all.
        run_ahead: tokens committed beyond what the edge has acknowledged; at this bound stepping stops. The default is
            7 s of the fastest profile: at a third of it, lossy links of 0.5 s and more slow plain decoding down.
        max_length: tokens of a sequence, prompt and answer.
    """

    max_draft: int = 16
    max_nodes: int = 256
    run_ahead: int = 1024
    max_length: int = 8192


class Turn:
    """The generation state of one turn.

    `cached` is how many leading tokens have their KV in `slot`; `acceptance` outlives the turn, with its session.
    """

    def __init__(
        self,
        spec: TurnSpec,
        slot: int,
        cached: int,
        stops: StopRule,
        limits: Limits,
        acceptance: Acceptance,
        now: float,
    ) -> None:
        self.spec = spec
        self.slot = slot
        self.tokens = list(spec.tokens)
        self.cached = min(cached, len(self.tokens) - 1)
        self.attached = True
        self.closed = False
        self.step_wanted = False
        self.received = len(self.tokens)
        self.last_step = now
        self.clock = DueClock(now, spec.rate)
        self.finish: FinishReason | None = None
        self._stops = stops
        self._limits = limits
        self._epoch = spec.epoch
        self._tree = DraftTree(self.tokens, limits.max_nodes)
        self._acceptance = acceptance
        self._steps = self._plain = self._drafted = self._accepted = self._received_nodes = 0
        self._verify_s = 0.0

    @property
    def prefilling(self) -> bool:
        """True while more than the last token lacks its KV."""
        return self.cached < len(self.tokens) - 1

    @property
    def pending(self) -> int:
        """Draft tokens on the path that would be verified next, within the limits."""
        return len(self._tree.chain(self._draft_room()))

    @property
    def nodes(self) -> int:
        """Draft nodes that are held: pending ones, and matched ones that may still be named."""
        return len(self._tree) + self._tree.matched

    @property
    def drafts_pay(self) -> bool:
        """True if enough drafts are pending to be worth a step of their own; at rate 0, any."""
        return self.pending >= (self._acceptance.enough() if self.spec.rate > 0 else 1)

    @property
    def may_step(self) -> bool:
        """False once finished, detached, or too far ahead of the edge."""
        ahead = len(self.tokens) - max(self.received, len(self.spec.tokens))
        return not self.closed and self.finish is None and self.attached and ahead < self._limits.run_ahead

    def offer(self, offer: Offer) -> None:
        """Take what a `Draft` brought. A new epoch forgets older drafts.

        Raises:
            BadFrame: the base lies beyond the tip.
        """
        if offer.epoch < self._epoch:
            return
        if offer.epoch > self._epoch:
            self._epoch = offer.epoch
            self._received_nodes += self._tree.received
            self._tree = DraftTree(self.tokens, self._limits.max_nodes)
        self.received = max(self.received, offer.received)
        self._tree.add(offer.first_id, offer.nodes, offer.base)
        self._tree.forget(offer.received)
        if offer.step and offer.received == len(self.tokens):
            self.step_wanted = True

    def prefill_block(self, chunk: int) -> Block:
        """The next chunk of the prompt; the last one also draws the next token."""
        start, end = prefill_chunks(self.cached, len(self.tokens), chunk)[0]
        sample_from = end - start - 1 if end == len(self.tokens) else end - start
        return self._block(start, tuple(self.tokens[start:end]), sample_from)

    def verify_block(self, cost: CostCurve, other_rows: int, budget: int) -> Block:
        """The last token and the drafts that pay, in at most `budget` rows; without drafts, a plain step."""
        drafts = self._tree.chain(min(self._draft_room(), budget - 1))
        depth = self._acceptance.depth_that_pays(len(drafts), cost, other_rows)
        start = len(self.tokens) - 1
        return self._block(start, (self.tokens[-1], *drafts[:depth]), 0)

    def apply(self, block: Block, samples: tuple[int, ...], seconds: float, now: float) -> Committed | None:
        """Commit what a step drew; None if it drew nothing (an inner prefill chunk)."""
        self.last_step = now
        self._verify_s += seconds
        if not samples:
            self.cached = block.end
            return None
        self.step_wanted = False
        drafted = len(block.tokens) - 1 - block.sample_from
        self._steps += 1
        self._plain += drafted == 0
        self._drafted += drafted
        self._accepted += len(samples) - 1
        self._acceptance.observe(drafted, len(samples) - 1)
        taken, stop = self._take(samples)
        self.cached = len(self.tokens) - 1
        self._tree.advance()
        self.clock.committed(now, len(taken))
        return self._committed(taken, stop, seconds)

    def cancelled(self) -> Committed:
        """The final word of a turn that its edge gave up."""
        return self._committed((), Stop(FinishReason.CANCELLED), 0.0)

    def _take(self, samples: tuple[int, ...]) -> tuple[tuple[int, ...], Stop | None]:
        for count, token in enumerate(samples, 1):
            self.tokens.append(token)
            stop = self._stops.push(token)
            if stop is None and len(self.tokens) >= self._limits.max_length:
                stop = Stop(FinishReason.LENGTH)
            if stop is not None:
                return samples[:count], stop
        return samples, None

    def _committed(self, tokens: tuple[int, ...], stop: Stop | None, seconds: float) -> Committed:
        if stop is None:
            return Committed(tokens, self._epoch, self._tree.last_matched, seconds)
        self.finish = stop.reason
        return Committed(
            tokens, self._epoch, self._tree.last_matched, seconds,
            finish=stop.reason, text_end=stop.text_end, totals=self._totals(),
        )  # fmt: skip

    def _totals(self) -> Totals:
        return Totals(
            verify_steps=self._steps,
            plain_steps=self._plain,
            draft_tokens=self._drafted,
            accepted_tokens=self._accepted,
            verify_us=round(self._verify_s * 1e6),
            received_nodes=self._received_nodes + self._tree.received,
        )

    def _draft_room(self) -> int:
        """Draft tokens that can still be used: one position is the bonus token's."""
        left = min(self._stops.tokens_left, self._limits.max_length - len(self.tokens))
        return max(0, min(self._limits.max_draft, left - 1))

    def _block(self, start: int, tokens: tuple[int, ...], sample_from: int) -> Block:
        spec = self.spec
        return Block(
            slot=self.slot,
            start=start,
            tokens=tokens,
            prefix=self.tokens,
            sample_from=sample_from,
            params=spec.params,
            seed=spec.seed,
            prompt_len=spec.prompt_len,
        )
