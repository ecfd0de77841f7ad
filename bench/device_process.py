"""Runs sections in a process of their own, so that none can take the others' figures with it.

A wrong address makes a GPU unusable for the process that used it, and a wrong loop never ends. So figures leave the
process one by one; a section that failed, fell silent or ran out of time is noted as such, and a fresh process goes on
with the next.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from acespec.bench.device_figures import Figure, Outcome

PATIENCE_S = 120.0
"""Silence after which a section is taken to hang. Compilations and building a model are silent for some seconds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process is to do.

    Attributes:
        profile_out: where the timing profile goes; None: nowhere.
        module: its `sections(profile_out)` opens generators of figures by name.
    """

    sections: tuple[str, ...]
    profile_out: Path | None = None
    module: str = "acespec.bench.device_sections"


@dataclass(frozen=True, slots=True)
class Began:
    """The next section begins."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The section that began last has ended; `error` is empty if it is complete."""

    error: str = ""


Event = Began | Figure | Ended


def work(sender: Connection[Event], plan: Plan) -> None:
    """Run sections one after another, up to the first that fails."""
    # Whatever goes wrong is one section's result. The device may be lost by it, so the rest gets a new process.
    try:
        with importlib.import_module(plan.module).sections(plan.profile_out) as sections:
            for section in plan.sections:
                sender.send(Began())
                for figure in sections[section]():
                    sender.send(figure)
                sender.send(Ended())
    except Exception:  # Whatever a section raises is told as its end; the others must go on.
        sender.send(Ended(traceback.format_exc()))


class Supervisor:
    """Runs a plan until a time is up."""

    def __init__(
        self, plan: Plan, budget_s: float, tell: Callable[[Outcome], None], patience_s: float = PATIENCE_S
    ) -> None:
        """`tell` is called with each section's outcome as it ends."""
        self._plan, self._tell, self._patience_s = plan, tell, patience_s
        self._deadline = time.monotonic() + budget_s

    def run(self) -> list[Outcome]:
        """Outcomes of all sections, in order."""
        outcomes: list[Outcome] = []
        waiting = self._plan.sections
        while waiting and self._left() > 0:
            for outcome in self._process(waiting):
                outcomes.append(outcome)
                self._tell(outcome)
            waiting = self._plan.sections[len(outcomes) :]
        return outcomes + [Outcome(section, error="no time was left for it") for section in waiting]

    def _process(self, sections: Sequence[str]) -> Iterator[Outcome]:
        """Outcomes of what one process got through: at least one."""
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        plan = replace(self._plan, sections=tuple(sections))
        process = context.Process(target=work, args=(sender, plan), daemon=True)
        process.start()
        sender.close()
        try:
            yield from self._watch(receiver, list(sections))
        finally:
            process.kill()
            process.join()
            receiver.close()

    def _watch(self, receiver: Connection[Event], left: list[str]) -> Iterator[Outcome]:
        begun = False
        while left:
            outcome, began = Outcome(left[0]), time.monotonic()
            while isinstance(event := self._event(receiver), Began | Figure):
                begun = True
                if isinstance(event, Figure):
                    outcome.figures.append(event)
            yield _ended(event, outcome, time.monotonic() - began)
            left.pop(0)
            if not begun:
                # What cannot even begin would not begin in another process either.
                yield from (_ended(event, Outcome(section), 0.0) for section in left)
            if not isinstance(event, Ended) or event.error:
                return

    def _event(self, receiver: Connection[Event]) -> Event | str:
        """The next event, or why there is none."""
        patience = min(self._patience_s, self._left())
        try:
            if receiver.poll(max(0.0, patience)):
                event: Event = receiver.recv()
                return event
        except EOFError:
            return "its process ended without a word; see stderr"
        return "time is up" if self._left() <= 0 else f"no sign of life for {self._patience_s:.0f} s"

    def _left(self) -> float:
        return self._deadline - time.monotonic()


def _ended(event: Event | str, outcome: Outcome, seconds: float) -> Outcome:
    outcome.error = event.error if isinstance(event, Ended) else str(event)
    outcome.status = "done" if not outcome.error else "failed" if outcome.error != "time is up" else "cut off"
    outcome.seconds = seconds
    return outcome
