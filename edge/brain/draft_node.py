"""One guess of the draft tree."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.edge.brain.survival import Guess


@dataclass(slots=True)
class DraftNode:
    """One guess.

    Attributes:
        parent: a key of the tree, or ROOT.
        given: chance that it is right, given its path and that the guesses before it at its place are wrong.
        confidence: chance that it is right, given its path.
        survival: chance that it and its whole path are right.
        grows: what follows it may be asked while it is a guess.
        asked: a drafter was asked what follows it.
    """

    parent: int
    token: int
    position: int
    guess: Guess
    given: float
    confidence: float
    survival: float
    grows: bool = True
    asked: bool = False
    wire_id: int | None = None
