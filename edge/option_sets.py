"""Options that several commands take, each in one place with its default; `expanding` gives a command sets of them.

Nothing heavy is imported here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from acespec.edge import cli_options as opt
from acespec.edge.outage_policy import OUTAGE_TIMEOUT_S
from acespec.edge.output_format import output_format
from acespec.proto.messages import OutputFormat
from acespec.proto.sampling_params import SamplingParams

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which verifier and which models."""

    verifier: opt.Verifier = None
    insecure: opt.Insecure = False
    tls_ca: opt.TlsCa = None
    api_key: opt.ApiKey = None
    api_key_file: opt.ApiKeyFile = None
    model: opt.Model = opt.DEFAULT_MODEL
    drafter: opt.DrafterKind = "ngram"
    draft_model: opt.DraftModel = None
    draft_profile: opt.DraftProfile = "m3-0.6b-4bit"
    acceptance: opt.Acceptance = "0.8"
    replay_ids: opt.ReplayIds = None
    num_draft_tokens: opt.NumDraftTokens = "auto"
    controller: opt.ControllerName = None
    draft_tree: opt.DraftTreeShape = opt.DEFAULT_TREE
    max_kv_size: opt.MaxKvSize = 4096
    draft_threads: opt.DraftThreads = 1
    offline: opt.Offline = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeOptions(ModelOptions):
    """The same, and how turns go."""

    target_rate: opt.TargetRate = None
    outage_timeout: opt.OutageTimeout = OUTAGE_TIMEOUT_S
    on_outage: opt.OnOutage = "wait"
    trace: opt.TraceFile = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn, and what ends an answer besides its length."""

    temp: opt.Temperature = 0.0
    top_p: opt.TopP = 1.0
    top_k: opt.TopK = 0
    min_p: opt.MinP = 0.0
    repetition_penalty: opt.RepetitionPenalty = 1.0
    frequency_penalty: opt.FrequencyPenalty = 0.0
    presence_penalty: opt.PresencePenalty = 0.0
    seed: opt.Seed = None
    min_tokens: opt.MinTokens = 0
    stop: opt.Stop = None

    @property
    def params(self) -> SamplingParams:
        """For the verifier."""
        return SamplingParams(
            self.temp,
            self.top_k,
            self.top_p,
            self.min_p,
            self.repetition_penalty,
            self.frequency_penalty,
            self.presence_penalty,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """What the text has to look like."""

    json_schema: opt.JsonSchema = None
    json_object: opt.JsonObject = False
    regex: opt.Regex = None
    grammar: opt.Grammar = None

    @property
    def format(self) -> OutputFormat:
        """For the verifier. Raises UsageError: see `output_format`."""
        return output_format(self.json_schema, self.json_object, self.regex, self.grammar)


def expanding(**defaults: object) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """A command whose parameters of a set's type become the set's options, in their place.

    `defaults` replace those of the sets for this command.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        hints = get_type_hints(command, include_extras=True)
        sets: dict[str, type[Any]] = {
            n: kind for n, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
        }
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name in sets:
                parameters += _options_of(sets[name], defaults)
            else:
                parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(command)
        def run(**given: Any) -> R:
            whole = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in sets.items()}
            return command(**whole, **given)

        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what Typer reads
        return run

    return decorate


def _options_of(kind: type[Any], defaults: dict[str, object]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(field.name, field.default),
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
