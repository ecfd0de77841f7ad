"""A target without a model: its next token is a hash of the whole prefix. Exact, instant, and easy to check against.

Its "KV" of a position is the token there together with all before it, so it notices a block that trusts a page which
holds anything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from acespec.cloud.runner import PAGE, Block, Drawn, check_blocks, walk
from acespec.proto.errors import ServerFault
from acespec.proto.timing_profile import TimingProfile

_Digest = bytes
TIMING = TimingProfile("toy", ((1, 0.001), (4, 0.001), (16, 0.002), (64, 0.008)), 0.0, 100_000.0, "made up")


def toy_token(prefix: Sequence[int], seed: int, vocab_size: int) -> int:
    """The toy target's f(prefix, seed)."""
    data = b"".join([t.to_bytes(4, "little") for t in prefix]) + seed.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "little") % vocab_size


def toy_text(prompt: Sequence[int], seed: int, vocab_size: int, count: int) -> list[int]:
    """The `count` tokens that follow `prompt`."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(toy_token(tokens, seed, vocab_size))
    return tokens[len(prompt) :]


class ToyRunner:
    """A `Runner` over `toy_token`. Of the draw rule it reads the seed alone."""

    def __init__(
        self, vocab_size: int = 64, max_length: int = 512, pages: int = 512, timing: TimingProfile = TIMING
    ) -> None:
        self.vocab_size = vocab_size
        self.max_length = max_length
        self.pages = pages
        self.numerics_id = "toy"
        self.exact = True
        self.steps = 0
        self.rows = 0
        self._timing = timing
        self._kv: dict[tuple[int, int], _Digest] = {}

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `Runner.step`. Raises `ServerFault` if a block trusts KV of other tokens than its own."""
        check_blocks(blocks, self.pages, self.vocab_size, self.max_length)
        self.steps += 1
        self.rows += sum(len(b.tokens) for b in blocks)
        return [self._run(block) for block in blocks]

    def timing(self) -> TimingProfile:
        """See `Runner.timing`."""
        return self._timing

    def _run(self, block: Block) -> Drawn:
        state = b""
        for position, token in enumerate(block.prefix[: block.start]):
            state = _next(state, token)
            if self._kv.get((block.pages[position // PAGE], position % PAGE)) != state:
                raise ServerFault(f"position {position} was trusted, but its page holds other tokens' KV")
        drawn = walk(block, lambda row: toy_token(block.context(row), block.rule.seed, self.vocab_size))
        path = block.path(drawn.rows[-1] if drawn.rows else len(block.tokens) - 1)
        for depth, row in enumerate(path):
            state = _next(state, block.tokens[row])
            position = block.start + depth
            self._kv[block.pages[position // PAGE], position % PAGE] = state
        # What a rejected draft left behind: of no tokens that anyone could trust.
        for position in range(block.start + len(path), block.end):
            self._kv[block.pages[position // PAGE], position % PAGE] = b"rejected"
        return drawn


def _next(state: _Digest, token: int) -> _Digest:
    return hashlib.blake2b(state + token.to_bytes(4, "little"), digest_size=8).digest()
