"""Cache and rollback: B9 to B18 of the list of behaviours."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from acespec.cloud.runner import PAGE, Block, Drawn, pages_for
from acespec.cloud.scheduler import Step
from acespec.cloud.torch_backend.config import parse_config
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.cloud.turn import Limits
from acespec.edge.drafters.base import TurnContext, never
from acespec.edge.drafters.torch_drafter import TorchDrafter, load_torch
from acespec.proto.errors import UnsupportedModel
from acespec.proto.messages import FinishReason
from acespec.proto.timing_profile import TimingProfile
from tests.behaviours.engine import (
    GREEDY,
    HOT,
    KINDS,
    LENGTH,
    Answer,
    Ask,
    Drafter,
    Engine,
    Nodes,
    Session,
    adversarial,
    ask,
    bare_loop,
    chain,
    drafters,
    guesses,
    plain,
    reference,
    run_alone,
    target,
    verify_blocks,
)
from tests.cloud.torch_runners import VOCAB, kv_of, poison, same_bits, tiny_folder


def right_then_wrong(wanted: Ask, answer: Answer, right: int, depth: int) -> Drafter:
    """Each draft is right for `right` tokens and then wrong."""
    whole = (*wanted.prompt, *answer.tokens)

    def propose(tokens: Sequence[int]) -> Nodes:
        coming = whole[len(tokens) : len(tokens) + depth]
        return chain([t if at < right else (t + 1) % VOCAB for at, t in enumerate(coming)])

    return propose


@pytest.mark.parametrize("right", [0, 1, 3])
def test_b09_a_rejection_leaves_the_committed_length(right: int) -> None:
    """After a rejection the KV ends at the committed length: not at 0, not D further on."""
    wanted = ask(60, 1, max_tokens=30)
    engine = Engine()
    session = engine.open(wanted)
    turn = session.turn
    engine.step()
    session.drafter = right_then_wrong(wanted, plain(wanted), right, 8)
    while turn.finish is None:
        length = len(turn.tokens)
        done = engine.step()
        assert done is not None
        (part,) = done.parts
        assert part.block.start == length - 1
        assert len(turn.tokens) == length + min(right, len(part.block.tokens) - 1) + 1
        if turn.hold is not None:
            assert turn.cached == len(turn.tokens) - 1
            assert len(turn.hold.table) == pages_for(len(turn.tokens))
    assert session.answer == plain(wanted)


def test_b10_rows_of_a_batch_keep_their_own_lengths_and_positions() -> None:
    """With 0, 1, 4 and 16 drafts accepted in one batch every session has its own length, and KV (rotated by position)
    with the bits of a session alone."""
    asks = [ask(40 + 20 * n, n, max_tokens=60) for n in range(4)]
    engine = Engine()
    sessions = [
        engine.open(wanted, right_then_wrong(wanted, plain(wanted), right, 16))
        for wanted, right in zip(asks, (0, 1, 4, 16), strict=True)
    ]
    while any(s.turn.prefilling for s in sessions) or len(sessions[3].tokens) < 30:
        engine.step()
    gains = [1 + right for right in (0, 1, 4, 16)]
    before = [len(s.turn.tokens) for s in sessions]
    engine.step()
    assert [len(s.turn.tokens) - length for s, length in zip(sessions, before, strict=True)] == gains
    for session in sessions:
        assert session.turn.hold is not None
        assert session.turn.cached == len(session.turn.tokens) - 1
        written = kv_of(target(), session.turn.hold.table, session.turn.cached)
        bare_loop(replace(session.wanted, max_tokens=len(session.tokens)), reference())
        assert same_bits(written, kv_of(reference(), tuple(range(8)), session.turn.cached))
    engine.run()
    assert [s.answer for s in sessions] == [plain(wanted) for wanted in asks]


@pytest.mark.parametrize("right", [0, 2, 5])
def test_b11_the_draft_cache_gains_exactly_what_was_accepted_and_one(right: int) -> None:
    """After a round the drafter's own KV cache holds accepted + 1 new entries, with the logits of a fresh one."""
    wanted = ask(20, 2, max_tokens=25)
    whole = (*wanted.prompt, *plain(wanted).tokens)
    drafter, fresh = TorchDrafter(tiny_folder()), load_torch(tiny_folder(), 256)
    drafter.begin(TurnContext(GREEDY, 0, len(wanted.prompt), VOCAB))
    state = drafter._state
    assert state is not None
    fed: list[int] = []
    feed = state._feed  # type: ignore[attr-defined]
    state._feed = lambda ids, rows: (fed.append(len(ids)), feed(ids, rows))[1]  # type: ignore[attr-defined]
    sizes: list[int] = []

    def propose(tokens: Sequence[int]) -> Nodes:
        """Five passes along a path that is right for so long; what the model says does not matter here."""
        fed.clear()
        drafter.propose(list(tokens))
        sizes.append(drafter.cached)
        assert sum(fed) == len(tokens) if len(sizes) == 1 else sum(fed) <= 2, "nothing is computed twice"
        expected = fresh.logits_after(list(tokens), never)
        found = state.logits_after(list(tokens), never)
        assert found is not None
        assert expected is not None
        np.testing.assert_allclose(found, expected, atol=2e-4)
        coming = whole[len(tokens) : len(tokens) + 5]
        path = [t if at < right else (t + 1) % VOCAB for at, t in enumerate(coming)]
        for depth in range(1, len(path)):
            drafter.propose([*tokens, *path[:depth]])
        return chain(path)

    engine = Engine()
    session = engine.open(wanted)
    engine.step()
    session.drafter = propose
    engine.run()
    assert session.answer == plain(wanted)
    accepted = [min(right, len(block.tokens) - 1) for block in verify_blocks(engine, session)]
    assert np.diff(sizes).tolist() == [count + 1 for count in accepted[: len(sizes) - 1]]
    drafter.close()


