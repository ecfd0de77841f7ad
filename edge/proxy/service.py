"""What the routes of one proxy share, and the answers under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from acespec.edge.proxy.errors import ApiError, refused
from acespec.edge.proxy.fields import Fields
from acespec.edge.proxy.generation import Ended, Generation, Job
from acespec.edge.proxy.loading import Loading, Served
from acespec.edge.proxy.metrics import Metrics
from acespec.edge.proxy.pool import ClientPool, shutting_down
from acespec.edge.proxy.settings import Settings

ANY_MODEL = ("", "default", "acespec")
"""Names of whatever is served."""


@dataclass(frozen=True, slots=True)
class Service:
    """One proxy."""

    pool: ClientPool
    settings: Settings
    loading: Loading
    metrics: Metrics
    live: set[Generation] = field(default_factory=set)

    def begin(self, jobs: Sequence[Job], on_end: Callable[[Ended], None]) -> Generation:
        """Answers to `jobs` come under way; `end` them."""
        generation = Generation(
            self.pool, jobs, patience_s=self.settings.patience_s, metrics=self.metrics, on_end=on_end
        )
        self.live.add(generation)
        return generation

    async def end(self, generation: Generation) -> None:
        """Nobody reads these answers any more."""
        self.live.discard(generation)
        await generation.close()

    def cut(self) -> None:
        """Tell whoever waits for an answer that none will come."""
        for generation in self.live:
            generation.abort(shutting_down())

    def take_model(self, fields: Fields, served: Served) -> str:
        """Take `model` and `draft_model`; the name of the model that answers.

        Raises:
            ApiError: another one is asked for.
        """
        asked = fields.text("model")
        if asked not in (*ANY_MODEL, served.card.model, self.settings.model):
            raise ApiError(
                f"model {asked!r} is not served here, '{served.card.model}' is",
                status=404,
                param="model",
                code="model_not_found",
            )
        drafting = fields.text("draft_model")
        if drafting and drafting != self.settings.draft_model:
            raise refused(
                f"draft_model {drafting!r} is not at hand, {self.settings.draft_model or 'none'} is: "
                "start the proxy with --draft-model",
                "draft_model",
                "model_not_found",
            )
        return served.card.model


def with_room(job: Job, served: Served, param: str) -> Job:
    """`job` with as many tokens at most as the model has room for.

    Raises:
        ApiError: the prompt alone is too long.
    """
    room = served.card.max_length - len(job.ids)
    if len(job.ids) > served.card.max_prompt or room < 1:
        raise refused(
            f"{param}: the prompt has {len(job.ids)} tokens, this model takes {served.card.max_prompt}: shorten it",
            param,
            "context_length_exceeded",
        )
    most = min(job.turn.max_tokens, room)
    return replace(job, turn=replace(job.turn, max_tokens=most, min_tokens=min(job.turn.min_tokens, most)))
