"""The n-gram drafter: copies from the text itself, and guesses from counts of what the target committed before.

No model, no gradient: every committed token is an observation of the target. Guesses carry calibrated probabilities,
since each committed token also shows whether the guess for its position would have been right. At temperature 0 the
likeliest token comes first; otherwise the counts are a distribution q, and its tokens are ranked by log q plus the
noise that the target adds too, so that a guess follows the target's dice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acespec.edge.drafters.base import Candidate, QuietDrafter, TurnContext
from acespec.edge.drafters.count_table import CountTable
from acespec.edge.drafters.ngram_rates import Verdict, fresh_rates, own_cell, table_cell
from acespec.edge.drafters.own_context import Match, OwnContext
from acespec.edge.drafters.table_file import TableFile
from acespec.proto.noise import gumbel_at
from acespec.proto.prefix import common_prefix

FLOOR = 0.02
"""Guesses less likely than this are not worth their bits anywhere."""

SAVE_EVERY = 4096
"""Tokens learned between two saves; it happens between turns, and at the end."""

_REST_PER_COPY = 0.3

Ranked = list[tuple[int, float]]
"""(token, probability by the table), best first."""


class NgramDrafter(QuietDrafter):
    """See the module. `store` keeps what is learned; without it everything is forgotten at the end."""

    name = "ngram"

    def __init__(self, store: TableFile | None = None, *, max_contexts: int = 200_000) -> None:
        super().__init__()
        self._store = store
        self._table = CountTable(max_contexts)
        self._rates = fresh_rates()
        self._own = OwnContext()
        self._turn: TurnContext | None = None
        self._checked = False  # the own text is known to agree with this turn's prompt
        self._settled = 0  # position of the first pending token
        self._pending: list[int] = []
        self._unsaved = 0
        if store is not None:
            store.load(self._table, self._rates)

    def begin(self, turn: TurnContext) -> None:
        """Starts a turn; the index of an earlier turn is reused as far as the ids agree."""
        self._learn_without_context()
        if self._unsaved >= SAVE_EVERY:
            self._save()
        self._turn = turn
        self._checked = False
        self._settled = turn.prompt_len

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """Candidates after the path; about 10 microseconds at temperature 0, 150 more where noise is drawn."""
        if self._turn is None:
            return []
        self._catch_up(path)
        matches, ranked = self._own.matches(path, k), self._ranked(path, k)
        best = {c.token: c for c in self._from_table(ranked)}
        for candidate in self._from_own(matches, ranked):
            known = best.get(candidate.token)
            if known is None or candidate.probability >= known.probability:
                best[candidate.token] = candidate
        banned, most = self._turn.banned_at(len(path)), self._turn.vocab_size
        usable = [c for c in best.values() if c.probability >= FLOOR and c.token < most and c.token not in banned]
        return sorted(usable, key=lambda c: -c.probability)[:k]

    def commit(self, tokens: Sequence[int], start: int) -> None:
        """Learns; tokens that were passed before are skipped, and a gap is read from the next path."""
        expected = self._settled + len(self._pending)
        if start > expected:
            self._learn_without_context()
            self._settled = expected = start
        self._pending.extend(tokens[expected - start :])
        self._learn_pending()

    def close(self) -> None:
        """Saves what was learned since the last time."""
        self._learn_without_context()
        if self._unsaved:
            self._save()

    def _catch_up(self, path: Sequence[int]) -> None:
        """Indexes what comes before the pending tokens: the prompt, or a resumed part."""
        goal = min(self._settled, len(path))
        if not self._checked:
            self._own.truncate(common_prefix(self._own.text, path[:goal]))
            self._checked = True
        for token in path[len(self._own.text) : goal]:
            self._own.append(token)
        self._learn_pending()

    def _learn_pending(self) -> None:
        if not self._checked or len(self._own.text) != self._settled:
            return
        for token in self._pending:
            self._learn(token)
        self._settled += len(self._pending)
        self._pending.clear()

    def _learn(self, token: int) -> None:
        """Checks the guesses for the next position of the own text against the truth, then counts and indexes it."""
        text = self._own.text
        greedy, ranked = self._greedy, self._ranked(text, 1)
        for match in self._own.matches(text, 1):
            cell = own_cell(match.length, match.contested, _verdict(match, ranked), greedy)
            self._rates.observe(cell, match.token == token)
        for guess, mass in ranked[:1]:
            self._rates.observe(table_cell(mass, greedy), guess == token)
        self._table.learn(text, len(text), token)
        self._own.append(token)
        self._unsaved += 1

    def _learn_without_context(self) -> None:
        """Counts pending tokens whose preceding text was never shown, since nobody asked for a guess."""
        for at, token in enumerate(self._pending):
            self._table.learn(self._pending, at, token)
        self._unsaved += len(self._pending)
        self._settled += len(self._pending)
        self._pending.clear()

    def _from_own(self, matches: list[Match], ranked: Ranked) -> list[Candidate]:
        """The newest longest copy at its measured rate; further ones share what it leaves."""
        found: list[Candidate] = []
        rest = 1.0
        for match in matches:
            if found:
                chance = rest * _REST_PER_COPY
            else:
                cell = own_cell(match.length, match.contested, _verdict(match, ranked), self._greedy)
                chance = self._rates.estimate(cell)
            found.append(Candidate(match.token, chance, "own"))
            rest -= chance
        return found

    def _from_table(self, ranked: Ranked) -> list[Candidate]:
        """The first guess at its measured rate; the others in proportion to their mass, never above the one before."""
        found: list[Candidate] = []
        for token, mass in ranked:
            if found:
                first = found[0].probability
                share = mass * (1 - first) / (1 - ranked[0][1])
                chance = min(share, found[-1].probability)
            else:
                chance = self._rates.estimate(table_cell(mass, self._greedy))
            found.append(Candidate(token, chance, "table"))
        return found

    def _ranked(self, path: Sequence[int], k: int) -> Ranked:
        """The table's k best guesses after the path: by probability, or by log probability plus shared noise."""
        masses = self._table.distribution(path, len(path))
        if len(masses) < 2 or self._greedy or self._turn is None:
            return sorted(masses.items(), key=lambda item: (-item[1], item[0]))[:k]
        tokens = np.fromiter(masses, dtype=np.int64, count=len(masses))
        q = np.fromiter(masses.values(), dtype=np.float64, count=len(masses))
        scores = np.log(q) + gumbel_at(self._turn.seed, len(path), tokens)
        order = np.argsort(-scores, kind="stable")[:k]
        return [(int(tokens[at]), float(q[at])) for at in order]

    @property
    def _greedy(self) -> bool:
        return self._turn is None or self._turn.params.greedy

    def _save(self) -> None:
        if self._store is not None:
            self._store.save(self._table, self._rates)
        self._unsaved = 0


def _verdict(match: Match, ranked: Ranked) -> Verdict:
    if not ranked:
        return Verdict.SILENT
    return Verdict.AGREES if ranked[0][0] == match.token else Verdict.DIFFERS
