"""Drafters do not say what the target cannot draw yet: ends of text before `min_tokens`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.lm_drafter import LmDrafter
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams

END, VOCAB, PROMPT = 5, 8, [1, 2, 3]


class Eager:
    """Logits that want the text to end."""

    cached = 0

    def logits_after(self, path: Sequence[int], should_stop: Callable[[], bool]) -> NDArray[np.float32]:
        row = np.random.default_rng(len(path)).standard_normal(VOCAB).astype(np.float32)
        row[END] = 30.0
        return row

    def close(self) -> None:
        """Nothing to free."""

    def reset(self) -> None:
        """Nothing to forget."""


def turn(temperature: float, least: int) -> TurnContext:
    return TurnContext(SamplingParams(temperature), 3, len(PROMPT), VOCAB, banned=(END,), min_tokens=least)


def test_the_first_tokens_are_counted_from_the_prompts_end() -> None:
    assert [turn(0.0, 2).banned_at(position) for position in (3, 4, 5)] == [(END,), (END,), ()]


def test_a_model_proposes_what_a_like_minded_target_draws_under_the_ban() -> None:
    source = Eager()
    for temperature in (0.0, 1.0):
        drafter = LmDrafter("lm", lambda: source)  # type: ignore[arg-type, return-value]
        drafter._state = source  # type: ignore[assignment]
        drafter._turn = turn(temperature, 2)
        path = list(PROMPT)
        for at in range(4):
            row = source.logits_after(path, lambda: False)
            banned = (END,) if at < 2 else ()
            drawn = sample(row, SamplingParams(temperature), 3, len(path), vocab_size=VOCAB, banned=banned)
            assert drafter.propose(path)[0].token == drawn
            assert (drawn == END) == (at >= 2)
            path.append(drawn)


def test_the_table_keeps_its_ends_for_later() -> None:
    text = [1, 2, END, 1, 2, END, 1, 2]
    said = {}
    for least in (0, 3):
        drafter = NgramDrafter()
        drafter.begin(TurnContext(SamplingParams(), 3, len(text), VOCAB, banned=(END,), min_tokens=least))
        said[least] = [c.token for c in drafter.propose(text, 3)]
        drafter.close()
    assert said[0][0] == END
    assert END not in said[3]
