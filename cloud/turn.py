"""One turn as the engine sees it: committed tokens, pending drafts, its next block, and what a step's samples do."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from acespec.cloud.acceptance import Acceptance, Pick, Trial
from acespec.cloud.backend import Committed, Offer, TurnSpec
from acespec.cloud.draft_tree import DraftTree
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.due import DueClock, Knee
from acespec.cloud.kv_pages import Hold
from acespec.cloud.runner import Block, Drawn, prefill_chunks
from acespec.cloud.stops import StopRule
from acespec.proto.messages import FinishReason, Totals

log = logging.getLogger(__name__)

CATCH_UP = 0.8
"""A reader who takes more than this share of what plain steps can give is not caught up with by them."""
MARGIN = 1.1
"""Lead to build, in cycles of the drafts."""
PATIENCE_S = 0.2
"""A session whose drafts are on their way may be this late: the reader's buffer is longer."""
DRY = 12
"""Steps in a row without drafts after which none are expected."""


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
    """The generation state of one turn. `acceptance` outlives it, with its session.

    A turn waits while it has no `hold`, that is, no KV pages; then it prefills, then it decodes.
    """

    def __init__(self, spec: TurnSpec, stops: StopRule, limits: Limits, acceptance: Acceptance, now: float) -> None:
        self.spec = spec
        self.tokens = list(spec.tokens)
        self.hold: Hold | None = None
        self.cached = 0
        self.attached = True
        self.closed = False
        self.step_wanted = False
        self.received = len(self.tokens)
        self.opened = self.queued_at = self.seated_at = now
        self.clock = DueClock(now, spec.rate)
        self.finish: FinishReason | None = None
        self._text_end: int | None = None
        self._ready = 0
        self._needed = 1
        self._dry_steps = DRY
        self._rule = DrawRule(
            params=spec.params,
            seed=spec.seed,
            prompt_len=spec.prompt_len,
            banned=spec.stop_ids if spec.min_tokens else (),
            min_tokens=spec.min_tokens,
            top_logprobs=spec.top_logprobs,
            constraint=spec.constraint,
        )
        self._knee = Knee()
        self._stops = stops
        self._limits = limits
        self._run_ahead = limits.run_ahead
        self._epoch = spec.epoch
        self._tree = DraftTree(self.tokens, limits.max_nodes)
        self._acceptance = acceptance
        self._steps = self._plain = self._drafted = self._accepted = self._received_nodes = 0
        self._verify_s = 0.0
        self._hits = 0

    @property
    def principal(self) -> str:
        """Who pays."""
        return self.spec.session[0]

    @property
    def waiting(self) -> bool:
        """True while it has no KV pages."""
        return self.hold is None

    @property
    def prefilling(self) -> bool:
        """True while more than the last token lacks its KV."""
        return self.cached < len(self.tokens) - 1

    @property
    def nodes(self) -> int:
        """Draft nodes that are held: pending ones, and matched ones that may still be named."""
        return len(self._tree) + self._tree.matched

    @property
    def pending(self) -> int:
        """Draft nodes that wait to be verified."""
        return len(self._tree)

    @property
    def may_step(self) -> bool:
        """False once finished, detached, or too far ahead of the edge."""
        if self.closed or self.finish is not None or not self.attached:
            return False
        tokens = len(self.tokens)
        # Most turns are near their edge: the cheap look first, since the scheduler asks this of all at each step.
        return tokens - self.received < self._run_ahead or tokens - len(self.spec.tokens) < self._run_ahead

    def knee(self, step_s: float) -> float:
        """Tokens/s up to which drafts carry this turn, if its steps take `step_s`; inf if it has none."""
        if self._dry_steps >= DRY:
            return math.inf
        return self._knee.rate(self._acceptance.expected(self._acceptance.enough), step_s)

    def worth(self, now: float) -> bool:
        """Are the pending drafts worth a step of their own?

        While what is committed lasts until the next drafts come, as many as are likely to be right; the sooner it runs
        out the fewer: an early verdict then saves the time that drafting behind a wrong guess would waste. At rate 0
        any is.
        """
        if not self._ready or self.spec.rate <= 0:
            return self._ready > 0
        enough = self._needed
        cycle = self._knee.cycle_s
        lead = self.clock.lead(now)
        if lead < cycle:
            enough = max(1, math.ceil(enough * lead / cycle))
        return self._ready >= enough

    def catch_up(self, now: float, step_s: float | None) -> None:
        """No drafts are pending, and what is committed will not last until the next can be here: step plain at once
        until it does.

        That is cheaper than to wait for the due time: now the edge has not yet drafted anything that a plain step could
        invalidate. It helps only if steps, of `step_s` seconds, are quicker than the reader; None says that the
        verifier has no time for it.
        """
        if step_s is None or self.spec.rate <= 0 or self._dry_steps >= DRY:
            self.clock.recover(now, 0.0)
            return
        cycle = self._knee.cycle_s + step_s
        if self.clock.rate * step_s < CATCH_UP and not self._tree.heads and self.clock.lead(now) < cycle:
            self.clock.recover(now, MARGIN * cycle)

    def seat(self, hold: Hold, now: float) -> None:
        """Take KV pages, some of which may hold a prefix already."""
        self.hold = hold
        self.cached = hold.cached
        self.seated_at = now
        if self._steps == 0:
            self._hits = min(hold.cached, self.spec.prompt_len)

    def unseat(self) -> Hold:
        """Give the KV pages up. What was in them is computed again when the turn gets others."""
        hold = self._held()
        self.hold = None
        self.cached = 0
        return hold

    def offer(self, now: float, offer: Offer) -> None:
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
        self._weigh(now)

    def prefill_block(self, chunk: int) -> Block:
        """The next chunk of the prompt; the last one also draws the next token."""
        start, end = prefill_chunks(self.cached, len(self.tokens), chunk)[0]
        sample_from = end - start - 1 if end == len(self.tokens) else end - start
        return self._block(start, tuple(self.tokens[start:end]), sample_from)

    def draft_depth(self, rows: int) -> int:
        """Draft tokens of one path that could be verified next in `rows` rows."""
        return self._tree.depth(min(self._draft_room(), rows - 1)) if self._tree.heads else 0

    def verify_block(self, depth: int, cost: Sequence[float], before: float) -> tuple[Block, float]:
        """The last token and the drafts that pay, at most `depth` deep, and the tokens that this should commit.

        Without drafts it is a plain step. `cost` and `before`: see `Acceptance.rows_that_pay`.
        """
        start = len(self.tokens) - 1
        if depth < 1:
            return self._block(start, (self.tokens[-1],), 0), 1.0
        picks, expected = self._acceptance.rows_that_pay(self._tree, depth, cost, before)
        tokens = (self.tokens[-1], *[pick.token for pick in picks])
        return self._block(start, tokens, 0, _parents(picks)), expected

    def apply(self, block: Block, drawn: Drawn, seconds: float, now: float, rate: float) -> int:
        """Take what a step drew; how many of its samples were committed, 0 for an inner prefill chunk.

        `seconds` is the turn's share of the step's time; `rate` in tokens/s is what it is granted from now on.
        """
        self._verify_s += seconds
        if not drawn.tokens:
            self.cached = block.end
            return 0
        self.step_wanted = False
        drafted = len(block.tokens) - 1 - block.sample_from
        accepted = len(drawn.tokens) - 1
        self._steps += 1
        self._plain += drafted == 0
        self._dry_steps = 0 if drafted else self._dry_steps + 1
        self.clock.give(PATIENCE_S if self._dry_steps < DRY and self.spec.rate > 0 else 0.0)
        self._drafted += drafted
        if block.parents:
            self._acceptance.observe(_trials(block, drawn))
        elif not block.sample_from:
            self._acceptance.observe_chain(drafted, accepted)
        if drafted and self._acceptance.fell:
            self._warn(*self._acceptance.fell)
        taken = self._take(drawn.tokens)
        self._accepted += min(accepted, taken)  # The text may have ended within the draft.
        self.cached = len(self.tokens) - 1
        self._tree.advance()
        self.clock.committed(now, taken, rate)
        self._knee.stepped(now)
        self._weigh(now)
        return taken

    def report(self, drawn: Drawn, taken: int, verify_s: float, load: float, next_in_s: float) -> Committed:
        """What the edge is told of a step that committed the first `taken` samples of `drawn`."""
        return Committed(
            drawn.tokens[:taken],
            self._epoch,
            self._tree.last_matched,
            verify_s,
            load,
            next_in_s,
            self.finish,
            self._text_end,
            None if self.finish is None else self._totals(),
            drawn.logprobs[:taken],
            None if self.finish is None or self._rule.constraint is None else self._rule.constraint.fault,
        )

    def cancelled(self) -> Committed:
        """The final word of a turn that its edge gave up."""
        self.finish = FinishReason.CANCELLED
        return self.report(Drawn((), ()), 0, 0.0, 0.0, 0.0)

    def _warn(self, recent: float, usual: float) -> None:
        principal, session = self.spec.session
        log.warning(
            "session %s of %s: acceptance of its drafts fell to %.0f %% from %.0f %%; few are verified until it "
            "recovers: see whether its edge drafts for this model",
            session.hex()[:8],
            principal,
            100 * recent,
            100 * usual,
        )

    def _weigh(self, now: float) -> None:
        """Count the drafts that could be verified next, as far as more would be better."""
        enough = self._needed = min(self._acceptance.enough, max(1, self._draft_room()))
        self._ready = self._tree.depth(enough) if self._tree.heads else 0
        if self._ready >= enough:
            self._knee.ready(now)

    def _take(self, samples: tuple[int, ...]) -> int:
        """Append samples up to the first that ends the text; how many."""
        for count, token in enumerate(samples, 1):
            self.tokens.append(token)
            stop = self._stops.push(token)
            if stop is not None:
                self.finish, self._text_end = stop.reason, stop.text_end
            elif len(self.tokens) >= self._limits.max_length:
                self.finish = FinishReason.LENGTH
            if self.finish is not None:
                return count
        return len(samples)

    def _totals(self) -> Totals:
        return Totals(
            verify_steps=self._steps,
            plain_steps=self._plain,
            draft_tokens=self._drafted,
            accepted_tokens=self._accepted,
            verify_us=round(self._verify_s * 1e6),
            received_nodes=self._received_nodes + self._tree.received,
            cached_tokens=self._hits,
        )

    def _draft_room(self) -> int:
        """Draft tokens that can still be used: one position is the bonus token's."""
        left = min(self._stops.tokens_left, self._limits.max_length - len(self.tokens))
        return max(0, min(self._limits.max_draft, left - 1))

    def _block(self, start: int, tokens: tuple[int, ...], sample_from: int, parents: tuple[int, ...] = ()) -> Block:
        return Block(self._held().table, start, tokens, self.tokens, sample_from, self._rule, parents)

    def _held(self) -> Hold:
        if self.hold is None:
            raise RuntimeError("a turn without KV pages cannot take part in a step")
        return self.hold


def _parents(picks: list[Pick]) -> tuple[int, ...]:
    """`Block.parents` of the last token and `picks`; () if they are a chain."""
    if all(pick.parent == row for row, pick in enumerate(picks)):
        return ()
    return (-1, *(pick.parent for pick in picks))


def _trials(block: Block, drawn: Drawn) -> list[Trial]:
    """What was verified at each depth of a tree's sampled path, and which guess was right."""
    trials: list[Trial] = []
    for row, token in zip(drawn.rows, drawn.tokens, strict=True):
        guesses = [block.tokens[r] for r, parent in enumerate(block.parents) if parent == row]
        if guesses:
            trials.append((len(guesses), guesses.index(token) if token in guesses else None))
    return trials
