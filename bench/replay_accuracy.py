"""Does the replayed stack run at the speed that the closed forms give for its times? Plain decoding, stop-and-wait.

T = milliseconds per committed token, R = round trip of the link, tau = serialisation of the draft and of its commit,
all framing included, C = R + tau + t_v:

* plain decoding: T = t_v(1 row);
* stop-and-wait with D drafts of acceptance a: T = (D t_d + C) / E, E = (1 - a^(D+1)) / (1 - a).

C is had twice: from the link's own figures and message sizes, and from the round trips that the edge measured. E is
had twice as well: by the formula, and as it came out, since the acceptances of a run scatter around their mean.

    python -m acespec.bench.replay_accuracy --json replay_accuracy.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from acespec.bench.never_slower_cell import PROMPT, is_exact
from acespec.bench.stack import PLAIN, Stack
from acespec.bench.stop_and_wait import BlockReplayDrafter
from acespec.edge.brain.controller import FixedController
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.proto import wire
from acespec.proto.errors import AcespecError
from acespec.proto.framing import message_bytes
from acespec.proto.messages import Commit, Draft
from acespec.proto.nodes import ROOT, Node, pack
from acespec.proto.replay_profiles import VERIFIERS, find_drafter, find_verifier
from acespec.proto.replay_text import SyntheticText
from acespec.proto.tokens import pack_tokens
from acespec.sim.link import LinkSpec

TOLERANCE = 0.05
SEED = 77


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One comparison. Times in ms; `ok` is judged by measured round trips and the E that came out."""

    what: str
    tokens: int
    live_tokens_per_s: float
    form_tokens_per_s: float
    form_of_link_tokens_per_s: float
    c_measured_ms: float
    c_of_link_ms: float
    e_live: float
    e_formula: float
    exact: bool

    @property
    def error(self) -> float:
        """Live over form, minus 1."""
        return self.live_tokens_per_s / self.form_tokens_per_s - 1.0

    @property
    def ok(self) -> bool:
        """Within the tolerance, and the right ids."""
        return self.exact and abs(self.error) <= TOLERANCE


def expected_tokens(a: float, length: int) -> float:
    """E: tokens of a verify step with `length` drafts of acceptance a, bonus counted."""
    return sum(a**depth for depth in range(length + 1))


def tau_ms(spec: LinkSpec, length: int, accepted: float, vocab_size: int) -> float:
    """Serialisation of a message of `length` drafts and of its commit, in the middle of a run."""
    nodes = [Node(ROOT if i == 0 else 1000 + i - 1, 500) for i in range(length)]
    draft = Draft(received=900, nodes=pack(nodes, 1000, vocab_size), held_ms=50)
    commit = Commit(
        length=900 + round(accepted) + 1,
        digest=0x89ABCDEF,
        tokens=pack_tokens([500], vocab_size),
        matched=1000 + round(accepted),
        ack=300,
        held_us=25_000,
    )
    up, down = (message_bytes(len(data)) for data in (wire.encode_edge(draft), wire.encode_cloud(commit)))
    return 8 * up / spec.rate_up_kbps + 8 * down / spec.rate_down_kbps


def round_trip_ms(spec: LinkSpec) -> float:
    """Mean propagation both ways: the delay is a floor, and jitter, exponential, comes on top with its own mean."""
    return 2 * (spec.delay_ms + spec.jitter_ms)


async def one_turn(
    stack: Stack, address: str, tokens: int, drafter: BlockReplayDrafter | None, length: int
) -> Completion:
    """One turn, plain or stop-and-wait."""
    if drafter is None:
        client = stack.client(address, PLAIN)
    else:
        client = Client(Endpoint(address, insecure=True), stack.tokenizer, drafter, FixedController(length))
    async with client:
        return await stack.generate(client, PROMPT, stack.request(tokens, seed=SEED))


async def plain_line(args: argparse.Namespace) -> Line:
    """Form 1."""
    step_s = find_verifier(args.profile).step_s(1)
    tokens = round(args.seconds / step_s)
    async with running(args, "always") as (stack, address, spec):
        run = await one_turn(stack, address, tokens, None, 0)
        exact = is_exact(run, stack.tokenizer.vocab_size) and len(run.token_ids) == tokens
    rtt_ms = 1e3 * sum(run.rtts) / len(run.rtts)
    form = 1 / step_s
    return Line(
        "plain (form 1)", tokens, run.decode_tokens_per_s, form, form, rtt_ms, round_trip_ms(spec), 1.0, 1.0, exact
    )


