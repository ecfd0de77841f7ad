"""The figures of a reply: OpenAI's `usage`, llama.cpp's `timings`, and our own `speculation`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import astuple, replace
from functools import reduce

from acespec.edge.completion import Completion
from acespec.edge.report import Json, as_json
from acespec.edge.wire_stats import WireTotals
from acespec.proto.messages import Totals


def usage(prompt_tokens: int, done: Sequence[Completion]) -> dict[str, Json]:
    """As OpenAI counts: each prompt once, all answers."""
    completion_tokens = sum(len(each.token_ids) for each in done)
    details: dict[str, Json] = {"cached_tokens": min(prompt_tokens, max(e.totals.cached_tokens for e in done))}
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": details,
    }


def timings(prompt_tokens: int, done: Sequence[Completion]) -> dict[str, Json]:
    """The names of llama.cpp's server. `prompt_ms` is the time to the first token: link and queue included.

    Of several answers: all tokens, over the longest times.
    """
    together = merged(done)
    tokens, prompt_s = len(together.token_ids), together.ttft_s
    predicted_s = max(together.total_s - prompt_s, 0.0)
    later = tokens - together.first_tokens
    rate = later / predicted_s if later and predicted_s else 0.0
    return {
        "cache_n": min(prompt_tokens, max(each.totals.cached_tokens for each in done)),
        "prompt_n": prompt_tokens,
        "prompt_ms": round(1000 * prompt_s, 3),
        "prompt_per_token_ms": round(1000 * prompt_s / max(1, prompt_tokens), 3),
        "prompt_per_second": round(prompt_tokens / prompt_s, 3) if prompt_s else 0.0,
        "predicted_n": tokens,
        "predicted_ms": round(1000 * predicted_s, 3),
        "predicted_per_token_ms": round(1000 / rate, 3) if rate else 0.0,
        "predicted_per_second": round(rate, 3),
        "draft_n": together.totals.draft_tokens,
        "draft_n_accepted": together.totals.accepted_tokens,
    }


def speculation(done: Sequence[Completion]) -> dict[str, Json]:
    """How the drafts fared and what the link carried; of several answers the sums. See docs/proxy.md."""
    report = as_json(merged(done))
    drafts = report["speculation"]
    inner = dict(drafts) if isinstance(drafts, dict) else {}
    return inner | {name: report[name] for name in ("wire", "link", "exact", "numerics_id", "granted_rate", "seed")}


def merged(done: Sequence[Completion]) -> Completion:
    """Several turns as if they were one: counts added, times the longest, the first one's terms."""
    if len(done) == 1:
        return done[0]
    return replace(
        done[0],
        token_ids=tuple(token for each in done for token in each.token_ids),
        ttft_s=max(each.ttft_s for each in done),
        first_tokens=sum(each.first_tokens for each in done),
        total_s=max(each.total_s for each in done),
        totals=Totals(*reduce(_add, (astuple(each.totals) for each in done))),
        wire=WireTotals(*reduce(_add, (astuple(each.wire) for each in done))),
        rtts=tuple(rtt for each in done for rtt in each.rtts),
        reconnects=sum(each.reconnects for each in done),
        resyncs=sum(each.resyncs for each in done),
        logprobs=None,
    )


def _add(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(operator.add, left, right))
