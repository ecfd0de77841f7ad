"""Where drafters hand in their guesses: what may be drafted now, and what a guess is worth when it arrives.

Drafters work while commits come in. A job says behind which node to draft; its answer is fitted to whatever is
committed by then, so that neither side waits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from acespec.edge.brain.controller import Controller
from acespec.edge.brain.draft_tree import DraftTree
from acespec.edge.brain.prices import FREE, Prices
from acespec.edge.brain.remembered import Remembered
from acespec.edge.brain.survival import Guess
from acespec.edge.brain.tree_shape import CHAIN, TreeShape
from acespec.edge.brain.watched_controller import WatchedController
from acespec.edge.drafters.base import Candidate
from acespec.edge.outage_policy import LONE_TOKENS
from acespec.edge.watch import Drafted, GuessSeen, JobGiven, SessionWatcher
from acespec.proto.nodes import ROOT

Level = Sequence[Candidate]
"""What may stand at one position, best first."""


@dataclass(frozen=True, slots=True)
class DraftJob:
    """What a drafter should do now: give up to `k` guesses behind `path`, and go on behind the first of them for at
    most `room` levels.

    `node` is where the path ends in the draft tree; `number` counts the jobs of a session.
    """

    version: int
    node: int
    path: list[int]
    room: int
    k: int = 1
    number: int = 0


class DraftDesk:
    """The unverified guesses of one session.

    Attributes:
        tree: the guesses.
        version: rises whenever all jobs that were given out are void.
        cap: most unverified tokens of a path that the server sees; its own limit once it is known.
        most_shipped: most nodes that the server holds.
        prices: what time, bits and rows cost now.
        alone: the link is down: the main path grows beyond `cap`, whatever it is worth.
    """

    def __init__(self, controller: Controller, vocab_size: int, shape: TreeShape = CHAIN) -> None:
        self.controller = controller
        self.tree = DraftTree()
        self.version = 0
        self.cap = controller.cap
        self.most_shipped = math.inf
        self.prices: Prices = FREE
        self.alone = self._stays = False
        self._shape = shape
        self._most_nodes = controller.cap * shape.width
        self._vocab_size = vocab_size
        self._end_ids: Collection[int] = ()
        self._end = 0
        self._lessons = 0
        self._found = Remembered(self._find_place)
        self._jobs = 0
        self._watcher: SessionWatcher | None = None
        self._seen: list[GuessSeen] = []

    def watch(self, watcher: SessionWatcher) -> None:
        """Let `watcher` see jobs, drafts and decisions."""
        self._watcher = watcher
        self.controller = WatchedController(self.controller, watcher)

    def start(self, committed: int, end: int, end_ids: Collection[int]) -> None:
        """A new turn: its sequence grows from `committed` to at most `end` tokens; an id of `end_ids` is its last."""
        self.clear()
        self.tree.start(committed)
        self._end = end
        self._end_ids = frozenset(end_ids)

    def clear(self) -> None:
        """Drop all guesses; jobs under way come to nothing."""
        self.tree.clear()
        self.version += 1
        self.alone = self._stays = False
        self._end = 0

    def limit(self, depth: int, nodes: int) -> None:
        """The server is there, takes paths of at most `depth` unverified tokens and holds `nodes` nodes. What was
        drafted beyond is dropped, unless it was drafted alone: that stays until a commit contradicts it, and is shipped
        when it is near enough."""
        self.cap = min(self.controller.cap, depth, nodes)
        self.most_shipped = nodes
        self._most_nodes = min(self.controller.cap * self._shape.width, nodes)
        end = self.tree.base + self.cap
        if not self._stays:
            self.version += self.tree.cut(end)
        self.alone = False
        self._lessons += 1
        self.tree.make_room(self._most_nodes + 1, math.inf, end)

    def go_alone(self) -> None:
        """The link is down: guess on along the main path, until `limit` says that the server is there again."""
        self.alone = self._stays = True
        self._lessons += 1
        self.tree.ask_again(self.tree.tip())  # It may have been asked, and the answer not been worth its bits.

    def job(self, ids: Sequence[int]) -> DraftJob | None:
        """Work for a drafter, if there is any: behind the likeliest node that was not asked about."""
        node = self._place()
        if node is None:
            return None
        path = [*ids, *self.tree.tokens(node)]
        self._jobs += 1
        job = DraftJob(self.version, node, path, self._last - len(path), self._shape.width, self._jobs)
        if self._watcher is not None:
            self._watcher.saw(JobGiven(job.number, node, len(path), job.room, job.k, self.tree.survival(node)))
        return job

    def wants(self) -> bool:
        """True if there is work for a drafter."""
        return self._place() is not None

    def prospect(self) -> float:
        """Survival of the place where drafting would go on; 0 if it would not."""
        node = self._place()
        return 0.0 if node is None else self.tree.survival(node)

    @property
    def _last(self) -> int:
        """The first position that is not to be drafted; the last token is the target's own in any case."""
        return min(self.tree.base + self._reach, self._end - 1)

    @property
    def _reach(self) -> int:
        return max(self.cap, LONE_TOKENS) if self.alone else self.cap

    @property
    def state(self) -> tuple[int, int, Prices]:
        """What decisions depend on: the tree, what the controller has learned, the prices."""
        return self.tree.changes, self._lessons, self.prices

    def _place(self) -> int | None:
        """Where to draft next."""
        return self._found.answer(self.state)

    def _find_place(self) -> int | None:
        if self.alone:
            return self._find_lone_place()
        self.tree.aim_beyond(self.prices.headway)
        node = self.tree.best(self._last)
        if node is None:
            return None
        decision = self.controller.extend(self.tree.depth(node), self.tree.survival(node), self.prices)
        return node if decision.go else None

    def _find_lone_place(self) -> int | None:
        """The end of the main path, unless the text ends on the way there."""
        main = self.tree.main()
        tip = main[-1] if main else ROOT
        goes_on = self.tree.is_open(tip, self._last) and all(self.tree.node(key).grows for key in main)
        return tip if goes_on else None

    def is_void(self, job: DraftJob) -> bool:
        """True if the answer to a job would be dropped."""
        return job.version != self.version or not (job.node in self.tree or self.tree.was_passed(job.node))

    def is_outbid(self, job: DraftJob) -> bool:
        """True if drafting had better go on elsewhere: what was found behind the job's path so far is still welcome."""
        place = self._place()
        return self.is_void(job) or (place is not None and place != job.node)

    def take(self, ids: Sequence[int], job: DraftJob, levels: Sequence[Level], seconds: float, silent: bool) -> None:
        """See `EdgeSession.drafted`."""
        self.controller.drafted(seconds, len(levels))
        self._lessons += 1
        self._seen = []
        fate = "void" if self.is_void(job) else self._fit(ids, job, levels, silent)
        if self._watcher is not None:
            self._watcher.saw(Drafted(job.number, seconds, len(levels), fate, silent, tuple(self._seen)))

    def proposal_takes(self, seconds: float) -> None:
        """What a proposal takes is known before one was made."""
        self.controller.drafted(seconds, 1)
        self._lessons += 1

    def committed(self, now: float, ids: Sequence[int], new: int) -> int:
        """The last `new` of `ids` are final now: drop what they pass or contradict, and learn from it; how many of them
        had been guessed."""
        outcomes = self.tree.commit(ids)
        if new:
            self.controller.committed(now, new, outcomes)
            self._lessons += 1
        return sum(outcome.right for outcome in outcomes)

    def _fit(self, ids: Sequence[int], job: DraftJob, levels: Sequence[Level], silent: bool) -> str:
        """Put an answer into the tree, behind what is final by now; what became of it (`Drafted.fate`)."""
        passed = len(ids) - len(job.path)
        for position, level in enumerate(levels[: max(0, passed)], len(job.path)):
            if not level or level[0].token != ids[position]:
                return "wrong"
        parent = ROOT if passed >= 0 else job.node
        for level in levels[max(0, passed) :]:
            parent = self._add_level(parent, level)
            if parent == ROOT or (self.alone and not self.tree.node(parent).grows):
                return "kept"
        if silent and len(levels) >= passed:
            self.tree.asked(parent, silent=True)
        return "kept"

    def _add_level(self, parent: int, level: Level) -> int:
        """Put guesses behind a node; the first of them, or ROOT if it is not wanted."""
        useful = [candidate for candidate in level[: self._shape.width] if 0 <= candidate.token < self._vocab_size]
        first: int | None = None
        rest = 1.0
        for rank, candidate in enumerate(useful):
            claim = _as_probability(candidate.probability)
            share = claim if rank == 0 else min(1.0, claim / rest) if rest > 0 else 0.0
            rest -= claim
            key = self._add(parent, candidate, share)
            if self._watcher is not None:
                self._seen.append(self._sight(parent, candidate, claim, rank, key))
            if rank == 0:
                first = key
            if key is None:
                break
        self.tree.asked(parent, silent=first is None)
        return ROOT if first is None else first

    def _sight(self, parent: int, candidate: Candidate, claim: float, rank: int, key: int | None) -> GuessSeen:
        position = self.tree.base + self.tree.depth(parent)
        survival = self.tree.survival(key) if key is not None else 0.0
        key = ROOT if key is None else key
        return GuessSeen(position, candidate.token, candidate.source, claim, rank, survival, parent, key)

    def _add(self, parent: int, candidate: Candidate, share: float) -> int | None:
        """The guess's node; None if it is not worth one."""
        tree = self.tree
        if (known := tree.child(parent, candidate.token)) is not None:
            return known
        depth, rank = tree.depth(parent) + 1, len(tree.children(parent))
        lone = self.alone and rank == 0
        if depth > (self._reach if lone else self.cap):
            return None
        guess = Guess(candidate.source, depth, share, rank)
        given = self.controller.confidence(guess)
        confidence = tree.confidence(parent, given)
        survival = tree.survival(parent) * confidence
        if not lone and not self._has_place(depth, survival):
            return None
        grows = candidate.token not in self._end_ids and (rank == 0 or self._shape.branches)
        return tree.add(parent, candidate.token, guess, given, confidence=confidence, grows=grows)

    def _has_place(self, depth: int, survival: float) -> bool:
        """A guess is worth a node, and there is one for it or a worse one to give up."""
        end = self.tree.base + self.cap
        return self.controller.keep(depth, survival).go and self.tree.make_room(self._most_nodes, survival, end)


def _as_probability(value: float) -> float:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0
