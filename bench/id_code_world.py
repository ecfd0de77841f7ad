"""What shorter draft ids would buy: the world with so many bits charged for each id.

Everything runs as it is; only the packed nodes of a draft are replaced by as many bytes as they would have, and the
nodes themselves reach the verifier beside them. The edge prices its nodes as ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from acespec.edge.brain import shipping
from acespec.proto import nodes
from acespec.proto.bits import varint
from acespec.proto.nodes import Node
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec
from acespec.sim.world.world import run

VOCABULARY = 151_936
"""Raw ids take 18 bits."""
FLAG_BITS = 2
"""What a parent costs on average: one bit in a chain, more beside it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition. `rate` is promised in tokens/s; 0 is as fast as it goes."""

    profile: str
    free_run: str
    rate: float
    kbps: int
    tree: str

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.profile} {self.free_run} {self.rate:g} {self.kbps} Kbps {self.tree}"

    def scenario(self, seed: int, tokens: int) -> Scenario:
        """One answer over a link of 100 ms, by a drafter that is right four times in five."""
        return Scenario(
            seed=seed,
            duration_s=600,
            link=LinkChoice("wan50", overrides={"rate_up_kbps": self.kbps, "rate_down_kbps": self.kbps}),
            target=TargetSpec(self.profile, vocab=VOCABULARY, free_run=self.free_run, target_rate=self.rate),
            drafter=DrafterSpec(acceptance="0.8"),
            load=LoadSpec(tokens=tokens),
            strategy=StrategySpec("ours", {"tree": self.tree}),
        )


def run_charged(cell: Cell, bits: float, seed: int, tokens: int = 400) -> Result:
    """A run in which every draft id costs `bits`."""
    with _charged(bits):
        return run(cell.scenario(seed, tokens))


@contextmanager
def _charged(bits: float) -> Iterator[None]:
    under_way: deque[list[Node]] = deque()

    def pack(chosen: Sequence[Node], first_id: int, vocab_size: int, codec: int) -> bytes:
        under_way.append(list(chosen))
        return varint(len(chosen)) + bytes(-int(-len(chosen) * (bits + FLAG_BITS) // 8))

    def unpack(data: bytes, first_id: int, vocab_size: int, max_nodes: int, codec: int) -> list[Node]:
        return under_way.popleft()  # One edge, and a stream keeps the order.

    with _replaced(shipping, "pack", pack), _replaced(nodes, "unpack", unpack):
        yield


@contextmanager
def _replaced(module: ModuleType, name: str, value: object) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
