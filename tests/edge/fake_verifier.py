"""`python -m tests.edge.fake_verifier MODEL`: a fake verifier for a tokenizer, until it is terminated.

Prints its address. Every session gets readable nonsense, at a pace that leaves time to interrupt it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys

from acespec.models.tokenizer import Tokenizer
from tests.edge.fake_cloud import FakeCloud
from tests.edge.fake_server import FakeServer


class _Babble(FakeCloud):
    """Goes on for as long as it is let."""

    def _extend(self) -> None:
        while len(self.truth) <= len(self.tokens):
            self.truth.append(self.dice.choice(self.truth[:200]))
        super()._extend()


async def main(folder: str) -> None:
    tokenizer = Tokenizer.load(folder)
    words = tokenizer.encode("the river was low that summer and the stones were dry enough to sit on ") * 20
    seeds = itertools.count(1)

    def babble() -> FakeCloud:
        return _Babble(words[:400], tokenizer.vocab_size, random.Random(next(seeds)), encode=tokenizer.encode)

    server = FakeServer(babble(), pace_s=0.005, spawn=babble)
    await server.start()
    sys.stdout.write(f"{server.target}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
