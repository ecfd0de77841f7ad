"""What the draft tree's branches are worth: a commit contradicts a first guess, and a sibling has the right token."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class BranchCache:
    """What became of the first guesses that commits contradicted (the branch cache of AceSpec, arXiv 2609.02514).

    Attributes:
        surprises: how many.
        covered: those whose right token was a sibling in the tree.
        shipped: those whose right token the cloud had been sent, too: it went on by itself.
        saved: tokens behind such siblings that needed no redraft.
    """

    surprises: int = 0
    covered: int = 0
    shipped: int = 0
    saved: int = 0

    def missed(self) -> BranchCache:
        """With one more surprise whose right token nobody had guessed."""
        return replace(self, surprises=self.surprises + 1)

    def hit(self, *, shipped: bool, saved: int) -> BranchCache:
        """With one more surprise whose right token was in the tree, and `saved` tokens behind it."""
        return BranchCache(self.surprises + 1, self.covered + 1, self.shipped + shipped, self.saved + saved)
