"""One visit of a drafter: guesses behind a path, and on behind the first of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acespec.edge.brain.draft_desk import DraftJob, Level

Propose = Callable[[Sequence[int], int], Level]
"""`Drafter.propose`: what may follow a path, at most so many, best first."""


def hop(job: DraftJob, propose: Propose, go_on: Callable[[int], bool]) -> tuple[list[Level], bool]:
    """What a drafter says to a job while `go_on` (of the levels so far) holds; and whether it fell silent.

    It does not turn to another place of the tree in between, likely as one may be: what leaves together shares the
    headers of a message.
    """
    found: list[Level] = []
    path = list(job.path)
    while len(found) < job.room and (not found or go_on(len(found))):
        level = propose(path, job.k)[: job.k]
        if not level:
            return found, True
        found.append(level)
        path.append(level[0].token)
    return found, False
