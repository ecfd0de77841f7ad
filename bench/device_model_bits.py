"""Bits of a whole small model: the same text run in many ways must give the same logits, and about those of plain code.

Pages are full of NaN at the start, so that a read of what nobody wrote shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.bench.device_figures import Figure
from acespec.bench.device_lab import Lab, relative_error
from acespec.bench.device_model import block, moved, random_weights
from acespec.bench.device_sizes import Kind
from acespec.cloud.cuda_backend.kv_pool import KvPool
from acespec.cloud.cuda_backend.limits import PassLimits
from acespec.cloud.cuda_backend.runner import CudaRunner
from acespec.cloud.cuda_backend.weights import Weights
from acespec.cloud.draw_block import draw_block
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import Block, pages_for, prefill_chunks
from acespec.proto.sampling_params import SamplingParams

TABLES = 6
NEAR = 0.02
"""Relative error of logits, bf16 activations over a few layers, against plain code that rounds as often."""
PLAIN_ROWS = 265
"""Rows that plain code runs, which is slow; they pass the edge of a split of attention."""
RULES = {
    "greedy": SamplingParams(),
    "temperature": SamplingParams(temperature=1.0),
    "filters": SamplingParams(temperature=1.0, top_k=40, top_p=0.9),
}

Logits = NDArray[np.float32]


def model_bits(lab: Lab) -> Iterator[Figure]:
    """For each kind of weights: prefill, verify, batch, tree and draws."""
    for kind in lab.sizes.kinds:
        yield from _Trial(lab, kind).figures()


class _Trial:
    """One small model, one text; each way runs it in pages of its own."""

    def __init__(self, lab: Lab, kind: Kind) -> None:
        config, length = lab.sizes.small, lab.sizes.text
        self._lab, self._kind = lab, kind
        self._vocab, self._each = config.vocab_rows, pages_for(length + lab.sizes.window + 2)
        self._weights = random_weights(lab, config, kind, self._limit)
        # The interpreter's own wide tile is tried with the products.
        self._runner = self._runner_of(self._weights, None if lab.timed else False)
        drawn = np.random.default_rng(3).integers(0, self._vocab, 2 * length)
        self._text, self._other = drawn[:length].tolist(), drawn[length:].tolist()
        self._start = length - lab.sizes.window

    @property
    def _limit(self) -> int:
        return self._each * 64

    def figures(self) -> Iterator[Figure]:
        text, start = self._text, self._start
        tile = "wide" if self._runner.wide else "narrow"
        plain = np.concatenate([self._logits(0, n, text[n : n + 1]) for n in range(len(text))])
        yield self._differing(f"prefill by chunks ({tile} tile) against one token at a time", self._in_chunks(1), plain)
        window = plain[start:]
        yield self._differing(
            "verify at once against one token at a time", self._logits(0, start, text[start:]), window
        )
        yield self._differing("in a batch against alone", self._in_company(), window)
        yield self._differing("a tree beside its siblings against a chain", self._as_a_tree(), window)
        yield self._differing("after rejected drafts", self._after_rejection(), window)
        yield self._differing("behind an accepted branch", *self._behind_a_branch())
        for name in self._lab.sizes.draws:
            yield self._draws(name, RULES[name])
        yield self._against_plain_code(plain)

    def _in_chunks(self, table: int) -> Logits:
        chunks = prefill_chunks(0, len(self._text))
        return np.concatenate([self._logits(table, a, self._text[a:b]) for a, b in chunks])

    def _in_company(self) -> Logits:
        own = block(self._pages(0), self._start, self._text[self._start :])
        first = block(self._pages(2), 0, self._other[:3])
        last = block(self._pages(3), 0, self._other[3:5])
        return self._runner.logits([first, own, last])[1]

    def _as_a_tree(self) -> Logits:
        """The window as the younger of two siblings at every depth."""
        rows, parents = self._text[self._start : self._start + 1], [-1]
        for depth, token in enumerate(self._text[self._start + 1 :]):
            rows += [self._other[depth], token]
            parents += [2 * depth, 2 * depth]
        return self._logits(0, self._start, rows, parents)[::2]

    def _after_rejection(self) -> Logits:
        """Wrong tokens first, then the window in two parts."""
        cut = self._start + 2
        self._logits(0, self._start, self._other[: len(self._text) - self._start])
        parts = [self._logits(0, self._start, self._text[self._start : cut]), self._logits(0, cut, self._text[cut:])]
        return np.concatenate(parts)

    def _behind_a_branch(self) -> tuple[Logits, Logits]:
        """Logits of one token behind drafts that were accepted as younger siblings, and as plain text."""
        start = self._start
        drawn: list[int] = []
        for depth in range(3):
            last = [self._text[start], *drawn][-1]
            drawn += self._runner.step([block(self._pages(0), start + depth, [last])])[0].tokens
        plain = self._logits(0, start + 3, drawn[2:])
        wrong = [(token + 1) % self._vocab for token in drawn]
        rows = [self._text[start], wrong[0], drawn[0], wrong[1], drawn[1]]
        self._logits(0, start, self._other[:4])
        accepted = self._runner.step([block(self._pages(0), start, rows, parents=[-1, 0, 0, 2, 2])])[0]
        if accepted.tokens != tuple(drawn):
            return np.full_like(plain, np.nan), plain
        return self._logits(0, start + 3, drawn[2:]), plain

    def _draws(self, name: str, params: SamplingParams) -> Figure:
        """Tokens drawn one at a time, those of one verify step over them, and those that the host draws."""
        rule, start = DrawRule(params, seed=77, prompt_len=0), self._start
        tokens, wrong = [self._text[start]], 0
        for depth in range(self._lab.sizes.window - 1):
            one = block(self._pages(0), start + depth, tokens[-1:], rule=rule)
            by_host = draw_block(one, self._runner.logits([one])[0], self._vocab).tokens
            drawn = self._runner.step([one])[0].tokens
            wrong += drawn != by_host
            tokens += drawn
        verified = self._runner.step([block(self._pages(0), start, tokens[:-1], rule=rule)])[0].tokens
        missing = len(tokens) - 1 - len(verified)
        wrong += missing + sum(a != b for a, b in zip(tokens[1:], verified, strict=False))
        return self._figure(f"draws, {name}: one verify step and the host against plain steps", wrong)

    def _against_plain_code(self, plain: Logits) -> Figure:
        """A GPU's logits against those of the kernels' references on the CPU."""
        error = None
        if self._lab.timed:
            rows = min(PLAIN_ROWS, len(self._text))
            slow = self._runner_of(moved(self._weights, torch.device("cpu")), False)
            chunks = prefill_chunks(0, rows)
            found = [slow.logits([block(self._pages(0), a, self._text[a:b])])[0] for a, b in chunks]
            error = relative_error(torch.from_numpy(plain[:rows]), torch.from_numpy(np.concatenate(found)))
        return Figure(f"{self._kind} model: error against plain code", error, "relative", at_most=NEAR)

    def _runner_of(self, weights: Weights, wide: bool | None) -> CudaRunner:
        pool = KvPool(weights.config, TABLES * self._each, PassLimits().rows, weights.head.device)
        pool.kv.fill_(torch.nan)
        return CudaRunner(weights, pool, vocab_size=self._vocab, max_length=self._limit, wide=wide)

    def _logits(self, table: int, start: int, tokens: Sequence[int], parents: Sequence[int] = ()) -> Logits:
        return self._runner.logits([self._block(table, start, tokens, parents)])[0]

    def _block(self, table: int, start: int, tokens: Sequence[int], parents: Sequence[int]) -> Block:
        return block(self._pages(table), start, tokens, parents=parents)

    def _pages(self, table: int) -> range:
        return range(table * self._each, (table + 1) * self._each)

    def _differing(self, name: str, found: Logits, right: Logits) -> Figure:
        return self._figure(name, int((found.view(np.uint32) != right.view(np.uint32)).sum()))

    def _figure(self, name: str, wrong: int) -> Figure:
        return Figure(f"{self._kind} model: {name}", wrong, "differ", at_most=0)
