"""What a trace amounts to, in figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from statistics import fmean, median

from acespec.edge.tracing.trace_flights import Flight, flights_of
from acespec.edge.tracing.trace_json import Plain
from acespec.edge.tracing.trace_reader import Trace
from acespec.edge.watch import (
    Abandoned,
    CommitSeen,
    DecisionMade,
    Drafted,
    Outage,
    ReopenedBecause,
    Sent,
    Served,
    TurnStarted,
)
from acespec.edge.wire_stats import WireStats, WireTotals
from acespec.proto.messages import Totals

BYTES_COUNT = (
    "IP bytes of both directions with all headers and bare acknowledgements, as modelled from the messages; prompts "
    "included, setting up the connection and retransmissions not"
)


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a trace, or of a part of it.

    Attributes:
        seconds: spent in turns, from asking to the last commit.
        commits: those that brought tokens; `plain_commits` named no draft.
        named: tokens that commits named by a draft node.
        guessed: tokens that were in the draft tree when they became final, named ones included.
        totals: the verifier's account, of the turns that ended.
        draft_age_ms: from a guess's arrival in the tree to that of its message at the cloud.
        jobs: answers of drafters, by fate.
        guesses: what drafters said; `kept` in the tree, `shipped` to the cloud.
        sources: guesses by source.
        decisions: (yes, no) by question.
        up: messages by kind.
    """

    seconds: float
    turns: int
    tokens: int
    commits: int
    plain_commits: int
    named: int
    guessed: int
    totals: Totals
    wire: WireTotals
    rtt_ms: float | None
    draft_age_ms: float | None
    median_draft_age_ms: float | None
    jobs: dict[str, int]
    drafting_s: float
    guesses: int
    kept: int
    shipped: int
    sources: dict[str, int]
    decisions: dict[str, tuple[int, int]]
    up: dict[str, int]
    surprises: int
    covered: int
    covered_shipped: int
    saved: int
    outages: int
    reopened: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens over the time spent in turns."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def acceptance_length(self) -> float | None:
        """Accepted tokens per verify step, the bonus token not counted; None if no turn ended."""
        steps = self.totals.verify_steps
        return self.totals.accepted_tokens / steps if steps else None

    @property
    def bytes_per_token(self) -> float:
        """See BYTES_COUNT."""
        return (self.wire.up_bytes + self.wire.down_bytes) / max(1, self.tokens)


def summary_of(trace: Trace) -> Summary:
    """The figures of a trace."""
    seen = [moment.happening for moment in trace.moments]
    commits = [h for h in seen if isinstance(h, CommitSeen)]
    drafted = [h for h in seen if isinstance(h, Drafted)]
    guesses = [guess for each in drafted for guess in each.guesses]
    sent = [h for h in seen if isinstance(h, Sent)]
    ages = _draft_ages(trace, flights_of(trace))
    rtts = [h.rtt_ms for h in commits if h.rtt_ms is not None]
    decisions = Counter((h.question, h.go) for h in seen if isinstance(h, DecisionMade))
    return Summary(
        seconds=_seconds_in_turns(trace),
        turns=sum(isinstance(h, TurnStarted) for h in seen),
        tokens=sum(len(h.tokens) for h in commits),
        commits=sum(bool(h.tokens) for h in commits),
        plain_commits=sum(h.plain for h in commits),
        named=sum(h.named for h in commits),
        guessed=sum(h.guessed for h in commits),
        totals=_sum([h.totals for h in commits if h.totals is not None]),
        wire=_wire(trace),
        rtt_ms=median(rtts) if rtts else None,
        draft_age_ms=1000 * fmean(ages) if ages else None,
        median_draft_age_ms=1000 * median(ages) if ages else None,
        jobs=dict(Counter(h.fate for h in drafted)),
        drafting_s=sum(h.seconds for h in drafted),
        guesses=len(guesses),
        kept=sum(guess.key >= 0 for guess in guesses),
        shipped=sum(len(h.keys) for h in sent),
        sources=dict(Counter(guess.source for guess in guesses)),
        decisions={q: (decisions[q, True], decisions[q, False]) for q in sorted({q for q, _ in decisions})},
        up=dict(Counter(h.what for h in sent)),
        surprises=sum(h.surprises for h in commits),
        covered=sum(h.covered for h in commits),
        covered_shipped=sum(h.shipped for h in commits),
        saved=sum(h.saved for h in commits),
        outages=sum(isinstance(h, Outage) for h in seen),
        reopened=sum(isinstance(h, ReopenedBecause) for h in seen),
    )


