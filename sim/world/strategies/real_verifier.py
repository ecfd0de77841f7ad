"""The real verifier in the world: session hosts, scheduler and turn table over a replayed target."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from acespec.cloud.admission import SERVED, Admission
from acespec.cloud.backend import SessionKey
from acespec.cloud.replay.runner import MAX_LENGTH, PAGES, ReplayRunner
from acespec.cloud.runner import Drawn, longest_sequence
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.step import Step
from acespec.cloud.stops import TextDecoder
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.models.replay_tokenizer import replay_model
from acespec.proto import noise
from acespec.proto.errors import ProtocolError, ServerFault
from acespec.proto.messages import PROTOCOL_VERSION, Draft, EdgeMessage, ModelCard, Open
from acespec.proto.nodes import count_nodes
from acespec.sim.narrow_stream import NarrowStream
from acespec.sim.virtual_server import Observer, VirtualServer
from acespec.sim.world.recorder import Recorder
from acespec.sim.world.world import World

FINGERPRINT = b"replayed-ids----"
GRACE_S = 1e9
"""Streams outlive outages in the world: nobody is given up."""
ID_BYTES = 16


class RealVerifier:
    """Serves the streams of all edges. `free_run` and `target_rate` as `acespec-verifier serve` takes them."""

    def __init__(self, world: World, free_run: FreeRun, target_rate: float) -> None:
        target = world.scenario.target
        model = ReplayModel(world)
        runner = model.runner
        limits = Limits(max_draft=target.max_draft, max_length=longest_sequence(runner))
        table = TurnTable(runner, limits=limits, decoder=_no_text, free_run=free_run, max_rows=world.max_rows)
        card = _card(runner, limits, free_run)
        self._server = VirtualServer(
            world.agenda,
            table,
            Admission(card, _no_encoder, target_rate),
            model,
            grace_s=GRACE_S,
            max_sessions=len(world.places) + 1,
            observer=Reporter(world.recorder),
        )

    def accept(self, stream: NarrowStream[bytes]) -> None:
        """Take an edge's stream."""
        self._server.accept(stream.up, stream.down, _refused)


class ReplayModel:
    """Draws the world's text in the time that its profile says."""

    def __init__(self, world: World) -> None:
        target = world.scenario.target
        self.runner = ReplayRunner(
            world.text,
            target.timing(),
            vocab_size=target.vocab,
            max_length=MAX_LENGTH,
            pages=target.kv_pages or PAGES,
            background=target.background,
        )
        self.draw = self.runner.draw

    def seconds(self, step: Step) -> float:
        """See `Model.seconds`."""
        return self.runner.step_s(step.blocks)


class Reporter(Observer):
    """Tells the recorder what steps did and what edges sent."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._codecs: dict[SessionKey, int] = {}

    def heard(self, key: SessionKey, message: EdgeMessage) -> None:
        """See `Observer.heard`."""
        if isinstance(message, Open):
            self._codecs[key] = message.codec
        elif isinstance(message, Draft) and message.nodes:
            self._recorder.drafted(edge_of(key), count_nodes(message.nodes, self._codecs[key]))

    def begun(self, step: Step, seconds: float) -> None:
        """See `Observer.begun`."""
        self._recorder.step(step.rows, step.sessions, seconds)

    def ended(self, step: Step, drawn: Sequence[Drawn]) -> None:
        """See `Observer.ended`."""
        for part, samples in zip(step.parts, drawn, strict=True):
            block = part.block
            if samples.tokens and not block.sample_from:
                self._recorder.verified(edge_of(part.turn.spec.session), len(block.tokens) - 1, len(samples.tokens) - 1)


def session_id(edge: int) -> bytes:
    """The id of an edge's session."""
    return edge.to_bytes(ID_BYTES, "big")


def edge_of(key: SessionKey) -> int:
    """Whose session this is."""
    return int.from_bytes(key[1], "big")


def _card(runner: ReplayRunner, limits: Limits, free_run: FreeRun) -> ModelCard:
    return ModelCard(
        model=replay_model(runner.vocab_size),
        vocab_size=runner.vocab_size,
        fingerprint=FINGERPRINT,
        eos_ids=(runner.vocab_size - 1,),
        max_length=limits.max_length,
        noise_version=noise.NOISE_VERSION,
        noise_vector=noise.test_vector(),
        numerics_id=runner.numerics_id,
        max_draft=limits.max_draft,
        max_nodes=limits.max_nodes,
        max_prompt=limits.max_length - 1,
        served=SERVED,
        server_version=version("acespec"),
        protocol_version=PROTOCOL_VERSION,
        exact=True,
        free_run=free_run.value,
    )


def _refused(error: ProtocolError) -> None:
    """An honest edge is never refused: if it is, the run is worth nothing."""
    raise error


def _no_encoder(text: str) -> list[int]:
    raise ServerFault(f"a replayed target has no tokenizer for {text!r}")


def _no_text() -> TextDecoder:
    raise ServerFault("a replayed target has no text")
