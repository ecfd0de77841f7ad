"""The branch cache against its closed form: how often is the corrected token in the tree, and what does that save?

Form 5 of theory.md, corrected: P_hit = sum S_k (1 - a) R(F_k) + S_D R_D(F_D), one outcome a round. A round is a verify
step here; it misses if it holds a token that stood nowhere in the edge's tree although its place was drafted. So P_hit
as measured is 1 - (surprises not covered) / steps. The form is given what our tree holds: at depth k as many guesses
F_k beside the first as the controller keeps for an honest drafter's claims; R(F), how a replayed drafter's further
guesses fall; and the D with which a step commits as many tokens as it did. At the bonus token the chain's own
continuation stands as well as what is beside it, so R_D = a + (1 - a) R(F_D) (`Tail.coverage`); the form as printed
takes the larger of a and R(F_D).

What a hit saves is the drafting of what stands behind the sibling: so many levels, each a pass of t_d. AceSpec's tree
has a whole draft of D there, and ours what was worth drafting: the share of D that it has is printed.

    python -m acespec.bench.brain cache
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from acespec.bench.brain.study import Setting, add_common, as_data, run_all, table, write_json
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.drafters.replay import honest_claims
from acespec.edge.drafters.replay_accuracy import side_chance
from acespec.sim.world.result import EdgeResult
from acespec.sim.world.strategies.real_edge import RealEdge
from acespec.sim.world.tally import edge_result
from acespec.sim.world.world import World

RTTS_MS = (30.0, 100.0, 300.0)
ACCEPTANCES = (0.6, 0.8, 0.9)
SHAPES = ("siblings:4", "on")
DEEPEST = 16.0


@dataclass(frozen=True, slots=True)
class Hits:
    """One run without free running, so that every step is a round.

    Attributes:
        depth: D.
        surprises: wrong first guesses per token; `covered` the share of them whose right token was in the tree.
        covered_form: the same by the closed form: R(F_k), each depth as often as a chain ends there.
        hit, hit_form: P_hit.
        saved: levels behind a sibling that turned out right, mean over hits; `saved_ms` their drafting, per token.
        redrafted_ms: drafting that surprises without a hit cost, D t_d each, per token.
        proposals: passes of the drafter per token.
    """

    rtt_ms: float
    acceptance: float
    tree: str
    depth: float
    surprises: float
    covered: float
    covered_form: float
    hit: float
    hit_form: float
    saved: float
    saved_ms: float
    redrafted_ms: float
    proposals: float
    tokens_per_s: float


class Levels:
    """Looks at the one edge of a world whenever a frame has come down: what stands behind a hit?"""

    def __init__(self, world: World) -> None:
        self.behind = self.hits = 0
        self._world = world
        world.agenda.at(0.0, self._attach)

    def _attach(self) -> None:
        [place] = self._world.places
        actor, stream = place.actor, place.stream
        if not isinstance(actor, RealEdge) or stream is None:
            raise RuntimeError("the edge has no stream yet: it must begin at 0 s")
        session, take = actor.session, stream.down.on_frame

        def receive(frame: object) -> None:
            before = session.branch_cache.covered
            take(frame)
            if session.branch_cache.covered > before:
                self.hits += 1
                self.behind += len(session.path()) - len(session.ids)

        stream.down.on_frame = receive


def watched(setting: Setting) -> tuple[EdgeResult, Levels]:
    """Run it in the world."""
    world = World(setting.scenario())
    levels = Levels(world)
    world.run()
    return edge_result(0, world.recorder.edges[0], world.traffic()[0]), levels


def further_right(guesses: int) -> float:
    """R(F) of the replayed drafter: the corrected token is among its next `guesses` (0: none)."""
    missed = 1.0
    for rank in range(1, guesses + 1):
        missed *= 1.0 - side_chance(rank)
    return 1.0 - missed


def fan_out(a: float, depth: int, tree: str) -> list[int]:
    """F_k, k = 0 .. depth: guesses beside the first that are kept behind k right ones."""
    width, controller = tree_shape(tree).width, make_controller("rate")
    sides = honest_claims(a, width)[1:]
    return [sum(controller.keep(k + 1, a**k * side).go for side in sides) for k in range(depth + 1)]


def closed_form(a: float, depth: float, tree: str) -> tuple[float, float]:
    """P_hit, and the share of surprises that are covered; between two whole depths by the line."""
    low = int(depth)
    below, above = _closed_form(a, low, tree), _closed_form(a, low + 1, tree)
    hit, covered = (x + (depth - low) * (y - x) for x, y in zip(below, above, strict=True))
    return hit, covered


def _closed_form(a: float, depth: int, tree: str) -> tuple[float, float]:
    # A wrong first guess behind k right ones; the last is where the bonus token stands.
    wrong = [a**k * (1 - a) for k in range(depth + 1)]
    covered = sum(s * further_right(fan) for s, fan in zip(wrong, fan_out(a, depth, tree), strict=True))
    return covered + a ** (depth + 1), covered / sum(wrong) if a < 1 else 1.0


def depth_of(a: float, tokens: float, shipped: float, behind: float) -> float:
    """The D with which a step commits so many tokens, E = (1 - a^(D+1))/(1 - a) + (1 - a^D) c (1 - a^(s+1))/(1 - a):
    the chain's and its bonus; and behind each sibling that was `shipped` (share c of the surprises) those of the s
    levels `behind` it, and a bonus."""
    more = shipped * (1 - a ** (behind + 1)) / (1 - a)
    left = (1 / (1 - a) + more - tokens) / (a / (1 - a) + more)
    return DEEPEST if left <= a**DEEPEST else max(0.0, math.log(left) / math.log(a))


def measure(setting: Setting) -> Hits:
    """Run it."""
    edge, levels = watched(setting)
    done, a = edge.drafting, float(setting.acceptance)
    surprises = max(1, done.surprises)
    behind = levels.behind / max(1, levels.hits)
    depth = depth_of(a, edge.tokens / edge.steps, done.shipped / surprises, behind)
    hit_form, covered_form = closed_form(a, depth, setting.tree)
    missed = done.surprises - done.covered
    return Hits(
        rtt_ms=setting.rtt_ms,
        acceptance=a,
        tree=setting.tree,
        depth=depth,
        surprises=done.surprises / edge.tokens,
        covered=done.covered / surprises,
        covered_form=covered_form,
        hit=1.0 - missed / edge.steps,
        hit_form=hit_form,
        saved=behind,
        saved_ms=levels.behind * setting.token_ms / edge.tokens,
        redrafted_ms=missed * depth * setting.token_ms / edge.tokens,
        proposals=done.proposals / edge.tokens,
        tokens_per_s=edge.tokens_per_s,
    )


def report(found: Sequence[Hits]) -> str:
    """A table."""
    head = (
        "RTT", "a", "tree", "D", "covered", "form", "P_hit", "form", "behind a hit", "of D", "saved ms/tok",
        "missed ms/tok", "passes/tok", "tok/s",
    )  # fmt: skip
    rows = [
        (f"{h.rtt_ms:.0f}", f"{h.acceptance:g}", h.tree, f"{h.depth:.1f}", f"{h.covered:.3f}", f"{h.covered_form:.3f}",
         f"{h.hit:.3f}", f"{h.hit_form:.3f}", f"{h.saved:.2f}", f"{h.saved / max(h.depth, 1e-9):.0%}",
         f"{h.saved_ms:.2f}", f"{h.redrafted_ms:.2f}", f"{h.proposals:.2f}", f"{h.tokens_per_s:.1f}")
        for h in found
    ]  # fmt: skip
    off = [abs(h.hit - h.hit_form) for h in found]
    mean, most = sum(off) / len(off), max(off)
    return f"{table(head, rows)}P_hit off the closed form by {mean:.3f} on average, {most:.3f} at most\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    add_common(parser)
    parser.add_argument("--rtt", type=float, nargs="+", default=RTTS_MS, metavar="MS")
    parser.add_argument("--acceptance", type=float, nargs="+", default=ACCEPTANCES, help="above 0 and below 1")
    parser.add_argument("--tree", nargs="+", default=SHAPES)
    parser.add_argument("--kbps", type=float, default=250.0)
    parser.add_argument("--tokens", type=int, default=1000)


def run(args: argparse.Namespace) -> int:
    """Print hits and savings."""
    rtts = args.rtt[1:2] if args.quick else args.rtt
    settings = [
        Setting(
            rtt_ms=rtt, acceptance=f"{a:g}", tree=tree, kbps=args.kbps, free_run="never",
            tokens=300 if args.quick else args.tokens,
        )
        for rtt in rtts for a in args.acceptance for tree in args.tree
    ]  # fmt: skip
    found = run_all(measure, settings, args.jobs)
    sys.stdout.write(report(found))
    write_json(args.json, as_data(found))
    return 0
