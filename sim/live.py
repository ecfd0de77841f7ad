"""A scenario on the live stack: a replaying verifier process, a link process and a real client for every edge.

Users, seeds, text, accuracy and figures are the world's own; gRPC, TCP, the shaped link and the time are real. What
follows from the clock of this machine rather than from the scenario: how late the processes are woken.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from acespec.cloud.serve import REPLAY_PAGE_BYTES
from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import CHAIN, tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.drafters.replay import REPLAY_KINDS
from acespec.edge.drafters.replay_accuracy import read_accuracy
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto.errors import AcespecError, Unavailable, UsageError
from acespec.sim.live_edge import Account, LiveClock, LiveEdge
from acespec.sim.live_link import LiveLink, live_link
from acespec.sim.processes import free_port, serving
from acespec.sim.result_text import LIVE
from acespec.sim.world.ground import Ground, edge_link, scenario_text
from acespec.sim.world.place import Place
from acespec.sim.world.result import Result, Traffic
from acespec.sim.world.scenario import Scenario, Value
from acespec.sim.world.strategies.registry import params_of
from acespec.sim.world.tally import make_result

STRATEGIES = ("plain", "ours")
MOST_EDGES = 32
"""Each has a link process of its own."""
GRACE_S = 20.0
"""How long cancelled turns may take to end."""
TICK_S = 0.005

Progress = Callable[[float], None]


def check_live(scenario: Scenario) -> None:
    """Raises UsageError if `scenario` cannot run live."""
    name = scenario.strategy.name
    params_of(scenario.strategy)
    if name not in STRATEGIES:
        raise UsageError(f"strategy {name} exists in virtual time only: with --live choose {' or '.join(STRATEGIES)}")
    if scenario.drafter.kind not in REPLAY_KINDS:
        kinds = ", ".join(REPLAY_KINDS)
        raise UsageError(f"drafter {scenario.drafter.kind} exists in virtual time only: with --live choose {kinds}")
    if scenario.load.edges > MOST_EDGES:
        raise UsageError(f"scenario load edges is {scenario.load.edges}: with --live it must be at most {MOST_EDGES}")


def run_live(scenario: Scenario, progress: Progress | None = None) -> Result:
    """Run `scenario` in real time; turns that still run at its end are cancelled.

    Raises:
        UsageError: it cannot run live.
        ProcessFailed: the verifier or a link did not start.
        ProtocolError: a client could not be served.
    """
    check_live(scenario)
    params = params_of(scenario.strategy)
    with tempfile.TemporaryDirectory(prefix="acespec-live-") as name, ExitStack() as links:
        folder, address = Path(name), f"127.0.0.1:{free_port()}"
        with serving("acespec.cloud.cli", verifier_arguments(scenario, params, address), folder / "verifier.log"):
            edges = [
                links.enter_context(live_link(edge_link(scenario, number), address, folder, f"edge{number}"))
                for number in range(scenario.load.edges)
            ]
            world = LiveWorld(scenario, params, edges)
            asyncio.run(world.run(progress))
            links.close()  # Now the logs are complete.
            return world.result()


def verifier_arguments(scenario: Scenario, params: Mapping[str, Value], address: str) -> list[str]:
    """How `acespec-verifier` is called for a scenario."""
    target = scenario.target
    host, _, port = address.rpartition(":")
    options: dict[str, object] = {
        "host": host,
        "port": port,
        "backend": "replay",
        "profile": target.profile,
        "vocab": target.vocab,
        "background": target.background,
        "free-run": params["free_run"] or target.free_run,
        "target-rate": target.target_rate,
        "max-draft": target.max_draft,
        "max-rows": target.max_rows or "auto",
        "max-sessions": scenario.load.edges + 1,
    }
    if (ids := target.ids or read_accuracy(scenario.drafter.acceptance)[1]) is not None:
        options["replay-ids"] = ids
    if target.kv_pages is not None:
        options["kv-memory"] = target.kv_pages * REPLAY_PAGE_BYTES / 2**30
    return ["serve", "--insecure", *(part for key, value in options.items() for part in (f"--{key}", str(value)))]


class LiveWorld:
    """Places whose agenda follows the real time, with a real client at each."""

    def __init__(self, scenario: Scenario, params: Mapping[str, Value], links: Sequence[LiveLink]) -> None:
        self._scenario = scenario
        self._params = params
        self._links = links
        self._ground = Ground(scenario, scenario_text(scenario))
        self._agenda, self._recorder = self._ground.agenda, self._ground.recorder
        self._accounts: list[list[Account]] = [[] for _ in links]
        self._tokenizer = replay_tokenizer(scenario.target.vocab)

    async def run(self, progress: Progress | None) -> None:
        """Until all turns are over, or the scenario's duration is. Raises what a client raises."""
        clock = LiveClock(self._agenda)
        edges = [self._edge(number, clock) for number in range(len(self._links))]
        clock.begin()  # Making the clients takes a while.
        try:
            async with asyncio.timeout(None) as patience, asyncio.TaskGroup() as tasks:
                for edge in edges:
                    tasks.create_task(edge.run())
                await self._pass_time(clock, progress)
                for edge in edges:
                    edge.leave()
                patience.reschedule(asyncio.get_running_loop().time() + GRACE_S)
        except* TimeoutError:
            raise Unavailable(
                f"turns went on {GRACE_S:g} s after they were cancelled: does the link carry any?"
            ) from None
        except* AcespecError as faults:
            raise _first(faults) from None

    def result(self) -> Result:
        """What came of it. The links have ended: their logs are complete."""
        for record, accounts in zip(self._recorder.edges, self._accounts, strict=True):
            for totals in (account.totals for account in accounts):
                record.steps += totals.verify_steps
                record.drafted_steps += totals.verify_steps - totals.plain_steps
                record.drafted += totals.received_nodes
                record.verified += totals.draft_tokens
                record.accepted += totals.accepted_tokens
                self._recorder.steps += totals.verify_steps
                self._recorder.busy_ns += totals.verify_us * 1000
        return make_result(
            self._scenario,
            self._recorder,
            [_traffic(link, accounts) for link, accounts in zip(self._links, self._accounts, strict=True)],
            version=version("acespec"),
            digest=LIVE,
            virtual_s=self._agenda.now,
            events=0,
            wall_s=self._agenda.now,
        )

    async def _pass_time(self, clock: LiveClock, progress: Progress | None) -> None:
        duration = self._scenario.duration_s
        while self._ground.running and self._agenda.now < duration:
            clock.tick()
            if progress is not None:
                progress(min(1.0, self._agenda.now / duration))
            await asyncio.sleep(TICK_S)

    def _edge(self, number: int, clock: LiveClock) -> LiveEdge:
        place = self._ground.place(number, self._links[number].spec, on_done=_nothing)
        rate = float(self._params["target_rate"])
        edge = LiveEdge(place, self._client(place), clock, None if rate < 0 else rate, self._accounts[number].append)
        self._ground.settle(place, lambda: edge)
        return edge

    def _client(self, place: Place) -> Client:
        drafter = REPLAY_KINDS[self._scenario.drafter.kind](place.text, place.accuracy, place.token_s)
        plain = self._scenario.strategy.name == "plain"
        controller = FixedController(0) if plain else make_controller(str(self._params["draft"]))
        shape = CHAIN if plain else tree_shape(str(self._params["tree"]))
        endpoint = Endpoint(self._links[place.number].address, insecure=True)
        return Client(endpoint, self._tokenizer, drafter, controller, shape=shape)


def _nothing() -> None:
    """The run itself looks who is still running."""


def _traffic(link: LiveLink, accounts: Sequence[Account]) -> Traffic:
    """Bytes and packets from the link's log; messages and their payload as the client counted them."""
    log = link.summary()
    return Traffic(
        log.up_wire,
        log.down_wire,
        log.up_packets,
        log.down_packets,
        sum(account.wire.up_payload_bytes for account in accounts),
        sum(account.wire.down_payload_bytes for account in accounts),
        sum(account.wire.up_messages for account in accounts),
        sum(account.wire.down_messages for account in accounts),
    )


def _first(faults: BaseExceptionGroup[AcespecError]) -> AcespecError:
    """One error is what a command can say: the first of those that clients met."""
    error: AcespecError | BaseExceptionGroup[AcespecError] = faults
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