@pytest.mark.parametrize("kind", KINDS)
def test_b12_stale_kv_is_never_read(kind: str) -> None:
    """NaN in every slot that holds nothing committed, before each step, changes no bit of the output."""
    wanted = ask(50, 4, HOT, max_tokens=40)
    runner = target(pages=12)
    engine = Engine(runner)
    session = engine.open(wanted, drafters(wanted, plain(wanted), 7)[kind])

    def spoil(_: Step) -> None:
        if session.turn.hold is not None:
            held = session.turn.hold.table
            poison(runner, held, session.turn.cached)
            poison(runner, tuple(page for page in range(runner.pages) if page not in held), 0)

    engine.run(spoil)
    assert session.answer == plain(wanted)


def test_b12_the_poison_would_be_noticed() -> None:
    """One poisoned slot that is committed ruins the output: the test above can fail."""
    wanted = ask(50, 4, HOT, max_tokens=40)
    runner = target(pages=12)
    engine = Engine(runner)
    session = engine.open(wanted)
    engine.step()
    engine.step()
    assert session.turn.hold is not None
    poison(runner, session.turn.hold.table, session.turn.cached - 1)
    engine.run()
    assert session.answer != plain(wanted)


@pytest.mark.parametrize("seed", [0])
def test_b13_page_accounting_returns_to_its_baseline(seed: int) -> None:
    """After any mix of accepted, rejected, finished and aborted turns every page is free or cached again."""
    dice = random.Random(seed)
    runner = target(pages=14)
    engine = Engine(runner, quantum_s=0.1)
    asks = [ask(dice.choice([5, 40, 64, 100]), n % 5, max_tokens=dice.randrange(1, 30)) for n in range(20)]
    for wanted in asks:
        kind = dice.choice(KINDS)
        engine.open(wanted, drafters(wanted, plain(wanted), dice.randrange(1, 9))[kind], principal=f"p{seed % 2}")
    pages = engine.table.pages
    aborted = dice.sample(list(engine.sessions.values()), 6)
    for _ in range(2000):
        if not engine.table.turns:
            break
        engine.step()
        assert pages.free + pages.cached + pages.in_use == runner.pages
        if aborted and dice.random() < 0.2:
            engine.close(aborted.pop())
    assert not engine.table.turns
    for session in engine.sessions.values():
        assert session.finish in (FinishReason.LENGTH, FinishReason.CANCELLED)
        expected = plain(session.wanted).tokens
        assert tuple(session.tokens) == expected[: len(session.tokens)]
        assert session.finish is FinishReason.CANCELLED or len(session.tokens) == len(expected)
    assert pages.in_use == 0
    assert engine.leftover == 0


def settings(**changes: object) -> dict[str, object]:
    """A served model's config.json with something changed."""
    return {**json.loads((tiny_folder() / "config.json").read_text(encoding="utf-8")), **changes}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 128}, "use_sliding_window"),
        (
            {"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]},
            "sliding_attention.*layer_types",
        ),
        ({"layer_types": ["chunked_attention"] * 2}, "chunked_attention"),
        ({"sliding_window": 128}, "sliding_window 128"),
        ({"model_type": "mistral", "sliding_window": 128}, "mistral"),
        ({"model_type": "gemma3_text", "sliding_window": 128}, "gemma3_text"),
    ],
)
def test_b14_sliding_windows_are_refused_at_load(changes: dict[str, object], named: str) -> None:
    """A cache that forgets cannot be rolled back, so a model with sliding-window layers is refused by name."""
    with pytest.raises(UnsupportedModel, match=named):
        parse_config(settings(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 128, "max_window_layers": 2},
        {"model_type": "qwen3", "layer_types": ["full_attention"] * 2, "sliding_window": None},
        {"sliding_window": LENGTH},
    ],
)
def test_b14_windows_that_are_off_are_none(changes: dict[str, object]) -> None:
    """A window that is switched off, or as long as the context, refuses nothing."""
    assert parse_config(settings(**changes)).layers == 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        *(
            ({"model_type": kind}, kind)
            for kind in ("mamba", "mamba2", "jamba", "bamba", "falcon_h1", "qwen3_next", "rwkv")
        ),
        ({"model_type": "recurrent_gemma"}, "recurrent_gemma"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention.*layer_types"),
        ({"model_type": "qwen3", "layer_types": ["mamba", "full_attention"]}, "mamba.*layer_types"),
    ],
)
def test_b15_recurrent_and_hybrid_models_are_refused_at_load(changes: dict[str, object], named: str) -> None:
    """State that has no positions cannot be cut back, so recurrent and hybrid models are refused by name."""
    with pytest.raises(UnsupportedModel, match=named):
        parse_config(settings(**changes))


