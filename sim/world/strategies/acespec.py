"""AceSpec (arXiv 2609.02514): a branch cache. A chain of D goes up with its probabilities; while its verdict is on its
way the edge drafts on behind the F_k likeliest alternatives of each depth; a verdict that is among them finds the next
chain ready, any other costs a redraft of D (form 5).

The next chain leaves when verdict and tree are both there: growing is one forward pass a level and is not broken off. A
chain is 64 bits a draft, a verdict a count and the ten likeliest target tokens at 64 bits each, from which the edge
draws the correction or the bonus. Unstated there and decided here: how long a tree takes and real-valued fan-outs
(`branch_tree.py`); coverage R(F) = 1 - c F^-b where no trace gives the drafter's ranks; fan-outs in the ratio that the
true acceptance asks for; D is fixed, or the best of form 5, and with `adapt` the budget follows R + t_v; a miss costs a
redraft and no round trip, as its algorithm has it and its formula does not; the verifier keeps the KV of the
conversation; the drafter takes no time over the prompt, nor for compacting its own cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from acespec.sim.theory.branch_cache import Tail, branch_cache_ms
from acespec.sim.theory.costs import Costs
from acespec.sim.world.place import Actor, Place, Wish
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.answer import Answer, Answers
from acespec.sim.world.strategies.branch_tree import Grower, Tree
from acespec.sim.world.strategies.draft_length import DraftLength, EdgeDraftLength, acceptance_of
from acespec.sim.world.strategies.letters import COUNT, pairs_bytes, round_ms
from acespec.sim.world.strategies.remote import Chain, Remote, Verdict
from acespec.sim.world.world import World


class AceSpec:
    """Parameters: `draft`, `law`, `budget`, `adapt`, `b`, `c`, `tree_factor`, `branch_ms`, `pair_bits`, `top`.

    Attributes:
        hits, rounds: verdicts that the trees held, of all, over all edges.
    """

    name = "acespec"

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        self.answers = Answers(world)
        self.hits = self.rounds = 0
        self._queue = world.verifier_queue()
        self._pair_bits = int(params["pair_bits"])
        self._top = int(params["top"])
        self._a = acceptance_of(world)
        self.grower = Grower(
            str(params["law"]),
            most=int(params["budget"]),
            tail=Tail(float(params["b"]), float(params["c"])),
            acceptance=self._a,
            t_d=1000 * world.scenario.drafter.token_s,
            tree_factor=float(params["tree_factor"]),
            branch_ms=float(params["branch_ms"]),
            adapt=bool(params["adapt"]),
        )
        spec = world.scenario.link.spec()
        self.length = DraftLength(
            world,
            self.answers,
            str(params["draft"]),
            self._form,
            R=spec.rtt_ms,
            tau=lambda D: round_ms(spec, self._up_bytes(D), self._down_bytes(D, 0)),
        )

    def begin(self, place: Place) -> Actor:
        """See `Strategy.begin`."""
        remote = Remote(place, self._queue, up_bytes=self._up_bytes, down_bytes=self._down_bytes)
        return _Edge(self, place, remote)

    def _form(self, costs: Costs, drafts: int) -> float:
        tree = self.grower.tree(drafts, costs)
        return branch_cache_ms(costs, self._a, drafts, tree.ms, tree.hit)

    def _up_bytes(self, drafts: int) -> int:
        return pairs_bytes(drafts, self._pair_bits)

    def _down_bytes(self, drafts: int, accepted: int) -> int:
        return COUNT + pairs_bytes(self._top, self._pair_bits)


class _Edge:
    """`_tree` is grown for the chain under way, and complete at `_grown_at`."""

    def __init__(self, shared: AceSpec, place: Place, remote: Remote) -> None:
        self._shared = shared
        self._place = place
        self._agenda = place.agenda
        self._remote = remote
        self._length = EdgeDraftLength(shared.length)
        self._tree = Tree(0, (), 0.0, 0.0)
        self._grown_at = 0.0

    def start(self, wish: Wish) -> None:
        """See `Actor.start`."""
        answer = self._shared.answers.begin(self._place, wish)
        self._remote.ask(answer, lambda: self._begin(answer))

    def _begin(self, answer: Answer) -> None:
        if answer.take(1):
            self._redraft(answer)

    def _redraft(self, answer: Answer) -> None:
        chain = Chain(answer.position, self._length.now)
        drafted_at = self._agenda.now + chain.drafts * self._place.token_s
        self._agenda.at(drafted_at, lambda: self._send(answer, chain))

    def _send(self, answer: Answer, chain: Chain) -> None:
        costs = self._shared.length.costs(chain.drafts, self._length.beyond_ms)
        self._tree = self._shared.grower.tree(chain.drafts, costs)
        self._grown_at = self._agenda.now + self._tree.ms / 1000
        self._remote.judge(answer, chain, lambda verdict: self._judged(answer, verdict))

    def _judged(self, answer: Answer, verdict: Verdict) -> None:
        self._length.waited(verdict.chain.drafts, verdict.wait_ms)
        if answer.take(verdict.committed):
            self._agenda.at(max(self._agenda.now, self._grown_at), lambda: self._look_up(answer, verdict))

    def _look_up(self, answer: Answer, verdict: Verdict) -> None:
        """Both verdict and tree are there: is the next chain, too?"""
        chain, newest = verdict.chain, answer.position - 1
        self._shared.rounds += 1
        if self._shared.grower.catches(self._tree, self._place, answer.wish, verdict.accepted, newest, chain.ahead):
            self._shared.hits += 1
            self._send(answer, Chain(answer.position, self._length.now, verdict.accepted + 1))
        else:
            self._redraft(answer)
