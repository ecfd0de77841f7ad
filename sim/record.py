"""Records one acceptance trace: the target writes an answer, and the drafter is asked about each token of it.

The drafter sees the target's own text (teacher forcing), as it does in a session wherever its draft was right so far.
So the rows of many positions come from one pass, and a chain is accepted up to the first position of rank above 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acespec.edge.drafters.base import never
from acespec.edge.drafters.logit_source import LogitSource
from acespec.proto import noise, sampling
from acespec.proto.sampling_params import SamplingParams
from acespec.sim.trace_file import DEEPEST_RANK, SIBLINGS, Trace, TraceSource

BLOCK = 32
"""Positions whose rows of both models are held at a time."""

Row = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target samples: parameters, the seed of the noise, and the ids it can sample."""

    params: SamplingParams
    seed: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class View:
    """The drafter's view of one token; fields as in `Trace`."""

    rank: int
    guesses: tuple[int, ...]
    chances: tuple[float, ...]
    gaps: tuple[float, ...]
    overlap: float
    likely: bool


def record(
    target: LogitSource,
    drafter: LogitSource,
    prompt: Sequence[int],
    how: Sampling,
    max_tokens: int,
    end_ids: Collection[int],
) -> tuple[list[int], list[View]]:
    """(the target's tokens, the drafter's view of each). The last token is an end id, or the max_tokens-th."""
    path, views = list(prompt), list[View]()
    while len(views) < max_tokens and not (views and path[-1] in end_ids):
        start = len(path)
        rows = list(_written(target, path, how, len(prompt), min(BLOCK, max_tokens - len(views)), end_ids))
        for position, own in enumerate(drafter.rows(path, start), start):
            views.append(viewed(own, rows[position - start], path[: position + 1], how, len(prompt)))
    return path[len(prompt) :], views


def viewed(own: Row, targets: Row, path: Sequence[int], how: Sampling, prompt_len: int) -> View:
    """The drafter's view (logits `own`) of the last token of `path`, which the target drew from logits `targets`."""
    prefix, token, position = path[:-1], path[-1], len(path) - 1
    params, size = how.params, how.vocab_size
    ranked = sampling.propose(
        own, params, how.seed, position, DEEPEST_RANK, prefix=prefix, prompt_len=prompt_len, vocab_size=size
    )
    ids = [candidate for candidate, _ in ranked]
    q = _distribution(sampling.processed(own, params, prefix, prompt_len, size))
    p = _distribution(sampling.processed(targets, params, prefix, prompt_len, size))
    rank = ids.index(token) if token in ids else DEEPEST_RANK
    return View(
        rank=rank,
        guesses=tuple(ids[:SIBLINGS]),
        chances=tuple(chance for _, chance in ranked[:SIBLINGS]),
        gaps=_gaps(ranked[:SIBLINGS], how, position),
        overlap=float(rank == 0) if params.greedy else float(np.minimum(p, q).sum()),
        likely=int(q.argmax()) == token,
    )


def as_trace(source: TraceSource, ids: Sequence[int], views: Sequence[View]) -> Trace:
    """The trace of one recording."""
    return Trace(
        source,
        ids=tuple(ids),
        ranks=tuple(view.rank for view in views),
        guesses=tuple(view.guesses for view in views),
        chances=tuple(view.chances for view in views),
        gaps=tuple(view.gaps for view in views),
        overlaps=tuple(view.overlap for view in views),
        likeliest=tuple(view.likely for view in views),
    )


def _written(
    target: LogitSource, path: list[int], how: Sampling, prompt_len: int, count: int, end_ids: Collection[int]
) -> Iterator[Row]:
    """Lets the target append up to `count` tokens to `path`; the row that each was drawn from."""
    for _ in range(count):
        row = target.logits_after(path, never)
        assert row is not None
        token = sampling.sample(
            row,
            how.params,
            how.seed,
            len(path),
            prefix=path,
            prompt_len=prompt_len,
            vocab_size=how.vocab_size,
        )
        path.append(token)
        yield row
        if token in end_ids:
            return


def _distribution(row: Row) -> Row:
    weights: Row = np.exp(row - row.max())
    weights /= weights.sum()
    return weights


def _gaps(ranked: Sequence[tuple[int, float]], how: Sampling, position: int) -> tuple[float, ...]:
    """How far each guess lies behind the first in log q + noise (in log q alone at temperature 0)."""
    with np.errstate(divide="ignore"):
        scores = np.log(np.array([chance for _, chance in ranked], np.float64))
    if not how.params.greedy:
        scores += noise.gumbel_at(how.seed, position, np.array([token for token, _ in ranked]))
    return tuple(min(99.0, float(scores[0] - score)) for score in scores)
