"""A runner without a model: it draws known ids, in the time that a profile prescribes.

Scheduler, session and service above it are the real ones, so a verifier on an H100 can be had on a laptop as far as its
speed is concerned.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from acespec.cloud.runner import Block, Drawn, check_blocks, walk
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.replay_pace import JOIN_S, NEVER_IDLE_S, Pace
from acespec.proto.replay_profiles import ROW_COUNTS
from acespec.proto.replay_text import ReplayText
from acespec.proto.timing_profile import TimingProfile

MAX_LENGTH = 32_768
PAGES = 65_536
"""Pages hold nothing here, so there may be many: 4 million positions."""
REPORT_EVERY = 1000

_log = logging.getLogger(__name__)


class ReplayRunner:
    """`Runner` over a `ReplayText` with a profile's times. It trusts its caller about KV, since it has none.

    `background` is load by others: sessions that bring one row each to every step and take nothing from it.
    `never_idle` says that a step follows the last one at once while a turn runs, as under `--free-run always`.
    """

    def __init__(
        self,
        text: ReplayText,
        profile: TimingProfile,
        *,
        vocab_size: int,
        max_length: int = MAX_LENGTH,
        pages: int = PAGES,
        background: int = 0,
        never_idle: bool = False,
    ) -> None:
        self._text = text
        self._timing = loaded(profile, background)
        self._vocab_size = vocab_size
        self._max_length = max_length
        self._pages = pages
        self.pace = Pace(NEVER_IDLE_S if never_idle else JOIN_S)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def pages(self) -> int:
        return self._pages

    @property
    def numerics_id(self) -> str:
        return f"replay-{self._text.name}"

    @property
    def exact(self) -> bool:
        return True

    def timing(self) -> TimingProfile:
        """What steps take, the background's share included."""
        return self._timing

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `acespec.cloud.runner.Runner.step`. Returns when the prescribed time is over."""
        drawn = self.draw(blocks)
        if any(block.sample_from > 0 for block in blocks):
            self.pace.rest()  # A turn begins; before it there may have been none.
        self.pace.work(self.step_s(blocks))
        self._report()
        return drawn

    def draw(self, blocks: Sequence[Block]) -> list[Drawn]:
        """What a step draws, at once: the caller lets `step_s` pass in a time of its own."""
        check_blocks(blocks, self._pages, self._vocab_size, self._max_length)
        return [self._draw(block) for block in blocks]

    def step_s(self, blocks: Sequence[Block]) -> float:
        """The prescribed time of a step: its verify rows in one pass, then its prompt rows at the prefill rate."""
        verify = [block for block in blocks if block.sample_from == 0]
        prompt_rows = sum(len(block.tokens) for block in blocks if block.sample_from > 0)
        rows = sum(len(block.tokens) for block in verify)
        positions = sum(len(block.tokens) * block.start for block in verify)
        return self._timing.step_s(rows, len(verify), positions) + self._timing.prefill_s(prompt_rows)

    def _draw(self, block: Block) -> Drawn:
        depths, rule = block.depths, block.rule

        def draw_row(row: int) -> int:
            return self._text.token(rule.seed, block.start + depths[row] + 1, rule.prompt_len)

        drawn = walk(block, draw_row)
        if rule.top_logprobs is None:
            return drawn
        return replace(drawn, logprobs=tuple(_certain(token, rule.top_logprobs) for token in drawn.tokens))

    def _report(self) -> None:
        if self.pace.pieces % REPORT_EVERY == 0:
            mean_ms = 1e3 * self.pace.late_s / self.pace.pieces
            _log.info("replayed %d steps, late by %.3f ms on average", self.pace.pieces, mean_ms)


def loaded(profile: TimingProfile, background: int) -> TimingProfile:
    """What a profile leaves to us if `background` sessions of others bring one row each to every step."""
    if background == 0:
        return profile
    counts = {*ROW_COUNTS, *(rows - background for rows, _ in profile.curve)}
    curve = tuple((r, profile.step_s(r + background, 1 + background)) for r in sorted(counts) if r > 0)
    return replace(profile, curve=curve)


def _certain(token: int, top: int) -> TokenLogprobs:
    """A known text has no alternatives."""
    return TokenLogprobs(0.0, ((token, 0.0),) if top else ())
