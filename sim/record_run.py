"""The body of `acespec-sim record`: two real models, prompts, and a file of traces."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from acespec.edge.drafters.lm_models import LanguageModel, find_language_model
from acespec.edge.drafters.logit_source import NARROW, LogitSource
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import Mismatch, UsageError
from acespec.proto.sampling_params import SamplingParams
from acespec.sim.record import Sampling, as_trace, record
from acespec.sim.record_prompts import Prompt, load_prompts
from acespec.sim.trace_file import Trace, TraceSource, write_traces

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What `record` was given; see its `--help`."""

    target: str
    drafter: str
    prompts: tuple[str, ...]
    temperatures: tuple[float, ...] = (0.0,)
    target_runtime: str = "gguf"
    drafter_runtime: str = "gguf"
    max_tokens: int = 96
    max_kv: int = 2048
    seed: int = 1
    offline: bool = False


def record_to(out: Path, options: RecordOptions, tell: Callable[[str], None]) -> tuple[Trace, ...]:
    """Record all prompts at all temperatures and write them to `out`; `tell` hears a line for each.

    Raises:
        UsageError: an option makes no sense, a runtime is missing, or the file cannot be written.
        ModelError: a model or a prompt set cannot be had.
        Mismatch: the two models have different tokenizers.
    """
    prompts = [prompt for name in options.prompts for prompt in load_prompts(name, offline=options.offline)]
    traces = tuple(_recorded(options, prompts, tell))
    write_traces(out, traces)
    tell(f"{out}: {len(traces)} traces, {sum(map(len, traces))} tokens, {out.stat().st_size} bytes")
    return traces


def _recorded(options: RecordOptions, prompts: list[Prompt], tell: Callable[[str], None]) -> Iterator[Trace]:
    target = _found(options.target_runtime, options.target, options)
    drafter = _found(options.drafter_runtime, options.drafter, options)
    tokenizer = _common_tokenizer(target, drafter)
    with closing(_steady(target)) as targets, closing(_steady(drafter)) as drafts:
        for number, prompt in enumerate(prompts, 1):
            ids = _prompt_ids(tokenizer, prompt, options)
            for temperature in options.temperatures:
                began = time.monotonic()
                trace = _one(targets, drafts, ids, tokenizer, prompt, temperature, options)
                tell(_line(trace, number, len(prompts), time.monotonic() - began))
                yield trace


def _steady(model: LanguageModel) -> LogitSource:
    """The model's logits, the same whatever was asked before and however quick the machine is."""
    source = model.load()
    source.widest_pass = NARROW
    return source


def _one(
    target: LogitSource,
    drafter: LogitSource,
    ids: list[int],
    tokenizer: Tokenizer,
    prompt: Prompt,
    temperature: float,
    options: RecordOptions,
) -> Trace:
    how = Sampling(SamplingParams(temperature=temperature), options.seed, tokenizer.vocab_size)
    said, views = record(target, drafter, ids, how, options.max_tokens, tokenizer.eos_ids)
    source = TraceSource(
        target=f"{Path(options.target).name}, {options.target_runtime}",
        drafter=f"{Path(options.drafter).name}, {options.drafter_runtime}",
        temperature=temperature,
        seed=options.seed,
        prompt_set=prompt.prompt_set,
        prompt=prompt.name,
        category=prompt.category,
        prompt_len=len(ids),
        vocab_size=tokenizer.vocab_size,
        ended=said[-1] in tokenizer.eos_ids,
    )
    return as_trace(source, said, views)


def _found(runtime: str, name: str, options: RecordOptions) -> LanguageModel:
    return find_language_model(runtime, name, max_kv=options.max_kv, offline=options.offline)


def _common_tokenizer(target: LanguageModel, drafter: LanguageModel) -> Tokenizer:
    tokenizer, other = target.tokenizer(), drafter.tokenizer()
    if tokenizer.fingerprint != other.fingerprint:
        raise Mismatch(
            f"{target.name} has tokenizer {tokenizer.fingerprint.hex()}, {drafter.name} has "
            f"{other.fingerprint.hex()}: record a pair of one family"
        )
    return tokenizer


def _prompt_ids(tokenizer: Tokenizer, prompt: Prompt, options: RecordOptions) -> list[int]:
    ids = tokenizer.encode(tokenizer.apply_chat([{"role": "user", "content": prompt.text}]))
    if len(ids) + options.max_tokens > options.max_kv:
        raise UsageError(
            f"prompt {prompt.name} of {prompt.prompt_set} has {len(ids)} ids: raise --max-kv-size above "
            f"{len(ids) + options.max_tokens}"
        )
    return ids


def _line(trace: Trace, number: int, count: int, seconds: float) -> str:
    source = trace.source
    hits = trace.ranks.count(0) / len(trace)
    return (
        f"{number}/{count} {source.prompt_set} {source.prompt} ({source.category}), T={source.temperature:g}: "
        f"{len(trace)} tokens, {hits:.3f} accepted, {seconds:.1f} s"
    )
