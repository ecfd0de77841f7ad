"""The default model through the whole engine: tokens and log probabilities are those of the bare loop.

Prefix hits, trees, company, eviction and recompute, later turns: what tiny models show over many cases, spot-checked on
a real one.
"""

from __future__ import annotations

import pytest

from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.sampling_params import SamplingParams
from tests.behaviours.engine import Ask, Engine, adversarial, bare_loop, guesses

PROMPT = "The ship left the harbour at dawn. Its captain had a map, a compass and no idea where the island was. " * 3
WARM = SamplingParams(temperature=0.7, top_p=0.95)


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_keeps_its_bits_through_pages_trees_and_evictions() -> None:
    folder = resolve("smollm2-135m", offline=True)
    tokenizer = Tokenizer.load(folder)
    prompt = tuple(tokenizer.encode(PROMPT))
    assert 64 < len(prompt) < 100
    asks = [Ask(prompt, params, seed, max_tokens=60) for seed, params in enumerate((SamplingParams(), WARM, WARM))]
    vocab = tokenizer.vocab_size
    reference = TorchRunner.load(folder, vocab_size=vocab, max_length=512)
    answers = [bare_loop(ask, reference) for ask in asks]

    runner = TorchRunner.load(folder, vocab_size=vocab, max_length=256, kv_pages=4)
    engine = Engine(runner, quantum_s=0.05)
    sessions = [
        engine.open(asks[0], guesses(asks[0], answers[0], 6, 0.7, vocab), rate=20.0),
        engine.open(asks[1], adversarial(asks[1], answers[1], 4, vocab), rate=20.0),
        engine.open(asks[2], None, rate=20.0),
    ]
    engine.run()
    assert [session.answer for session in sessions] == answers
    assert engine.table.residency.evictions > 0, "four pages do not hold three sessions"
    assert engine.table.pages.stats.hit > 64, "the prompt is computed once"

    later = Ask((*prompt, *answers[0].tokens, *prompt[:9]), WARM, 7, max_tokens=8)
    before = engine.table.pages.stats.hit
    again = engine.open(later, key=sessions[0].key, epoch=1)
    engine.run()
    assert again.answer == bare_loop(later, reference)
    assert engine.table.pages.stats.hit > before
    assert engine.leftover == 0
