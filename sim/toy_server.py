"""A verifier of a rehearsal: a toy target with little room for everything, so that bounds are met often."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acespec.cloud.admission import SERVED, Admission
from acespec.cloud.runner import PAGE, Block, Drawn, longest_sequence
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.step import Step
from acespec.cloud.stops import TextDecoder
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.proto.errors import ServerFault
from acespec.proto.messages import PROTOCOL_VERSION, ModelCard
from acespec.sim.agenda import Agenda
from acespec.sim.schedule import Setup
from acespec.sim.toy_target import ToyRunner
from acespec.sim.virtual_server import Observer, VirtualServer

VOCAB = 16
FINGERPRINT = b"toy-target-16-id"
MAX_DRAFT = 8
MAX_NODES = 24
MAX_SESSIONS = 4
MAX_LENGTH = 400


def longest(setup: Setup) -> int:
    """Most positions of a sequence on a verifier of `setup`."""
    return min(MAX_LENGTH, setup.pages * PAGE)


class ToyServer(VirtualServer):
    """Serves `runner`. `on_step` is called after each step."""

    def __init__(self, agenda: Agenda, setup: Setup, on_step: Callable[[], None]) -> None:
        self.runner = ToyRunner(VOCAB, MAX_LENGTH, setup.pages)
        super().__init__(
            agenda,
            TurnTable(
                self.runner,
                limits=Limits(MAX_DRAFT, MAX_NODES, setup.run_ahead, MAX_LENGTH),
                decoder=_no_text,
                free_run=FreeRun(setup.policy),
            ),
            Admission(_card(self.runner, setup), _no_encoder),
            _ToyModel(self.runner, setup.step),
            grace_s=setup.grace,
            max_sessions=MAX_SESSIONS,
            observer=_AfterStep(on_step),
        )


class _ToyModel:
    """Steps of the toy target, at a prescribed speed."""

    def __init__(self, runner: ToyRunner, step_s: float) -> None:
        self._runner = runner
        self._step_s = step_s

    def draw(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `Model.draw`."""
        return self._runner.step(blocks)

    def seconds(self, step: Step) -> float:
        """See `Model.seconds`."""
        return self._step_s * (1 + (step.rows + step.prompt_rows) / 32)


class _AfterStep(Observer):
    """Calls `on_step` after each step."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        self._on_step = on_step

    def ended(self, step: Step, drawn: Sequence[Drawn]) -> None:
        """See `Observer.ended`."""
        self._on_step()


def _card(runner: ToyRunner, setup: Setup) -> ModelCard:
    return ModelCard(
        model="toy",
        vocab_size=runner.vocab_size,
        fingerprint=FINGERPRINT,
        eos_ids=(),
        max_length=longest_sequence(runner),
        noise_version=0,
        noise_vector=b"",
        numerics_id=runner.numerics_id,
        max_draft=MAX_DRAFT,
        max_nodes=MAX_NODES,
        max_prompt=longest_sequence(runner) - 1,
        served=SERVED,
        server_version="virtual",
        protocol_version=PROTOCOL_VERSION,
        exact=True,
        free_run=setup.policy,
    )


def _no_encoder(text: str) -> list[int]:
    raise ServerFault(f"the toy target has no tokenizer for {text!r}")


def _no_text() -> TextDecoder:
    raise ServerFault("the toy target has no text")
