"""What a trace looks like over time, as a value that a picture is drawn from (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.edge.tracing.trace_flights import Flight, flights_of
from acespec.edge.tracing.trace_reader import Trace
from acespec.edge.watch import CommitSeen, DecisionMade, Drafted, JobGiven, Outage, Sent, Served

MANY_REASONS = 3


@dataclass(frozen=True, slots=True)
class Way:
    """A message from `start` to `end` seconds. `kind`: of `Sent.what`, or `opened`, `commit`, `plain`, `news`."""

    start: float
    end: float
    up: bool
    kind: str
    nodes: int
    lost: bool
    tip: str


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasts. `size` counts what it is about; `kind` gives its colour."""

    start: float
    end: float
    kind: str
    size: int
    tip: str


@dataclass(frozen=True, slots=True)
class Landing:
    """Tokens that became final at `t`: shipped as drafts, drafted only, not drafted."""

    t: float
    shipped: int
    drafted: int
    other: int
    tip: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A part of a run, from `start` to `end` seconds.

    Attributes:
        steps: verify steps, ending when their commit leaves; how long one takes is what was last told.
        drafts: a drafter at work, by source; `idle` if nothing of it was kept.
        pauses: the controller did not want to draft.
        outages: no stream.
    """

    start: float
    end: float
    ways: tuple[Way, ...]
    steps: tuple[Span, ...]
    drafts: tuple[Span, ...]
    pauses: tuple[Span, ...]
    outages: tuple[Span, ...]
    landings: tuple[Landing, ...]


def timeline_of(trace: Trace, start: float | None = None, end: float | None = None) -> Timeline:
    """What is seen of `trace` from `start` to `end`; by default all."""
    since = trace.start if start is None else start
    until = trace.end if end is None else end
    flights = flights_of(trace)

    def cut(spans: list[Span]) -> tuple[Span, ...]:
        return tuple(span for span in spans if span.end >= since and span.start <= until)

    ways = [_way(flight) for flight in flights]
    landings = [_landing(m.t, m.happening) for m in trace.moments if isinstance(m.happening, CommitSeen)]
    return Timeline(
        since,
        until,
        tuple(way for way in ways if way.end >= since and way.start <= until),
        cut(_steps(flights)),
        cut(_drafts(trace)),
        cut(_pauses(trace)),
        cut(_outages(trace)),
        tuple(each for each in landings if each is not None and since <= each.t <= until),
    )


def _way(flight: Flight) -> Way:
    message, sent, arrived = flight.message, flight.sent, flight.arrived
    lost = ", lost" if flight.lost else ""
    when = f"left {sent:.3f} s, arrived about {arrived:.3f} s{lost}" if flight.up else f"arrived {arrived:.3f} s"
    match message:
        case Sent():
            nodes = len(message.keys)
            words = {"draft": f"{nodes} drafted tokens", "step": "asks for a step", "ack": "acknowledges"}
            why = f" ({message.why})" if message.why else ""
            tip = f"up: {words.get(message.what, message.what)}{why}, {message.ip_bytes} bytes; {when}"
            return Way(sent, arrived, True, message.what, nodes, flight.lost, tip)
        case Served():
            tip = f"down: opened, {message.kept} tokens kept, {message.granted_rate:g} tokens/s granted; {when}"
            return Way(sent, arrived, False, "opened", 0, False, tip)
    kind = "plain" if message.plain else "commit" if message.tokens else "news"
    return Way(sent, arrived, False, kind, 0, False, f"down: {_commit_words(message)}; {when}")


def _commit_words(commit: CommitSeen) -> str:
    words = f"{len(commit.tokens)} tokens, {commit.named} by a draft node, {commit.ip_bytes} bytes"
    if commit.next_in_ms:
        words += f", next step in {commit.next_in_ms} ms"
    return words + (f", the end: {commit.finish}" if commit.finish else "")


def _landing(t: float, commit: CommitSeen) -> Landing | None:
    if not commit.tokens:
        return None
    shipped = min(commit.named, len(commit.tokens))
    drafted = min(max(0, commit.guessed - shipped), len(commit.tokens) - shipped)
    tip = f"{t:.3f} s: length {commit.length}; {_commit_words(commit)}"
    return Landing(t, shipped, drafted, len(commit.tokens) - shipped - drafted, tip)


def _steps(flights: tuple[Flight, ...]) -> list[Span]:
    steps: list[Span] = []
    lasts = ready = 0.0
    for flight in flights:
        if not isinstance(commit := flight.message, CommitSeen):
            continue
        lasts = commit.verify_ms / 1000 or lasts
        if commit.tokens:
            start = max(ready, flight.sent - lasts)
            kind = "plain" if commit.plain else "verify"
            words = f"{kind} step, about {lasts * 1000:.0f} ms: {len(commit.tokens)} tokens"
            steps.append(Span(start, flight.sent, kind, len(commit.tokens), words))
        ready = max(ready, flight.sent)
    return steps


def _drafts(trace: Trace) -> list[Span]:
    jobs: dict[int, tuple[float, JobGiven]] = {}
    drafts: list[Span] = []
    for moment in trace.moments:
        match moment.happening:
            case JobGiven() as job:
                jobs[job.job] = moment.t, job
            case Drafted() as draft if draft.job in jobs:
                start, job = jobs.pop(draft.job)
                drafts.append(_draft(start, moment.t, job, draft))
    return drafts


def _draft(start: float, end: float, job: JobGiven, draft: Drafted) -> Span:
    first = [guess for guess in draft.guesses if guess.rank == 0]
    kept = sum(guess.key >= 0 for guess in draft.guesses)
    source = draft.guesses[0].source if draft.guesses else ""
    claims = " ".join(f"{guess.source} {guess.claim:.2f}" for guess in first)
    tip = (
        f"draft behind position {job.position} (survival {job.survival:.2f}), {(end - start) * 1000:.1f} ms: "
        f"{draft.levels} levels, {kept} of {len(draft.guesses)} guesses kept, {draft.fate}"
    )
    return Span(start, end, source if kept else "idle", draft.levels, f"{tip}; {claims}" if claims else tip)


def _pauses(trace: Trace) -> list[Span]:
    """From a decision not to draft to the next draft."""
    pauses: list[Span] = []
    since: float | None = None
    reasons: list[str] = []
    for moment in trace.moments:
        match moment.happening:
            case DecisionMade(question="extend", go=False) as decision:
                since = moment.t if since is None else since
                reasons.append(f"{moment.t:.3f} s: {decision.reason}")
            case JobGiven() if since is not None:
                pauses.append(_pause(since, moment.t, reasons))
                since, reasons = None, []
    if since is not None:
        pauses.append(_pause(since, trace.end, reasons))
    return pauses


def _pause(start: float, end: float, reasons: list[str]) -> Span:
    more = f" (and {len(reasons) - MANY_REASONS} more)" if len(reasons) > MANY_REASONS else ""
    return Span(start, end, "pause", len(reasons), "no draft: " + "; ".join(reasons[:MANY_REASONS]) + more)


def _outages(trace: Trace) -> list[Span]:
    """From the break of a stream to the answer on another one."""
    outages: list[Span] = []
    since: float | None = None
    reason = ""
    for moment in trace.moments:
        match moment.happening:
            case Outage() as outage if since is None:
                since, reason = moment.t, outage.reason
            case Served() if since is not None:
                outages.append(Span(since, moment.t, "outage", 1, f"outage of {moment.t - since:.1f} s: {reason}"))
                since = None
    if since is not None:
        outages.append(Span(since, trace.end, "outage", 1, f"outage to the end: {reason}"))
    return outages
