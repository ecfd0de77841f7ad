"""Output equality: B1 to B8 of the list of behaviours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from scipy import stats

from acespec.cloud.runner import PAGE
from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.proto.sampling import processed, propose
from acespec.proto.sampling_params import SamplingParams
from tests.behaviours.engine import (
    GREEDY,
    HOT,
    KINDS,
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
)
from tests.cloud.torch_runners import VOCAB, block, kv_of, same_bits, table, text
from tests.tiny import ModelType

FAMILIES: tuple[ModelType, ...] = ("llama", "qwen2", "qwen3")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_b01_text_equals_plain_decoding_at_every_draft_length(family: ModelType, kind: str) -> None:
    """Greedy text equals plain decoding for every D in 0..16, batch size and drafter, log probabilities included."""
    wanted = [ask(5 + 3 * (n % 4), n % 4, max_tokens=20) for n in range(17)]
    for members in ([0, 5, 16], range(17)):
        engine = Engine(target(family))
        for depth in members:
            answer = plain(wanted[depth], family)
            engine.open(wanted[depth], drafters(wanted[depth], answer, depth)[kind])
        engine.run()
        for depth, session in zip(members, engine.sessions.values(), strict=True):
            assert session.answer == plain(wanted[depth], family), depth


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_b02_no_evaluation_score_moves(share: float) -> None:
    """A multiple-choice score over fixed prompts, reasoning first, is the same with drafts as without."""
    letters = (40, 41, 42, 43)
    choose = SamplingParams(logit_bias=tuple((letter, 100.0) for letter in letters))
    keys = [letters[n * n % 4] for n in range(12)]

    def choice(number: int, drafted: bool) -> int:
        question = ask(12 + number, number, max_tokens=10)
        known = plain(question)
        drafter = guesses(question, known, 6, share)
        reasons = run_alone(question, drafter)[0].tokens if drafted else list(known.tokens)
        verdict = Ask((*question.prompt, *reasons), choose, max_tokens=1)
        return run_alone(verdict, lambda _: chain(letters))[0].tokens[0] if drafted else plain(verdict).tokens[0]

    alone = [choice(number, False) for number in range(12)]
    assert [choice(number, True) for number in range(12)] == alone
    assert set(alone) <= set(letters)
    assert 0 < sum(a == b for a, b in zip(alone, keys, strict=True)) < 12, "a score that can move"


@pytest.mark.parametrize("length", [1, 2, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1])
def test_b03_the_first_token_is_the_same_with_and_without_a_drafter(length: int) -> None:
    """The token that prefill draws has the bits of plain decoding, drafts being there already or not."""
    wanted = ask(length, length, max_tokens=3)
    for kind, drafter in drafters(wanted, plain(wanted), 2).items():
        engine = Engine()
        session = engine.open(wanted, drafter)
        engine.draft()
        engine.run()
        assert session.answer == plain(wanted), kind


@pytest.mark.parametrize("hit", [1, 4, PAGE - 1, PAGE, PAGE + 1, 100, 2 * PAGE])
def test_b04_prefill_after_a_cache_hit_equals_cold_prefill(hit: int) -> None:
    """KV, tokens and log probabilities after a hit of any length have the bits of a cold prefill."""
    length = max(1, hit - 7)
    first = ask(length, 3, max_tokens=hit - length + 1)
    said = plain(first)
    second = Ask((*first.prompt, *said.tokens[:-1], *text(170 - hit, 9)), max_tokens=8)
    known = bare_loop(second, reference())
    cold = kv_of(reference(), tuple(range(3)), 170)
    engine = Engine()
    engine.open(first, guesses(first, said, 4, 0.5))
    engine.run()
    session = engine.open(second, guesses(second, known, 4, 0.5))
    engine.step()
    while session.turn.prefilling:
        engine.step()
    assert session.turn.hold is not None
    warm = kv_of(target(), session.turn.hold.table, 170)
    engine.run()
    assert session.answer == known
    assert session.totals.cached_tokens == hit
    assert same_bits(warm, cold)


@pytest.mark.parametrize("params", [GREEDY, HOT], ids=["greedy", "hot"])
def test_b05_batch_mates_do_not_matter(params: SamplingParams) -> None:
    """A request's rows have the same bits alone and in a crowd that prefills, drafts trees and errs."""
    wanted = ask(30, 1, params, max_tokens=30)
    alone = run_alone(wanted, guesses(wanted, plain(wanted), 5, 0.6))[0].answer
    engine = Engine()
    session = engine.open(wanted, guesses(wanted, plain(wanted), 5, 0.6))
    for mate in range(9):
        other = ask(10 + 30 * (mate % 5), 50 + mate, (GREEDY, HOT)[mate % 2], max_tokens=4 + 5 * mate)
        known = plain(other)
        engine.open(other, (adversarial(other, known, 6), guesses(other, known, 9, 0.5), None)[mate % 3])
    engine.run()
    assert session.answer == alone == plain(wanted)
    assert max(len(step.parts) for step in engine.steps) >= 8


# -- B6 --------------------------------------------------------------------------------------------------------------

FEW = 8
"""Ids that the target of B6 may say; the rest of its rows are padding."""
WARM = SamplingParams(temperature=1.6)
OWN = np.random.default_rng(4).standard_normal(FEW).astype(np.float32) * 2
"""The logits of a drafter that has a mind of its own."""

Guess = Callable[[int, int], int]
"""What is drafted first, by seed and position."""


