"""A runner without a model: it draws known ids, in the time that a profile prescribes.

Scheduler, session and service above it are the real ones, so a verifier on an H100 can be had on a laptop as far as its
speed is concerned.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from acespec.cloud.runner import Block, check_block, draw
from acespec.proto.errors import Exhausted, InvalidRequest
from acespec.proto.replay_pace import JOIN_S, NEVER_IDLE_S, Pace
from acespec.proto.replay_profiles import ROW_COUNTS, VerifierProfile
from acespec.proto.replay_text import ReplayText

MAX_LENGTH = 32_768
MAX_SLOTS = 4096

_log = logging.getLogger(__name__)


class ReplayRunner:
    """`Runner` over a `ReplayText` with a `VerifierProfile`'s times.

    `background` is load by others: sessions that bring one row each to every step and take nothing from it.
    `never_idle` says that a step follows the last one at once while a turn runs, as under `--free-run always`.
    """

    def __init__(
        self,
        text: ReplayText,
        profile: VerifierProfile,
        *,
        vocab_size: int,
        max_length: int = MAX_LENGTH,
        background: int = 0,
        max_slots: int = MAX_SLOTS,
        never_idle: bool = False,
    ) -> None:
        self._text = text
        self._profile = profile
        self._vocab_size = vocab_size
        self._max_length = max_length
        self._background = background
        self._lengths: dict[int, int] = {}
        self._free = list(range(max_slots))[::-1]
        self.pace = Pace(NEVER_IDLE_S if never_idle else JOIN_S)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def numerics_id(self) -> str:
        return f"replay-{self._text.name}"

    @property
    def exact(self) -> bool:
        return True

    def allocate(self) -> int:
        if not self._free:
            raise Exhausted("all replay slots are in use; try again in a moment")
        slot = self._free.pop()
        self._lengths[slot] = 0
        return slot

    def release(self, slot: int) -> None:
        del self._lengths[slot]
        self._free.append(slot)
        if self.pace.pieces:
            mean_ms = 1e3 * self.pace.late_s / self.pace.pieces
            _log.info("replayed %d steps, late by %.3f ms on average", self.pace.pieces, mean_ms)

    def length(self, slot: int) -> int:
        return self._lengths[slot]

    def step(self, blocks: Sequence[Block]) -> list[tuple[int, ...]]:
        """See `acespec.cloud.runner.Runner.step`. Returns when the prescribed time is over."""
        self._check(blocks)
        for block in blocks:
            self._lengths[block.slot] = block.end
        samples = [draw(block, partial(self._token, block)) for block in blocks]
        if any(block.sample_from > 0 for block in blocks):
            self.pace.rest()  # A turn begins; before it there may have been none.
        self.pace.work(self.step_s(blocks))
        return samples

    def step_s(self, blocks: Sequence[Block]) -> float:
        """The prescribed time of a step: its verify rows in one pass, then its prompt rows at the prefill rate."""
        verify = [block for block in blocks if block.sample_from == 0]
        prompt_rows = sum(len(block.tokens) for block in blocks if block.sample_from > 0)
        rows = sum(len(block.tokens) for block in verify)
        return self._verify_s(rows, len(verify)) + prompt_rows / self._profile.prefill_rate

    def cost_curve(self) -> list[tuple[int, float]]:
        return [(rows, self._verify_s(rows, 1)) for rows in sorted({*ROW_COUNTS, *(r for r, _ in self._profile.curve)})]

    def _verify_s(self, rows: int, sessions: int) -> float:
        return self._profile.step_s(rows + self._background, sessions + self._background)

    def _token(self, block: Block, row: int) -> int:
        return self._text.token(block.seed, block.start + row + 1, block.prompt_len)

    def _check(self, blocks: Sequence[Block]) -> None:
        slots = [block.slot for block in blocks]
        if not blocks or len(set(slots)) < len(slots):
            raise InvalidRequest("a step needs at least one block and no slot twice")
        for block in blocks:
            if block.slot not in self._lengths:
                raise InvalidRequest(f"slot {block.slot} is not allocated; allocate one first")
            check_block(block, self.length(block.slot), self._vocab_size, self.max_length)