def as_json(summary: Summary) -> dict[str, Plain]:
    """The object that `acespec trace show --json` prints."""
    wire, totals = summary.wire, summary.totals
    return {
        "seconds": _rounded(summary.seconds),
        "turns": summary.turns,
        "tokens": summary.tokens,
        "tokens_per_s": _rounded(summary.tokens_per_s),
        "acceptance_length": _rounded(summary.acceptance_length),
        "commits": {
            "with_tokens": summary.commits,
            "plain": summary.plain_commits,
            "named_tokens": summary.named,
            "guessed_tokens": summary.guessed,
        },
        "verifier": dict(asdict(totals)),
        "wire": {
            "up_bytes": wire.up_bytes,
            "down_bytes": wire.down_bytes,
            "up_messages": wire.up_messages,
            "down_messages": wire.down_messages,
            "bytes_per_token": _rounded(summary.bytes_per_token),
            "counted": BYTES_COUNT,
            "up_kinds": dict(summary.up),
        },
        "link": {
            "rtt_ms_median": _rounded(summary.rtt_ms),
            "outages": summary.outages,
            "reopened": summary.reopened,
        },
        "drafts": {
            "jobs": dict(summary.jobs),
            "drafting_s": _rounded(summary.drafting_s),
            "guesses": summary.guesses,
            "kept": summary.kept,
            "shipped": summary.shipped,
            "sources": dict(summary.sources),
            "age_ms_mean": _rounded(summary.draft_age_ms),
            "age_ms_median": _rounded(summary.median_draft_age_ms),
        },
        "branch_cache": {
            "surprises": summary.surprises,
            "covered": summary.covered,
            "shipped": summary.covered_shipped,
            "saved_tokens": summary.saved,
        },
        "decisions": {question: {"yes": yes, "no": no} for question, (yes, no) in summary.decisions.items()},
    }


def as_line(summary: Summary) -> str:
    """The figures that stand above a picture."""
    length, age = summary.acceptance_length, summary.median_draft_age_ms
    parts = [
        f"{summary.tokens} tokens in {summary.seconds:.2f} s: {summary.tokens_per_s:.1f}/s",
        f"{summary.named} of them shipped as drafts" + ("" if length is None else f", {length:.2f} accepted a step"),
        f"{summary.bytes_per_token:.0f} IP bytes a token",
    ]
    if summary.rtt_ms is not None:
        parts.append(f"round trip {summary.rtt_ms:.0f} ms")
    if age is not None:
        parts.append(f"drafts {age:.0f} ms old on arrival")
    if summary.surprises:
        parts.append(f"{summary.covered} of {summary.surprises} surprises in the tree")
    return " · ".join(parts)


def _seconds_in_turns(trace: Trace) -> float:
    """Also right for a part of a trace, which may begin or end within a turn."""
    total, since = 0.0, trace.moments[0].t if trace.moments else None
    for moment in trace.moments:
        happening = moment.happening
        if isinstance(happening, TurnStarted):
            since = moment.t
        over = isinstance(happening, Abandoned) or (isinstance(happening, CommitSeen) and bool(happening.finish))
        if over and since is not None:
            total, since = total + moment.t - since, None
    return total + (trace.end - since if since is not None else 0.0)


def _draft_ages(trace: Trace, flights: tuple[Flight, ...]) -> list[float]:
    """Seconds of every shipped guess."""
    drafted_at = {
        guess.key: moment.t
        for moment in trace.moments
        if isinstance(moment.happening, Drafted)
        for guess in moment.happening.guesses
    }
    return [
        flight.arrived - drafted_at[key]
        for flight in flights
        if isinstance(flight.message, Sent) and not flight.lost
        for key in flight.message.keys
        if key in drafted_at
    ]


def _wire(trace: Trace) -> WireTotals:
    stats = WireStats(trace.tls)
    for moment in trace.moments:
        match moment.happening:
            case Sent() as message:
                stats.sent(moment.t, message.bytes)
            case Served() | CommitSeen() as message:
                stats.received(moment.t, message.bytes)
    return stats.totals(trace.end)


def _sum(each: list[Totals]) -> Totals:
    return Totals(*(sum(getattr(totals, name) for totals in each) for name in Totals.__slots__))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
