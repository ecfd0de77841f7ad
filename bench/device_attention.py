"""How fast attention reads the KV pool: contexts, draft lengths and numbers of sessions of the 8B shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from acespec.bench.device_figures import Figure
from acespec.bench.device_lab import Lab, in_words, micro, percent
from acespec.cloud.cuda_backend.limits import PassLimits
from acespec.cloud.runner import PAGE, pages_for
from acespec.kernels.attention import attend, work_on
from acespec.kernels.attention_combine import combine
from acespec.kernels.attention_plan import Segment, Span, plan_attention

TARGET_CONTEXT, TARGET = 8192, 80.0
"""At this context, so many percent of the copy rate."""


def attention_speed(lab: Lab) -> Iterator[Figure]:
    """`attend` and `combine`, as a layer runs them, on pages in random order."""
    for context in lab.sizes.contexts:
        for sessions in lab.sizes.sessions:
            bench = _Bench(lab, context, sessions)
            for drafts in lab.sizes.drafts:
                yield bench.figure(drafts + 1)


class _Bench:
    """Sessions' pages in the pools of as many layers as the cache cannot hold."""

    def __init__(self, lab: Lab, context: int, sessions: int) -> None:
        config = lab.sizes.model
        each = pages_for(context + max(lab.sizes.drafts) + 1)
        shape = (2, sessions * each * PAGE, config.kv_heads, config.head_dim)
        self._lab, self._context, self._sessions = lab, context, sessions
        self._layers = [lab.normal(*shape) for _ in range(lab.rotation(self._bytes(1)))]
        order = torch.randperm(sessions * each, generator=torch.Generator().manual_seed(4)).tolist()
        self._tables = [tuple(order[n * each : (n + 1) * each]) for n in range(sessions)]

    def figure(self, rows: int) -> Figure:
        """`rows` query rows a session."""
        lab, config, total = self._lab, self._lab.sizes.model, self._sessions * rows
        plan = plan_attention(
            self._spans(rows),
            group=config.group,
            page=PAGE,
            kv_heads=config.kv_heads,
            max_parts=PassLimits().parts,
        )
        work = work_on(plan, lab.device)
        q = lab.normal(total, config.heads, config.head_dim)
        parts = lab.poison(plan.n_parts, config.heads, config.head_dim)
        stats = lab.poison(plan.n_parts, config.heads, 2)
        out = lab.poison(total, config.heads * config.head_dim, dtype=torch.bfloat16)
        scale = config.head_dim**-0.5
        attends = [partial(attend, q, kv[0], kv[1], work, scale, PAGE, parts, stats) for kv in self._layers]
        joined = partial(combine, parts, stats, work, out)

        def layer(attention: partial[None]) -> None:
            attention()
            joined()

        both = lab.seconds([partial(layer, attention) for attention in attends])
        alone = lab.seconds(attends) if lab.timed else None
        floor = lab.floor(self._bytes(rows))
        return Figure(
            f"attention: {self._sessions} sessions, context {self._context}, D = {rows - 1}",
            percent(floor, both),
            "% of copy rate",
            at_least=TARGET if self._context == TARGET_CONTEXT else None,
            note=f"{in_words(micro(both), 'us', 1)}, {in_words(_rate(self._bytes(rows), both), 'GB/s', 0)}",
            headline=True,
            facts={
                "attend_us": micro(alone),
                "attend_and_combine_us": micro(both),
                "floor_us": micro(floor),
                "attend alone, % of copy rate": percent(floor, alone),
                "GB_per_s": _rate(self._bytes(rows), both),
                "kv_bytes": self._bytes(rows),
                "items": plan.n_items,
                "partials": plan.n_parts,
                "layers in turn": len(self._layers),
                "finite": bool(torch.isfinite(out).all()),
            },
        )

    def _spans(self, rows: int) -> list[Span]:
        return [self._span(number, table, rows) for number, table in enumerate(self._tables)]

    def _span(self, number: int, table: Sequence[int], rows: int) -> Span:
        start, first = self._context, number * rows
        tail = tuple(table[p // PAGE] * PAGE + p % PAGE for p in range(start, start + rows))
        return Span(tuple(table), start, first, rows, (Segment(first, rows, start, tail),))

    def _bytes(self, rows: int) -> int:
        config = self._lab.sizes.model
        return self._sessions * (self._context + rows) * config.kv_heads * config.head_dim * 2 * 2


def _rate(nbytes: int, seconds: float | None) -> float | None:
    return None if seconds is None else nbytes / seconds / 1e9
