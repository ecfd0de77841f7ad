"""What drafters and onlookers see of a session: its ids, the guesses behind them, work for drafters (sans-IO)."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.brain.branch_cache import BranchCache
from acespec.edge.brain.draft_desk import DraftDesk, DraftJob, Level
from acespec.edge.brain.prices import Prices
from acespec.edge.sequence import CommittedSequence


class DraftingSide:
    """The side of `EdgeSession` that does not concern the protocol."""

    def __init__(self, desk: DraftDesk) -> None:
        self._sequence = CommittedSequence()
        self._desk = desk

    @property
    def ids(self) -> list[int]:
        """A copy of the committed sequence, prompt included."""
        return list(self._sequence.ids)

    @property
    def unverified(self) -> int:
        """Drafted tokens of one path that nothing is known of yet."""
        return self._desk.tree.deepest()

    @property
    def nodes(self) -> int:
        """All guesses that are held."""
        return len(self._desk.tree)

    @property
    def branch_cache(self) -> BranchCache:
        """What became of first guesses that were wrong."""
        return self._desk.tree.cache

    @property
    def prices(self) -> Prices:
        """What the controller was told last of link and verifier."""
        return self._desk.prices

    def draft_alone(self) -> None:
        """The link is down: guess on beyond what the server takes, until it has answered again."""
        self._desk.go_alone()

    @property
    def alone(self) -> bool:
        """Drafting goes on without the server."""
        return self._desk.alone

    def path(self) -> list[int]:
        """The committed ids and the path of first guesses behind them."""
        return [*self._sequence.ids, *self.guesses()]

    def guesses(self) -> list[int]:
        """The path of first guesses behind the committed ids."""
        return [self._desk.tree.node(key).token for key in self._desk.tree.main()]

    def committed_from(self, start: int) -> list[int]:
        """The committed ids from position `start` on."""
        return self._sequence.ids[start:]

    def wants_draft(self) -> bool:
        """True if there is work for a drafter."""
        return self._desk.wants()

    def draft_job(self) -> DraftJob | None:
        """Work for a drafter, if there is any. It may begin before the server has answered."""
        return self._desk.job(self._sequence.ids)

    def is_void(self, job: DraftJob) -> bool:
        """True if the path of a job has been contradicted: its answer will be dropped."""
        return self._desk.is_void(job)

    def proposal_takes(self, seconds: float) -> None:
        """What a proposal of the drafter takes is known before one was made."""
        self._desk.proposal_takes(seconds)

    def is_outbid(self, job: DraftJob) -> bool:
        """True if there is something better to draft than a job that was given out."""
        return self._desk.is_outbid(job)

    def drafted(self, job: DraftJob, levels: Sequence[Level], *, seconds: float, silent: bool) -> None:
        """A drafter's answer to `job`: for each position behind its path the guesses, best first, all behind the first
        guesses before.

        Guesses whose positions were committed meanwhile are compared and skipped; a wrong one drops the rest.

        Args:
            seconds: how long the drafting took.
            silent: the drafter has nothing to say behind these; it is not asked again before something is committed.
        """
        self._desk.take(self._sequence.ids, job, levels, seconds, silent)
