"""Broken links, restarted servers and other replicas: the ids are those of an undisturbed run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace

import pytest

from acespec.cloud.runner import Block, pages_for
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.edge.completion import Completion
from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.edge.drafters.mlx_drafter import MlxDrafter
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.proto.errors import ServerFault
from acespec.proto.messages import FinishReason
from acespec.proto.sampling_params import SamplingParams
from tests.drafters import OracleDrafter
from tests.e2e.local import TRUTH_PAGES, Model, complete, edge, one_at_a_time, tiny_model, verifier
from tests.e2e.relay import Relay

TOKENS = 36
STEP_S = 0.01
TEXT = "for index in range(10):\n    print(index)\nfor index in"
PARAMS = as_sent(SamplingParams(temperature=0.7, top_p=0.95, repetition_penalty=1.1, frequency_penalty=0.2))
REQUEST = TurnRequest(params=PARAMS, seed=21, max_tokens=TOKENS, target_rate=0.0)


_tasks: set[asyncio.Task[object]] = set()


@dataclass
class At:
    """Calls `then` once each time the number of tokens reaches one of `counts`."""

    counts: list[int]
    then: Callable[[], object]
    done: list[int] = field(default_factory=list)

    def __call__(self, tokens: int) -> None:
        while self.counts and tokens >= self.counts[0]:
            self.counts.pop(0)
            self.done.append(tokens)
            self.then()


def prompt_of(model: Model) -> list[int]:
    return model.tokenizer.encode(TEXT)


def truth_of(model: Model) -> tuple[int, ...]:
    return tuple(one_at_a_time(model.runner, prompt_of(model), PARAMS, 21, TOKENS, model.tokenizer.eos_ids))


def make_drafter(kind: str, model: Model) -> Drafter:
    match kind:
        case "ngram":
            return NgramDrafter(None)
        case "mlx":
            return MlxDrafter(model.folder)
        case "oracle":
            return OracleDrafter(truth_of(model), 0.8, start=len(prompt_of(model)))
        case _:
            return QuietDrafter()


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("none", FreeRun.ALWAYS),
        ("none", FreeRun.NEVER),
        ("ngram", FreeRun.IDLE),
        ("mlx", FreeRun.NEVER),
        ("oracle", FreeRun.ALWAYS),
        ("oracle", FreeRun.NEVER),
    ],
)
async def test_a_cut_connection_changes_nothing(kind: str, policy: FreeRun) -> None:
    model = tiny_model("llama")
    async with (
        verifier(model, free_run=policy, step_s=STEP_S) as address,
        Relay(address) as relay,
        edge(relay.address, model, make_drafter(kind, model), 5) as client,
    ):
        cuts = At([3, 14, 30], relay.cut)
        done = await complete(client, prompt_of(model), REQUEST, cuts)
    assert done.token_ids == truth_of(model)
    assert done.reconnects >= 2
    assert relay.connections == done.reconnects + 1
    assert done.resyncs == 0


@pytest.mark.parametrize("kind", ["none", "oracle"])
async def test_the_server_goes_on_while_the_edge_is_away(kind: str) -> None:
    """Everything that was committed into a dead connection comes again, as explicit tokens."""
    model = tiny_model("qwen3")
    async with (
        verifier(model, free_run=FreeRun.ALWAYS, step_s=STEP_S) as address,
        Relay(address) as relay,
        edge(relay.address, model, make_drafter(kind, model), 3) as client,
    ):

        def stall_then_cut() -> None:
            relay.stall()
            _later(0.3, relay.cut)

        done = await complete(client, prompt_of(model), REQUEST, At([8], stall_then_cut))
    assert done.token_ids == truth_of(model)
    assert done.reconnects >= 1


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_dead_link_is_found_by_itself_and_its_late_bytes_are_fenced() -> None:
    """The old connection is not closed, only silent; it delivers everything after the turn has moved on."""
    model = tiny_model("llama")
    async with (
        verifier(model, free_run=FreeRun.ALWAYS, step_s=STEP_S) as address,
        Relay(address) as relay,
        edge(relay.address, model, make_drafter("oracle", model), 3) as client,
    ):
        steps = [relay.stall, relay.flow]
        done = await complete(client, prompt_of(model), REQUEST, At([8, 20], lambda: steps.pop(0)()))
    assert done.token_ids == truth_of(model)
    assert done.reconnects == 1
    assert done.total_s < 15


@pytest.mark.parametrize("last", [1, 12, TOKENS - 1])
async def test_a_draining_server_delivers_the_whole_turn(last: int) -> None:
    """Also when the turn's last token is made while the streams are about to be ended."""
    model = tiny_model("llama")
    server = verifier(model, step_s=0.002, drain_s=10.0)
    address = await server.__aenter__()
    async with edge(address, model) as client:
        drain = At([last], lambda: _start(server.__aexit__(None, None, None)))
        done = await complete(client, prompt_of(model), REQUEST, drain)
        await asyncio.gather(*_tasks)
    assert done.token_ids == truth_of(model)
    assert done.reconnects == 0