@pytest.mark.parametrize("length", [PAGE - 3, 2 * PAGE, LENGTH - 20])
@pytest.mark.parametrize("share", [0.8])
def test_b16_positions_hold_where_pages_chunks_and_the_context_end(length: int, share: float) -> None:
    """A text that crosses a page, a prefill chunk or runs into the context's end has the bits of plain decoding."""
    wanted = ask(length, 6, max_tokens=40)
    engine = Engine()
    session = engine.open(wanted, guesses(wanted, plain(wanted), 16, share))
    engine.run()
    assert session.answer == plain(wanted)
    assert session.finish is FinishReason.LENGTH
    assert len(wanted.prompt) + len(session.tokens) == min(length + 40, LENGTH)


def test_b17_one_sessions_drafts_never_fill_up_for_others() -> None:
    """A session that floods the verifier with drafts takes nobody's room, and what it held goes with it."""
    limits = Limits(max_nodes=32, max_length=LENGTH)
    wanted = ask(10, 1, max_tokens=20)
    answer = plain(wanted)
    hog = ask(12, 2, max_tokens=400)
    engine = Engine(limits=limits)
    flood = engine.open(hog, lambda tokens: [(-1, (tokens[-1] + n) % VOCAB) for n in range(1, 200)])
    for _ in range(12):
        session = engine.open(wanted, guesses(wanted, answer, 4))
        while session.finish is None:
            engine.step()
            assert all(turn.nodes <= 2 * limits.max_nodes for turn in engine.table.turns)
        assert session.answer == answer
        assert session.totals.accepted_tokens == session.totals.draft_tokens >= 15
        engine.table.forget(session.key)
    engine.close(flood)
    engine.table.forget(flood.key)
    assert not engine.table.turns
    assert not engine.table._acceptances


class Faulty:
    """A runner whose cache positions are wrong by one for every block behind a draft round."""

    def __init__(self, runner: TorchRunner, shift: int) -> None:
        self._runner, self._shift = runner, shift
        self._drafted = False
        self.vocab_size, self.max_length, self.pages = runner.vocab_size, runner.max_length, runner.pages
        self.numerics_id, self.exact = runner.numerics_id, runner.exact

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        moved = [replace(b, start=b.start + self._shift) if self._drafted else b for b in blocks]
        self._drafted = self._drafted or any(len(b.tokens) > 1 and b.sample_from == 0 for b in blocks)
        return self._runner.step(moved)

    def timing(self) -> TimingProfile:
        return self._runner.timing()


@pytest.mark.parametrize(("shift", "equal"), [(0, True), (1, False), (-1, False)])
def test_b18_a_wrong_cache_position_fails_the_equality_test(shift: int, equal: bool) -> None:
    """Greedy equality holds after draft rounds, and sees a cache position that is one off."""
    wanted = ask(20, 3, max_tokens=24)
    session, _ = run_alone(wanted, guesses(wanted, plain(wanted), 4, 0.5), Faulty(target(), shift))  # type: ignore[arg-type]
    assert (session.tokens == list(plain(wanted).tokens)) is equal


def test_b18_equality_is_asked_after_every_round() -> None:
    """With the draft of each round wrong at another depth, every commit continues the plain text."""
    wanted = ask(20, 3, max_tokens=60)
    whole = [*wanted.prompt, *plain(wanted).tokens]
    dice = random.Random(1)

    def propose(tokens: Sequence[int]) -> Nodes:
        assert list(tokens) == whole[: len(tokens)]
        coming = whole[len(tokens) : len(tokens) + 8]
        bad = dice.randrange(8)
        return chain([(t + (at == bad)) % VOCAB for at, t in enumerate(coming)])

    session: Session = run_alone(wanted, propose)[0]
    assert session.answer == plain(wanted)
    assert adversarial(wanted, plain(wanted), 2)(wanted.prompt)
