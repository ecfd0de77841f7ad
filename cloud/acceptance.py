"""How much of a draft is worth verifying: a session's own acceptance, and what rows cost.

The estimates are conditional: the chance that the first guess at depth k is right, given that depth k was reached; and
of further guesses at the same place (siblings) the chance that the second, third.. is right, given that those before it
were wrong. All are exponentially weighted means. A bad or hostile drafter therefore lowers the rows that its own
session gets, and costs others nothing.

Estimates can be wrong, at the start above all, so there is a budget too: drafts may cost a session ALLOWANCE plain
steps and SHARE of its steps beyond what they earned, whatever the estimate says. Rows that cost nothing are free.

Drafts that stop being right also raise an alarm, as a decay over hours is otherwise unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import log

from acespec.cloud.draft_tree import DraftTree

WEIGHT = 0.1
"""Of a new observation."""
PRIOR = 0.7
"""Acceptance assumed of the first guess at a depth that was never reached."""
SIDE_PRIOR = 0.4
"""The same of each further guess."""
MAX_RANK = 8
"""Guesses at one place that are told apart."""
PROBE_EVERY = 16
"""Steps after which one draft token is verified although it does not seem to pay, so that an estimate can recover."""
ENOUGH = 0.1
"""Waiting for drafts whose survival is below this gains little."""

ALLOWANCE = 3.0
"""The budget of a new session, in plain steps: its own, which are a part of those of the verifier."""
SHARE = 0.01
"""What each step adds to the budget."""
SAVINGS = 6.0
"""Most that the budget holds: a drafter that turns bad lives on no more than this."""

LEARNED = 32
"""Drafts after which a session has a history."""
HISTORY_WEIGHT = 0.002
FALL = 4.0
"""A collapse is a fall to less than a part of this of what was usual."""
CERTAIN = 10.0
"""Log odds of a collapse at which the alarm is raised: by chance once in some 20,000 drafts at most."""

Trial = tuple[int, int | None]
"""What a step found at one depth: (guesses that were verified there, which of them was right or None)."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A draft token to verify: the row that it follows (0 is the last committed token) and the token."""

    parent: int
    token: int


class Watch:
    """Tells a collapse of acceptance: once, and again only after a recovery.

    What speaks for a rate of `usual` / FALL against one of `usual` adds up and is never below 0 (Page's cumulative sum:
    Page, "Continuous inspection schemes", Biometrika 1954). A session that never had a draft accepted has collapsed as
    soon as it has a history.

    Attributes:
        usual: share of drafts that were right before the collapse.
        collapsed: True from a collapse until the recovery.
    """

    def __init__(self) -> None:
        self.usual = 0.0
        self.collapsed = False
        self._drafts = 0
        self._evidence = 0.0

    def observe(self, right: bool, recent: float) -> bool:
        """A draft was right or not, which makes its `recent` share; True if acceptance has just collapsed."""
        if self.collapsed:
            self.collapsed = recent < max(self.usual, ENOUGH) / 2
            return False
        self._drafts += 1
        self.usual += max(HISTORY_WEIGHT, 1.0 / self._drafts) * (right - self.usual)
        if self._drafts < LEARNED:
            return False
        usual = min(self.usual, 0.95)
        news = -log(FALL) if right else log((1.0 - usual / FALL) / (1.0 - usual))
        self._evidence = max(0.0, self._evidence + news)
        self.collapsed = self._evidence > CERTAIN or self.usual == 0.0
        if self.collapsed:
            self._evidence = 0.0
        return self.collapsed


