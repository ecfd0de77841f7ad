"""A drafter that floods, and the ages of what it says, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from acespec.bench.brain.study import Setting
from acespec.edge.drafters.base import Candidate
from acespec.edge.drafters.replay import SOURCE, ReplayDrafter, Untimed
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.proto import nodes, wire
from acespec.proto.messages import Draft, EdgeMessage, Open
from acespec.proto.replay_text import ReplayText
from acespec.sim.narrow_stream import NarrowStream
from acespec.sim.world.place import Actor, Place
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.ours import Ours
from acespec.sim.world.strategies.real_edge import RealEdge
from acespec.sim.world.world import World

CLAIM = 0.9
"""Of each guess, given that those before it are wrong."""
MOST_NODES = 1 << 20


class Ages:
    """How old drafts are when the verifier has them. A guess's token id is its number, so that it can be recognised;
    once `vocab` ids are used up, the oldest come again."""

    def __init__(self, vocab: int) -> None:
        self.seconds: list[float] = []
        self._vocab = vocab
        self._made: dict[int, float] = {}
        self._count = self._heard = self._codec = 0

    def make(self, now: float) -> int:
        """A new guess, made now."""
        token = self._count % self._vocab
        self._made[token] = now
        self._count += 1
        return token

    def arrived(self, now: float, data: bytes) -> None:
        """A frame of the edge arrived."""
        self.heard(now, wire.decode_edge(data))

    def heard(self, now: float, message: EdgeMessage) -> None:
        """The same, decoded."""
        if isinstance(message, Open):
            self._heard, self._codec = 0, message.codec
        elif isinstance(message, Draft) and message.nodes:
            found = nodes.unpack(message.nodes, self._heard, self._vocab, MOST_NODES, self._codec)
            self._heard += len(found)
            self.seconds += [now - self._made[node.token] for node in found]


class FloodingDrafter(ReplayDrafter):
    """Has something to say about every place at once; all of it is wrong, and it is sure of it."""

    name = "flooding"

    def __init__(self, text: ReplayText, ages: Ages, clock: Callable[[], float], token_s: float = 0.0) -> None:
        super().__init__(text, DepthAccuracy((0.0,)), token_s, Untimed() if token_s == 0 else None)
        self._ages = ages
        self._clock = clock

    def _guesses(self, path: Sequence[int], k: int) -> list[Candidate]:
        now = self._clock()
        claims = [CLAIM * (1 - CLAIM) ** rank for rank in range(k)]
        return [Candidate(self._ages.make(now), claim, SOURCE) for claim in claims]


class Flood(Ours):
    """`ours` with that drafter."""

    name = "flood"

    def __init__(self, world: World, params: Mapping[str, Value], ages: Ages) -> None:
        super().__init__(world, params)
        self._ages = ages

    def begin(self, place: Place) -> Actor:
        """See `Strategy.begin`."""
        drafter = FloodingDrafter(place.text, self._ages, lambda: place.agenda.now)
        place.agenda.soon(lambda: self._listen(place))
        controller, shape = self._controller(), self._shape()
        return RealEdge(place, self._verifier, controller, shape, drafter, self._rate, self._text.forget)

    def _listen(self, place: Place) -> None:
        stream: NarrowStream[bytes] | None = place.stream  # type: ignore[assignment] # a real edge sends bytes
        if stream is None:
            raise RuntimeError("the edge has no stream after its first turn has begun")
        take = stream.up.on_frame

        def receive(data: bytes) -> None:
            self._ages.arrived(place.agenda.now, data)
            take(data)

        stream.up.on_frame = receive


def world_ages(setting: Setting) -> tuple[Ages, list[float], int]:
    """Run it: the ages, when each token was there, and the bytes that went up."""
    from acespec.bench.brain.drift import Timeline

    scenario = setting.scenario()
    ages = Ages(scenario.target.vocab)
    world = World(scenario, lambda world, params: Flood(world, params, ages))
    times = list(Timeline.watched(world).times)
    return ages, times, sum(each.up_bytes for each in world.traffic())
