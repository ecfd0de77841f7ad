"""A trace as lines of text: one a happening, so that a terminal or `grep` will do."""

from __future__ import annotations

from collections.abc import Iterator

from acespec.edge.tracing.trace_reader import Trace
from acespec.edge.watch import (
    Abandoned,
    CommitSeen,
    DecisionMade,
    Drafted,
    Happening,
    JobGiven,
    Outage,
    ReopenedBecause,
    Sent,
    Served,
    TurnStarted,
)

SHOWN_GUESSES = 8
QUIET = ("keep", "ship")
"""Decisions on single guesses: there are many, and only a no is news."""


def text_lines(trace: Trace) -> Iterator[str]:
    """One line for each happening that says something to a reader."""
    for moment in trace.moments:
        if (words := _words(moment.happening)) is not None:
            yield f"{moment.t:10.4f}  {words}"


def _words(happening: Happening) -> str | None:
    match happening:
        case TurnStarted():
            rate = "" if happening.target_rate is None else f", {happening.target_rate:g} tokens/s wanted"
            prompt, seed = happening.prompt_len, happening.seed
            return f"turn        prompt of {prompt} tokens, at most {happening.max_tokens} more, seed {seed}{rate}"
        case Sent():
            return f"up   ──▶    {_sent(happening)}"
        case Served():
            granted, size = happening.granted_rate, happening.ip_bytes
            return f"down ◀──    opened: {happening.kept} tokens kept, {granted:g} tokens/s granted, {size} B"
        case CommitSeen():
            return f"down ◀──    {_commit(happening)}"
        case Drafted():
            return f"draft {happening.job:<6d}{_draft(happening)}"
        case DecisionMade(question=question, go=go) if question in QUIET and go:
            return None
        case DecisionMade():
            answer = "yes" if happening.go else "no"
            return f"decision    {happening.question}: {answer}, {happening.reason} (value {happening.value:+.3f})"
        case ReopenedBecause():
            return f"reopened    {happening.reason}"
        case Outage():
            return f"outage      {happening.reason}"
        case Abandoned():
            return "abandoned   the turn was given up here"
        case JobGiven():
            return None


def _sent(message: Sent) -> str:
    parts = [message.what]
    if message.frame:
        parts.append(f"#{message.frame}")
    if message.keys:
        parts.append(f"{len(message.keys)} nodes from {message.first_node}")
    if message.why:
        parts.append(message.why)
    parts.append(f"{message.ip_bytes} B")
    return ", ".join(parts)


def _commit(commit: CommitSeen) -> str:
    if not commit.tokens:
        words = "news"
    elif commit.plain:
        words = f"{len(commit.tokens)} plain"
    else:
        words = f"{len(commit.tokens)} = {commit.named} by drafts + {len(commit.tokens) - commit.named}"
    parts = [f"to {commit.length}: {words}"]
    if commit.rtt_ms is not None:
        parts.append(f"acks #{commit.ack} after {commit.rtt_ms:.0f} ms + {commit.held_ms:.0f} held")
    if commit.next_in_ms:
        parts.append(f"next step in {commit.next_in_ms} ms")
    if commit.verify_ms:
        parts.append(f"step {commit.verify_ms:.0f} ms at {commit.load} % load")
    if commit.surprises:
        parts.append("surprise" + (f" in the tree, {commit.saved} saved" if commit.covered else ""))
    if commit.finish:
        parts.append(f"the end: {commit.finish}")
    return ", ".join([*parts, f"{commit.ip_bytes} B"])


def _draft(draft: Drafted) -> str:
    kept = [guess for guess in draft.guesses if guess.key >= 0]
    shown = " ".join(f"{g.source}@{g.position}{'' if g.rank == 0 else f'/{g.rank}'}:{g.survival:.2f}" for g in kept)
    words = f"{draft.fate}, {len(kept)} of {len(draft.guesses)} guesses in {draft.seconds * 1000:.1f} ms"
    if draft.silent:
        words += ", no more to say"
    if len(kept) > SHOWN_GUESSES:
        shown = " ".join(shown.split(" ")[:SHOWN_GUESSES]) + " .."
    return f"{words}  {shown}".rstrip()