class Acceptance:
    """A session's acceptance by depth and rank, learned from its verify steps.

    Attributes:
        fell: (share of right drafts now, before) if the last step made acceptance collapse, else None. Before a session
            has had any right, PRIOR.
    """

    def __init__(self, max_depth: int) -> None:
        self.fell: tuple[float, float] | None = None
        self._watch = Watch()
        self._first = [PRIOR] * max_depth
        self._sides = [SIDE_PRIOR] * MAX_RANK
        self._since_probe = 0
        self._budget = ALLOWANCE
        self._price = 0.0
        self._enough = self._find_enough()

    def observe(self, trials: Sequence[Trial]) -> None:
        """A step's outcome, depth by depth along the sampled path of a tree."""
        accepted = 0
        for depth, (tried, hit) in enumerate(trials):
            accepted += hit is not None
            _move(self._first, depth, hit == 0)
            for rank in range(1, min(tried, MAX_RANK)):
                if hit is not None and hit < rank:
                    break
                _move(self._sides, rank, hit == rank)
        self._settle(accepted)
        if trials:
            self._learned(accepted > 0)

    def observe_chain(self, drafted: int, accepted: int) -> None:
        """The same of a step that verified a chain of `drafted` tokens and accepted the first `accepted`."""
        first = self._first
        for depth in range(min(drafted, accepted + 1, len(first))):
            first[depth] += WEIGHT * ((depth < accepted) - first[depth])
        self._settle(accepted)
        if drafted:
            self._learned(accepted > 0)

    def survival(self, depth: int) -> float:
        """Estimated chance that the first `depth` first guesses are all right."""
        product = 1.0
        for rate in self._first[:depth]:
            product *= rate
        return product

    @property
    def enough(self) -> int:
        """Pending tokens of one path beyond which waiting for more gains little."""
        return self._enough

    def expected(self, depth: int) -> float:
        """Tokens that a step with a chain of `depth` drafts commits on average, the bonus token included."""
        return 1.0 + sum(self.survival(k) for k in range(1, depth + 1))

    def rows_that_pay(
        self, tree: DraftTree, depth: int, cost: Sequence[float], before: float = 0.0
    ) -> tuple[list[Pick], float]:
        """The draft tokens to verify, parents first, and the tokens that the block is then expected to commit.

        The likeliest are taken, at most `depth` deep, as many as maximise the step's expected tokens per second within
        the budget. The next `observe` is taken to be this step's.

        Args:
            cost: cost[n] is the seconds of the whole step if this block has n rows; its end bounds the rows.
            before: tokens that the step's other blocks are expected to commit.
        """
        plain = cost[1]
        best, best_rate, best_expected = 0, (before + 1.0) / plain, 1.0
        expected = 1.0
        # What this session's plain step costs of the whole; its drafts may cost so many of them.
        own = plain / (before + 1.0)
        limit = plain + own * max(0.0, self._budget)
        picks: list[Pick] = []
        for pick, chance in self._likeliest(tree, depth, len(cost) - 2):
            seconds = cost[len(picks) + 2]
            if seconds > limit:
                break
            picks.append(pick)
            expected += chance
            # Ties go to the longer draft: its rows are free where rows are padded.
            if (before + expected) / seconds >= best_rate:
                best, best_rate, best_expected = len(picks), (before + expected) / seconds, expected
        chosen = best or self._probe(len(picks))
        self._price = (cost[chosen + 1] - plain) / own
        return picks[:chosen], best_expected

    def _likeliest(self, tree: DraftTree, depth: int, rows: int) -> list[tuple[Pick, float]]:
        """Pending nodes in descending order of their estimated chance to be reached and right."""
        depth = min(depth, len(self._first))
        found: list[tuple[Pick, float]] = []
        chance, level = 1.0, tree.heads
        while len(level) == 1 and len(found) < min(depth, rows):  # A chain is in order as it is.
            chance *= self._first[len(found)]
            found.append((Pick(len(found), tree.token(level[0])), chance))
            level = tree.children(level[0])
        if len(level) > 1:
            self._best_first(tree, level, depth, rows, found, chance)
        return found

    def _best_first(
        self,
        tree: DraftTree,
        level: Sequence[int],
        depth: int,
        rows: int,
        found: list[tuple[Pick, float]],
        chance: float,
    ) -> None:
        """Go on where the chain in `found` forks into `level`."""
        frontier: list[tuple[float, int, int, int]] = []  # -chance, node id, parent row, depth of the node

        def offer(nodes: Sequence[int], parent: int, chance: float, at: int) -> None:
            for rank, node in enumerate(nodes[:MAX_RANK] if at < depth else ()):
                rate = self._sides[rank] if rank else self._first[at]
                heappush(frontier, (-chance * rate, node, parent, at))
                chance *= 1.0 - rate

        offer(level, len(found), chance, len(found))
        while frontier and len(found) < rows:
            negated, node, parent, at = heappop(frontier)
            found.append((Pick(parent, tree.token(node)), -negated))
            offer(tree.children(node), len(found), -negated, at + 1)

    def _settle(self, accepted: int) -> None:
        """An accepted token saves a plain step."""
        self._budget = min(SAVINGS, self._budget + SHARE + accepted - self._price)
        self._price = 0.0

    def _learned(self, right: bool) -> None:
        self._enough = self._find_enough()
        recent = self._first[0] if self._first else 0.0
        fell = self._watch.observe(right, recent)
        self.fell = ((recent, self._watch.usual) if self._watch.usual else (0.0, PRIOR)) if fell else None

    def _find_enough(self) -> int:
        depth, survival = 1, self._first[0] if self._first else 0.0
        while depth < len(self._first) and survival * self._first[depth] >= ENOUGH:
            survival *= self._first[depth]
            depth += 1
        return depth

    def _probe(self, affordable: int) -> int:
        self._since_probe += 1
        if affordable and self._since_probe >= PROBE_EVERY:
            self._since_probe = 0
            return 1
        return 0


def _move(rates: list[float], index: int, right: bool) -> None:
    if index < len(rates):
        rates[index] += WEIGHT * (right - rates[index])
