"""From a model's name to something that can be served: folder, tokenizer, runner, model card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec

from acespec.cloud.admission import FORMATS, SERVED, Compile
from acespec.cloud.device import RunnerOptions, load_runner
from acespec.cloud.grammar_compiler import GrammarCompiler, missing_library
from acespec.cloud.runner import Runner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.turn import Limits
from acespec.models.store import resolve
from acespec.models.text_stream import TextStream
from acespec.models.tokenizer import Tokenizer
from acespec.proto import noise
from acespec.proto.errors import UsageError
from acespec.proto.messages import PROTOCOL_VERSION, ModelCard


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded target model: what runs it, what reads its ids, and what makes grammars over them, if anything does."""

    name: str
    runner: Runner
    tokenizer: Tokenizer
    compile_format: Compile | None = None

    def decoder(self) -> TextStream:
        """A fresh token-to-text decoder."""
        return TextStream(self.tokenizer)

    def card(self, limits: Limits, free_run: FreeRun, max_prompt: int) -> ModelCard:
        """What the server says of itself."""
        return ModelCard(
            model=self.name,
            vocab_size=self.runner.vocab_size,
            fingerprint=self.tokenizer.fingerprint,
            eos_ids=self.tokenizer.eos_ids,
            max_length=limits.max_length,
            noise_version=noise.NOISE_VERSION,
            noise_vector=noise.test_vector(),
            numerics_id=self.runner.numerics_id,
            max_draft=limits.max_draft,
            max_nodes=limits.max_nodes,
            max_prompt=max_prompt,
            served=(*SERVED, *(FORMATS if self.compile_format else ())),
            server_version=version("acespec"),
            protocol_version=PROTOCOL_VERSION,
            exact=self.runner.exact,
            free_run=free_run.value,
        )


def load_target(
    model: str,
    options: RunnerOptions,
    *,
    offline: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Target:
    """Find, fetch if need be, and load a target for the torch backend.

    Raises:
        UsageError: torch is not installed, or the device is not there.
        ModelError: the model cannot be had or used.
        NumericsError: the self-check failed and `options.allow_inexact` is off.
    """
    if find_spec("torch") is None:
        raise UsageError("the verifier's torch backend needs torch: run pip install 'acespec[verifier]'")
    folder = resolve(model, offline=offline)
    tokenizer = Tokenizer.load(folder)
    say(f"loading {model}")
    runner = load_runner(folder, tokenizer.vocab_size, options)
    return Target(model, runner, tokenizer, None if missing_library() else GrammarCompiler(tokenizer))
