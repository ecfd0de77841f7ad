"""What the commits of one turn brought so far."""

from __future__ import annotations


class TurnTally:
    """Counts of one turn.

    Attributes:
        commits: those that brought tokens.
        tokens: committed.
        named: of them those that a commit named as drafts instead of spelling them.
    """

    def __init__(self) -> None:
        self.commits = self.tokens = self.named = 0

    def add(self, tokens: int, named: int) -> None:
        """One more commit."""
        self.commits += tokens > 0
        self.tokens += tokens
        self.named += named

    @property
    def acceptance_length(self) -> float | None:
        """Named tokens per commit that brought tokens; None before the first."""
        return self.named / self.commits if self.commits else None
