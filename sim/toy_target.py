"""A target without a model: its next token is a hash of the whole prefix. Exact, instant, and easy to check against."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from acespec.cloud.runner import Block, check_block, draw
from acespec.proto.errors import Exhausted, ServerFault


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
    """A `Runner` over `toy_token`. It checks every block against the KV that it was given before."""

    def __init__(self, vocab_size: int = 64, max_length: int = 512, slots: int = 64) -> None:
        self.vocab_size = vocab_size
        self.max_length = max_length
        self.numerics_id = "toy"
        self.exact = True
        self.steps = 0
        self.rows = 0
        self._free = list(range(slots))
        self._kv: dict[int, list[int]] = {}

    @property
    def slots_in_use(self) -> int:
        """Slots that are allocated."""
        return len(self._kv)

    def allocate(self) -> int:
        """See `Runner.allocate`."""
        if not self._free:
            raise Exhausted("the toy target has no slot left; release one")
        slot = self._free.pop()
        self._kv[slot] = []
        return slot

    def release(self, slot: int) -> None:
        """See `Runner.release`."""
        del self._kv[slot]
        self._free.append(slot)

    def length(self, slot: int) -> int:
        """See `Runner.length`."""
        return len(self._kv[slot])

    def step(self, blocks: Sequence[Block]) -> list[tuple[int, ...]]:
        """See `Runner.step`. Raises `ServerFault` if a block trusts KV of other tokens than its own."""
        self.steps += 1
        self.rows += sum(len(b.tokens) for b in blocks)
        return [self._run(block) for block in blocks]

    def cost_curve(self) -> list[tuple[int, float]]:
        """See `Runner.cost_curve`."""
        return [(1, 0.001), (4, 0.001), (16, 0.002), (64, 0.008)]

    def _run(self, block: Block) -> tuple[int, ...]:
        kv = self._kv[block.slot]
        check_block(block, len(kv), self.vocab_size, self.max_length)
        del kv[block.start :]
        if kv != list(block.prefix[: block.start]):
            raise ServerFault(f"slot {block.slot} holds KV of other tokens than the block at {block.start} assumes")
        kv += block.tokens
        return draw(block, lambda row: toy_token(block.context(row), block.seed, self.vocab_size))
