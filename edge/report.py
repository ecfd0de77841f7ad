"""A finished turn for people (one line) and for machines (one JSON object). Every byte count says what it includes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from acespec.edge.completion import Completion
from acespec.models.tokenizer import Tokenizer
from acespec.proto.logprobs import TokenLogprobs

Json: TypeAlias = "dict[str, Json] | list[Json] | list[int] | str | int | float | bool | None"


NO_CHANCE = -9999.0
"""The log probability of a token that the model rules out: JSON has no infinity."""


def as_json(done: Completion, tokenizer: Tokenizer | None = None) -> dict[str, Json]:
    """The object that `acespec generate --json` prints. Only the target's tokenizer can spell log probabilities out.

    `tokens_per_s` counts the whole time, `decode_tokens_per_s` the time behind the first tokens. `*_bytes` are IP bytes
    with headers and bare acknowledgements, as modelled; `*_payload_bytes` protobuf bytes alone.
    """
    totals, wire, terms = done.totals, done.wire, done.terms
    return {
        "text": done.text,
        "token_ids": list(done.token_ids),
        "finish_reason": done.finish.openai,
        "usage": {
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": len(done.token_ids),
            "total_tokens": done.prompt_tokens + len(done.token_ids),
            "prompt_tokens_details": {"cached_tokens": totals.cached_tokens},
        },
        "logprobs": _logprobs(done, tokenizer),
        "timings": {
            "ttft_s": _rounded(done.ttft_s),
            "total_s": _rounded(done.total_s),
            "tokens_per_s": _rounded(done.tokens_per_s),
            "decode_tokens_per_s": _rounded(done.decode_tokens_per_s),
        },
        "speculation": {
            "drafter": done.drafter,
            "draft_tokens": totals.draft_tokens,
            "accepted_tokens": totals.accepted_tokens,
            "verify_steps": totals.verify_steps,
            "plain_steps": totals.plain_steps,
            "acceptance_length": _rounded(done.acceptance_length),
            "mean_draft_length": _rounded(done.mean_draft_length),
            "received_nodes": totals.received_nodes,
            "verify_s": _rounded(totals.verify_us / 1e6),
        },
        "wire": {
            "up_bytes": wire.up_bytes,
            "down_bytes": wire.down_bytes,
            "up_payload_bytes": wire.up_payload_bytes,
            "down_payload_bytes": wire.down_payload_bytes,
            "up_messages": wire.up_messages,
            "down_messages": wire.down_messages,
            "bytes_per_token": _rounded(done.bytes_per_token),
        },
        "link": {
            "rtt_ms_p50": _milliseconds(done.rtts, 0.5),
            "rtt_ms_p95": _milliseconds(done.rtts, 0.95),
            "reconnects": done.reconnects,
            "resyncs": done.resyncs,
        },
        "seed": done.seed,
        "exact": terms.exact,
        "numerics_id": terms.numerics_id,
        "granted_rate": _rounded(terms.granted_rate),
    }


def as_line(done: Completion) -> str:
    """The line at the end of a run."""
    totals, wire = done.totals, done.wire
    tokens = max(1, len(done.token_ids))
    parts = [
        f"{len(done.token_ids)} tokens in {done.total_s:.2f} s ({done.tokens_per_s:.1f}/s), "
        f"first after {done.ttft_s:.2f} s",
        f"prompt {done.prompt_tokens}",
        f"drafter {done.drafter}: AL {done.acceptance_length:.2f}, mean D {done.mean_draft_length:.2f}, "
        f"{totals.accepted_tokens}/{totals.draft_tokens} accepted, "
        f"{totals.verify_steps} steps ({totals.plain_steps} plain)",
        f"IP bytes/token up {wire.up_bytes / tokens:.0f} down {wire.down_bytes / tokens:.0f} "
        f"(payload {wire.up_payload_bytes / tokens:.0f}/{wire.down_payload_bytes / tokens:.0f})",
        f"RTT p50/p95 {_text(done.rtts, 0.5)}/{_text(done.rtts, 0.95)} ms",
        f"seed {done.seed}",
    ]
    return " | ".join(parts)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of `values` do not exceed; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _logprobs(done: Completion, tokenizer: Tokenizer | None) -> Json:
    """As in OpenAI's API; None if there are none."""
    if done.logprobs is None or tokenizer is None:
        return None
    pairs = zip(done.token_ids, done.logprobs, strict=True)
    content: list[Json] = [token_logprobs(tokenizer, token, item) for token, item in pairs]
    return {"content": content}


def token_logprobs(tokenizer: Tokenizer, token: int, item: TokenLogprobs) -> dict[str, Json]:
    """One token's log probability and its alternatives, as in OpenAI's chat API."""
    alternatives: list[Json] = [_chance(tokenizer, other, logprob) for other, logprob in item.top]
    return _chance(tokenizer, token, item.logprob) | {"top_logprobs": alternatives}


def _chance(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Json]:
    text = tokenizer.decode([token], skip_special=False)
    spelt = text.encode() if tokenizer.is_special(token) else tokenizer.token_bytes(token)
    return {"token": text, "logprob": max(logprob, NO_CHANCE), "bytes": list(spelt)}


def _milliseconds(values: Sequence[float], share: float) -> float | None:
    value = quantile(values, share)
    return None if value is None else _rounded(value * 1000)


def _text(values: Sequence[float], share: float) -> str:
    value = quantile(values, share)
    return "-" if value is None else f"{value * 1000:.0f}"


def _rounded(value: float) -> float:
    return round(value, 4)
