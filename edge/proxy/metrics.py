"""Prometheus figures of the proxy, as `/metrics` shows them. Seconds and bytes; counters, from which rates follow.

Acceptance is `rate(acespec_spec_decode_num_accepted_tokens_total[5m])` over
`rate(acespec_spec_decode_num_draft_tokens_total[5m])`; over `rate(acespec_spec_decode_num_drafts_total[5m])` it is the
accepted tokens per draft, the bonus token not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.proxy.pool import ClientPool
from acespec.edge.wire_stats import WireTotals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SHORT_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
LONG_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)
BYTES = (5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 500, 1000)
COUNTED_PLACES = 16
"""Places of a draft that have a counter of their own."""


class Metrics:
    """Of one proxy."""

    def __init__(self, pool: ClientPool) -> None:
        self._pool = pool
        self._registry = registry = CollectorRegistry()
        self._wire_before: WeakKeyDictionary[Client, WireTotals] = WeakKeyDictionary()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"acespec_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"acespec_{name}", text, buckets=buckets, registry=registry)

        self.drafts = counter("spec_decode_num_drafts", "Verify steps that had drafts.")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Draft tokens that were verified.")
        self.accepted = counter("spec_decode_num_accepted_tokens", "Draft tokens that were right.")
        self.accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Tokens that a commit named as drafts, by their place in the commit.",
            "position",
        )
        self.requests = counter("requests", "Answered HTTP requests to the API.", "path", "status")
        self.first_token = histogram(
            "time_to_first_token_seconds", "From a request to its first token, the queue included.", LONG_S
        )
        self.between = histogram(
            "inter_token_latency_seconds", "Between commits, shared out among the tokens of the later one.", SHORT_S
        )
        self.whole = histogram(
            "e2e_request_latency_seconds", "From a request to the end of an answer, the queue included.", LONG_S
        )
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts.")
        self.generated = counter("generation_tokens", "Generated tokens.")
        self.wire_bytes = counter(
            "wire_bytes",
            "Bytes of sessions on the link: protobuf payload, and framing (gRPC, HTTP/2, TLS, TCP, IP, bare "
            "acknowledgements) as modelled; connection set-up not included.",
            "direction",
            "kind",
        )
        self.per_token = histogram(
            "wire_bytes_per_token", "IP bytes of both directions, prompt included, per token of an answer.", BYTES
        )
        self.draft_length = histogram(
            "draft_length", "Unverified tokens of the longest path when a message of drafts leaves.", LENGTHS
        )
        self.draft_seconds = histogram("draft_seconds", "A visit to the drafter.", SHORT_S)
        self.verify_seconds = counter("verify_seconds", "Time of verify steps, our answers' share of it.")
        self.resumes = counter("session_resumes", "Turns opened again after the link broke.", "outcome")
        self.fallback = counter("fallback", "Outages during a turn, by what was done about it.", "mode")
        for kind in ("payload", "framing"):
            for direction in ("up", "down"):
                self.wire_bytes.labels(direction, kind)
        for outcome in ("resumed", "anew", "failed"):
            self.resumes.labels(outcome)
        self._gauge("num_requests_running", "Answers that have a session.", lambda: pool.running)
        self._gauge("num_requests_waiting", "Answers that wait for a session.", lambda: pool.waiting)
        self._gauge("sessions_active", "Sessions with the verifier, idle ones included.", lambda: pool.sessions)
        self._gauge("link_rtt_seconds", "Newest round trip, without what the verifier held.", lambda: _rtt(pool))
        self._gauge("link_goodput_bits_per_second", "Estimated rate of the uplink.", lambda: _rate(pool))

    def tokens(self, count: int, since: tuple[float, bool], prompt_tokens: int) -> None:
        """`count` tokens are final; (seconds since the last ones or the request, True if they are the first)."""
        seconds, first = since
        self.generated.inc(count)
        if first:
            self.prompt_tokens.inc(prompt_tokens)
            self.first_token.observe(seconds)
        elif count:
            for _ in range(count):
                self.between.observe(seconds / count)

    def completed(self, done: Completion, seconds: float) -> None:
        """An answer came to its end, `seconds` after it was asked for."""
        totals = done.totals
        self.whole.observe(seconds)
        self.drafts.inc(totals.verify_steps - totals.plain_steps)
        self.draft_tokens.inc(totals.draft_tokens)
        self.accepted.inc(totals.accepted_tokens)
        self.verify_seconds.inc(totals.verify_us / 1e6)
        self.per_token.observe(done.bytes_per_token)

    def account(self, client: Client) -> None:
        """Count the bytes of its session since the last time."""
        totals = client.session.wire_totals(time.monotonic())
        new = totals - self._wire_before.get(client, WireTotals())
        self._wire_before[client] = totals
        for way, whole, payload in (
            ("up", new.up_bytes, new.up_payload_bytes),
            ("down", new.down_bytes, new.down_payload_bytes),
        ):
            self.wire_bytes.labels(way, "payload").inc(payload)
            self.wire_bytes.labels(way, "framing").inc(max(0, whole - payload))

    def show(self) -> bytes:
        """The text of `/metrics`."""
        for client in self._pool.clients():
            self.account(client)
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"acespec_{name}", text, registry=self._registry).set_function(read)


def _rtt(pool: ClientPool) -> float:
    """The largest of the sessions': they share one link, and an idle one's is old."""
    return max((view.rtt_ms or 0.0 for _, view in pool.views()), default=0.0) / 1000


def _rate(pool: ClientPool) -> float:
    return max((view.link_kbps or 0.0 for _, view in pool.views()), default=0.0) * 1000