async def waiting_line(args: argparse.Namespace, length: int) -> Line:
    """Form 3."""
    step_ms = 1e3 * find_verifier(args.profile).step_s(length + 1)
    token_s = find_drafter(args.draft_profile).token_s
    e_formula = expected_tokens(args.acceptance, length)
    async with running(args, "never", "--target-rate", "0") as (stack, address, spec):
        vocab_size = stack.tokenizer.vocab_size
        c_of_link = round_trip_ms(spec) + tau_ms(spec, length, e_formula - 1, vocab_size) + step_ms
        round_ms = 1e3 * length * token_s + c_of_link
        tokens = round(1e3 * args.seconds / round_ms * e_formula)
        accuracy = DepthAccuracy((args.acceptance,))
        drafter = BlockReplayDrafter(SyntheticText(vocab_size), accuracy, token_s, length)
        run = await one_turn(stack, address, tokens, drafter, length)
        exact = is_exact(run, vocab_size) and len(run.token_ids) == tokens
    c_measured = 1e3 * sum(run.rtts) / len(run.rtts) + step_ms
    e_live = len(run.token_ids) / run.totals.verify_steps

    def form(c_ms: float) -> float:
        return 1e3 * e_live / (1e3 * length * token_s + c_ms)

    return Line(
        f"stop-and-wait D={length} (form 3)", tokens, run.decode_tokens_per_s, form(c_measured), form(c_of_link),
        c_measured, c_of_link, e_live, e_formula, exact,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def running(args: argparse.Namespace, free_run: str, *options: str) -> AsyncIterator[tuple[Stack, str, LinkSpec]]:
    """A verifier behind a link of its own."""
    with contextlib.ExitStack() as exits:
        stack = await asyncio.to_thread(
            exits.enter_context, Stack.replaying(args.profile, free_run=free_run, options=options)
        )
        link = await asyncio.to_thread(exits.enter_context, stack.link(args.preset, "link"))
        yield stack, link.address, LinkSpec.preset(args.preset)


async def measure(args: argparse.Namespace) -> list[Line]:
    """All lines, side by side."""
    return await asyncio.gather(plain_line(args), *(waiting_line(args, length) for length in args.length or (4, 8)))


def show(line: Line) -> str:
    """The line for a person."""
    return (
        f"{line.what:28} {line.tokens:6} {line.live_tokens_per_s:8.3f} {line.form_tokens_per_s:8.3f} "
        f"{100 * line.error:+6.2f} % {line.form_of_link_tokens_per_s:10.3f} "
        f"{100 * (line.live_tokens_per_s / line.form_of_link_tokens_per_s - 1):+6.2f} % "
        f"{line.c_measured_ms:8.1f} {line.c_of_link_ms:8.1f} {line.e_live:6.3f} {line.e_formula:6.3f}  "
        f"{'ok' if line.ok else 'FAR OFF' if line.exact else 'WRONG IDS'}"
    )


def main() -> int:
    """Entry point; 1 if a line is off by more than the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="h100-70b-fp8", choices=list(VERIFIERS))
    parser.add_argument("--draft-profile", default="theory-5ms")
    parser.add_argument("--acceptance", type=float, default=0.8)
    parser.add_argument("--preset", default="wan50")
    parser.add_argument("--length", type=int, action="append", help="D; may be repeated; default 4 and 8")
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long each line decodes")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    try:
        lines = asyncio.run(measure(args))
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(
        f"{'':28} {'tokens':>6} {'live/s':>8} {'form/s':>8} {'off':>8} {'by link/s':>10} {'off':>8} "
        f"{'C meas.':>8} {'C link':>8} {'E live':>6} {'E':>6}\n"
    )
    sys.stdout.write("\n".join(map(show, lines)) + "\n")
    if args.json:
        data = [dataclasses.asdict(line) | {"error": line.error, "ok": line.ok} for line in lines]
        args.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return 0 if all(line.ok for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
