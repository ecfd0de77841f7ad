"""A real session: a few tokens with the drafter that is set, then two prompts of different size to see the uplink.

The rate is what the larger prompt took longer to be answered, for what it was larger: what both have in common, round
trip and handling, cancels out.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.doctor.finding import Finding, fault, ok, warning
from acespec.edge.report import quantile
from acespec.edge.run_options import RunOptions
from acespec.edge.turn_request import TurnRequest
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import AcespecError, ModelError, UsageError

SESSION, LINK, UPLINK = "session", "round trip", "uplink"
PROMPT = "Count from one to twenty: one, two, three,"
TOKENS = 24
SMALL, LARGE = 16, 1024
"""Ids of the two prompts; some 1,300 bytes lie between them, a fifth of a second at 50 Kbps."""
SEEN_S = 0.004
"""A difference below this tells nothing about the rate but that it is high."""
SLOW_KBPS = 64.0
LONG_RTT_S = 0.4


@dataclass(frozen=True, slots=True)
class Probe:
    """A prompt on its way: IP bytes up for the turn, seconds until the verifier had it."""

    up_bytes: int
    seconds: float


async def session_findings(options: RunOptions, tokenizer: Tokenizer, timeout: float) -> AsyncIterator[Finding]:
    """What a session finds out; a turn may take twice `timeout` seconds."""
    request = replace(options.request(tokenizer), max_tokens=TOKENS)
    try:
        client = options.client(tokenizer)
    except (UsageError, ModelError) as error:
        yield fault(SESSION, f"the options do not work together: {error}", "correct the option that it names")
        return
    try:
        async with client:
            done = await asyncio.wait_for(_turn(client, tokenizer.encode(PROMPT), request), 2 * timeout)
            yield _account(done)
            yield _round_trip(done)
            small, large = [await asyncio.wait_for(_probe(client, tokenizer, n), 2 * timeout) for n in (SMALL, LARGE)]
            yield uplink(small, large)
    except TimeoutError:
        yield fault(
            SESSION,
            f"no end of a short turn within {2 * timeout:.0f} s",
            "a busy verifier, or a link that loses much: give a longer --wait, or look at the verifier's log",
        )
    except AcespecError as error:
        yield fault(SESSION, str(error), "look at the verifier's log for the same moment")


async def _turn(client: Client, ids: Sequence[int], request: TurnRequest) -> Completion:
    async with aclosing(client.stream(ids, request)) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return part
    raise RuntimeError("the stream ended without a completion")


async def _probe(client: Client, tokenizer: Tokenizer, length: int) -> Probe:
    """Send a prompt that cannot be compressed, and wait for it to be taken."""
    ordinary = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.eos_ids and not tokenizer.is_special(i)]
    ids = random.choices(ordinary, k=length)
    started = time.monotonic()
    taken = asyncio.create_task(_time_of(client.opened))
    # `opened` is that of the turn before until the new one begins; the task first runs when it has.
    done = await _turn(client, ids, TurnRequest(max_tokens=1, end_ids=tokenizer.eos_ids))
    return Probe(done.wire.up_bytes, await taken - started)


async def _time_of(event: asyncio.Event) -> float:
    await event.wait()
    return time.monotonic()


def _account(done: Completion) -> Finding:
    first = f"first after {done.ttft_s:.2f} s"
    about = (
        f"{len(done.token_ids)} tokens, {first}, {done.tokens_per_s:.1f} tokens/s; drafter {done.drafter}: "
        f"AL {done.acceptance_length:.2f}, {done.bytes_per_token:.0f} IP bytes per token, prompt included"
    )
    if done.reconnects:
        return warning(SESSION, f"{about}; the connection broke {done.reconnects} times", "look for what cuts it")
    return ok(SESSION, about)


def _round_trip(done: Completion) -> Finding:
    middle, high = quantile(done.rtts, 0.5), quantile(done.rtts, 0.95)
    if middle is None or high is None:
        return ok(LINK, "too few acknowledgements to tell")
    about = f"{middle * 1000:.0f} ms, 95 % within {high * 1000:.0f} ms, without what the verifier needed"
    if middle > LONG_RTT_S:
        return warning(LINK, about, "the first token will take at least this; a verifier nearer by would help")
    return ok(LINK, about)


def uplink(small: Probe, large: Probe) -> Finding:
    """The rate upwards from two prompts."""
    more_bytes, more_seconds = large.up_bytes - small.up_bytes, large.seconds - small.seconds
    if more_seconds < SEEN_S:
        return ok(UPLINK, f"fast: {more_bytes} IP bytes more take no time that could be seen")
    kbps = more_bytes * 8 / more_seconds / 1000
    about = f"about {kbps:.0f} Kbps ({more_bytes} IP bytes in {more_seconds * 1000:.0f} ms)"
    if kbps < SLOW_KBPS:
        return warning(UPLINK, about, "docs/guide/narrow-links.md says what helps on a narrow link")
    return ok(UPLINK, about)