@pytest.mark.parametrize("kind", ["none", "mlx"])
async def test_a_restarted_server_takes_the_turn_up(kind: str) -> None:
    """The new process knows nothing of the session: the edge brings all tokens."""
    model = tiny_model("qwen2")
    # No time to drain: good drafts would end the turn within it.
    server = verifier(model, step_s=STEP_S, drain_s=0.0)
    address = await server.__aenter__()
    restarted = []

    async def restart() -> None:
        await server.__aexit__(None, None, None)
        again = verifier(model, step_s=STEP_S, port=int(address.rpartition(":")[2]))
        await again.__aenter__()
        restarted.append(again)

    async with edge(address, model, make_drafter(kind, model), 5) as client:
        done = await complete(client, prompt_of(model), REQUEST, At([15], lambda: _start(restart())))
    await restarted[0].__aexit__(None, None, None)
    assert done.token_ids == truth_of(model)
    assert done.reconnects >= 1


@pytest.mark.parametrize("kind", ["none", "oracle"])
async def test_a_turn_may_wander_between_replicas(kind: str) -> None:
    """From one replica to another and back to the first, which still holds an older state of the session."""
    model = tiny_model("llama")
    runner = TorchRunner.load(model.folder, vocab_size=model.tokenizer.vocab_size)
    twin = Model("llama", model.folder, model.tokenizer, runner)
    async with (
        verifier(model, step_s=STEP_S) as first,
        verifier(twin, step_s=STEP_S) as second,
        Relay(first) as relay,
        edge(relay.address, model, make_drafter(kind, model), 5) as client,
    ):
        done = await complete(client, prompt_of(model), REQUEST, _moves(relay, {8: second, 18: first, 28: second}))
    assert done.token_ids == truth_of(model)
    assert done.reconnects >= 2
    assert runner.numerics_id == model.runner.numerics_id


async def test_a_stop_string_across_the_cut_is_found_by_the_other_replica() -> None:
    model = tiny_model("llama")
    truth = truth_of(model)
    twin = Model(
        "llama", model.folder, model.tokenizer, TorchRunner.load(model.folder, vocab_size=model.tokenizer.vocab_size)
    )
    text = model.tokenizer.decode(truth)
    start = model.tokenizer.decode(truth[:20])
    stop = text[len(start) - 3 : len(start) + 3]
    assert text.index(stop) == len(start) - 3, "the stop string must not occur earlier"
    request = TurnRequest(PARAMS, 21, TOKENS, stop_strings=(stop,), target_rate=0.0)
    runs: list[Completion] = []
    for moves in ([], [19], [20]):
        async with (
            verifier(model, step_s=STEP_S) as first,
            verifier(twin, step_s=STEP_S) as second,
            Relay(first) as relay,
            edge(relay.address, model) as client,
        ):
            targets = dict.fromkeys(moves, second)
            runs.append(await complete(client, prompt_of(model), request, _moves(relay, targets)))
    assert [run.finish for run in runs] == [FinishReason.STOP_STRING] * 3
    assert {run.text for run in runs} == {text[: text.index(stop)]}
    assert len({run.token_ids for run in runs}) == 1
    assert [run.reconnects > 0 for run in runs] == [False, True, True]


class Faulty(TorchRunner):
    """Breaks in its `fail_at`-th step and all later ones, until `fail_at` is moved."""

    steps = 0
    fail_at = 10**9

    def step(self, blocks: list[Block]) -> list[tuple[int, ...]]:  # type: ignore[override]
        self.steps += 1
        if self.steps >= self.fail_at:
            raise RuntimeError("planted")
        return super().step(blocks)


async def test_a_step_that_breaks_ends_the_turn_which_can_be_asked_for_again() -> None:
    good = tiny_model("llama")
    runner = Faulty.load(good.folder, vocab_size=good.tokenizer.vocab_size)
    runner.fail_at = 12
    model = Model("llama", good.folder, good.tokenizer, runner)
    async with verifier(model) as address, edge(address, model) as client:
        with pytest.raises(ServerFault, match="planted"):
            await complete(client, prompt_of(model), REQUEST)
        runner.fail_at = 10**9
        done = await complete(client, prompt_of(model), REQUEST)
    assert done.token_ids == truth_of(good)


async def test_more_sessions_than_memory_holds() -> None:
    """Those that find no KV pages wait for those that have them, and nobody is told anything but the truth."""
    good = tiny_model("llama")
    pages = TRUTH_PAGES + pages_for(len(prompt_of(good)) + 8) + 1
    runner = TorchRunner.load(good.folder, vocab_size=good.tokenizer.vocab_size, kv_pages=pages)
    model = Model("llama", good.folder, good.tokenizer, runner)
    request = replace(REQUEST, max_tokens=8)

    async def twice(address: str) -> None:
        async with edge(address, model) as client:
            for _ in range(2):
                assert (await complete(client, prompt_of(model), request)).token_ids == truth_of(good)[:8]

    async with verifier(model, step_s=0.0) as address:
        await asyncio.gather(*(twice(address) for _ in range(6)))


async def test_the_slot_of_a_session_that_has_left_goes_to_the_next_one() -> None:
    """Although its grace period is not over."""
    model = tiny_model("llama")
    request = replace(REQUEST, max_tokens=8)
    async with verifier(model, step_s=0.0, max_sessions=2) as address:
        for _ in range(5):
            async with edge(address, model) as client:
                assert (await complete(client, prompt_of(model), request)).token_ids == truth_of(model)[:8]


def _later(seconds: float, then: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(seconds, then)


def _start(work: Coroutine[None, None, object]) -> None:
    task = asyncio.create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _moves(relay: Relay, targets: dict[int, str]) -> At:
    order = list(targets.values())

    def move() -> None:
        relay.target = order.pop(0)
        relay.cut()

    return At(list(targets), move)