@cache
def with_shared_noise(seed: int, position: int) -> int:
    return propose(OWN, WARM, seed, position, 1, vocab_size=FEW)[0][0]


def constant(seed: int, position: int) -> int:
    return 3


def ranks(session: Session, tokens: Sequence[int], favourites: Sequence[int]) -> list[float]:
    """Where each token lies in its own distribution, by the model's own logits, the drafter's favourites first: uniform
    in 0..1 if the token was drawn from it (the probability integral transform, made continuous by uniform numbers)."""
    whole = (*session.wanted.prompt, *session.tokens)
    (rows,) = reference(vocab=FEW).logits([block(table(0), 0, whole[:-1])])
    dice = np.random.default_rng(session.wanted.seed)
    found = []
    for row, token in zip(rows, tokens, strict=True):
        weights = np.exp(processed(row, WARM, (), 0, FEW).astype(np.float64))
        below = weights[list(favourites[: favourites.index(token)])].sum()
        found.append(float((below + dice.random() * weights[token]) / weights.sum()))
    return found


def p_value(found: list[float]) -> float:
    return float(stats.chisquare(np.histogram(found, 16, (0.0, 1.0))[0]).pvalue)


@pytest.mark.parametrize(("guess", "bushy"), [(with_shared_noise, True), (constant, False)])
def test_b06_samples_follow_the_targets_distribution(guess: Guess, bushy: bool) -> None:
    """Tokens that come under drafts, 2,000 for each drafter, are drawn from the model's softmax, by chi-square."""

    def drafter(seed: int) -> Drafter:
        def propose_nodes(tokens: Sequence[int]) -> Nodes:
            path = [guess(seed, len(tokens) + depth) for depth in range(3)]
            side = [(-1, t) for t in range(FEW) if t != path[0]] if bushy else []
            return [*chain(path), *side]

        return propose_nodes

    engine = Engine(target(vocab=FEW))
    for seed in range(20):
        engine.open(Ask((5,), WARM, seed, 100, top_logprobs=None), drafter(seed))
    engine.run()
    sessions = list(engine.sessions.values())
    assert sum(session.totals.accepted_tokens for session in sessions) > 60
    order = [int(t) for t in np.argsort(-OWN)] if guess is with_shared_noise else [3, 0, 1, 2, 4, 5, 6, 7]
    assert p_value([u for s in sessions for u in ranks(s, s.tokens, order)]) > 1e-4
    # A rule that lets one wrong draft in twelve pass fails the same test.
    lenient = [[guess(s.wanted.seed, n) if n % 12 == 0 else t for n, t in enumerate(s.tokens, 1)] for s in sessions]
    assert p_value([u for s, told in zip(sessions, lenient, strict=True) for u in ranks(s, told, order)]) < 1e-4


@pytest.mark.parametrize("temperature", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_b07_a_drafter_that_is_the_target_is_never_rejected(family: ModelType, temperature: float) -> None:
    """A second copy of the target that drafts with the shared noise has every draft accepted, at any temperature."""
    wanted = ask(20, 7, SamplingParams(temperature=temperature, top_p=0.98), max_tokens=36)
    own = reference(family)

    def itself(tokens: Sequence[int]) -> Nodes:
        path = list(tokens)
        for _ in range(6):
            (rows,) = own.logits([block(table(0), 0, path, len(path) - 1)])
            path.append(propose(rows[-1], wanted.params, wanted.seed, len(path), 1, vocab_size=VOCAB)[0][0])
        return chain(path[len(tokens) :])

    session, _ = run_alone(wanted, itself, target(family))
    assert session.answer == plain(wanted, family)
    assert session.totals.accepted_tokens == session.totals.draft_tokens >= 25


SETTINGS = [
    GREEDY,
    SamplingParams(temperature=0.2, repetition_penalty=1.5),
    SamplingParams(temperature=1.0, top_k=5, frequency_penalty=1.0),
    SamplingParams(temperature=2.5, min_p=0.05, presence_penalty=1.5),
    SamplingParams(temperature=0.9, top_p=0.6, logit_bias=((11, 6.0), (12, 5.0))),
]


@pytest.mark.parametrize("params", SETTINGS)
def test_b08_ngram_drafts_leave_the_text_alone_at_any_settings(params: SamplingParams) -> None:
    """The n-gram drafter over a text that repeats itself changes no token, whatever the sampler is set to."""
    wanted = Ask(tuple(text(9, 2)) * 4, params, 5, 40)
    drafter = NgramDrafter()
    drafter.begin(TurnContext(params, wanted.seed, len(wanted.prompt), VOCAB))

    def copy(tokens: Sequence[int]) -> Nodes:
        path = list(tokens)
        drafter.commit(path[len(wanted.prompt) :], len(wanted.prompt))
        while len(path) < len(tokens) + 6:
            found = drafter.propose(path)
            path.append(found[0].token if found else path[-9])
        return chain(path[len(tokens) :])

    session, _ = run_alone(wanted, copy)
    assert session.answer == plain(wanted)
    assert session.totals.draft_tokens > 0


def test_b08_answers_are_compared_in_full() -> None:
    """The comparison of all these tests sees one wrong token and one wrong log probability."""
    known = plain(ask(9))
    assert Answer((*known.tokens[:-1], 1), known.logprobs) != known
    assert Answer(known.tokens, (*known.logprobs[:-1], known.logprobs[0])) != known
