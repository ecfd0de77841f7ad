"""Options that `generate` and `chat` share. Each has an environment variable and a key in the config file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from acespec.proto.command_line import CONFIG_HELP, load_config

DRAFTERS = ("none", "ngram", "mlx", "gguf", "torch", "hybrid", "hybrid:gguf", "hybrid:torch")
CONTROLLERS = ("rate", "confidence", "ucb", "fixed:4")
TREES = ("off", "siblings:4", "on")
ON_OUTAGE = ("wait", "draft", "fail")
DOCTOR_READS = ("chat", "generate", "proxy")
"""The doctor looks into settings that it is not named for: those of the commands that it is asked about."""

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_TREE = "siblings:4"

LINK = "Verifier and link"
MODEL = "Models and drafting"
SAMPLING = "Sampling"
FORMAT = "Output format (one of them)"
MAX_TOP_LOGPROBS = 20
REPLAY = "Replayed drafters (with --model replay)"


def _load_config(ctx: typer.Context, _param: typer.CallbackParam, value: Path | None) -> Path | None:
    if not ctx.resilient_parsing:
        load_config(ctx, value, shared=True, relatives={"doctor": DOCTOR_READS})
    return value


def _one_of(*words: str) -> Callable[[str], list[str]]:
    """Completion by known words; other values are allowed too."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def _models(incomplete: str) -> list[str]:
    from acespec.models.sources import SOURCES

    return [name for name in SOURCES if name.startswith(incomplete)]


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help=f"{CONFIG_HELP} Keys in front of all tables hold for every command; see acespec init.",
        envvar="ACESPEC_CONFIG",
        is_eager=True,
        callback=_load_config,
        show_default=False,
    ),
]
"""Faults of the file wait until it is known what is asked for: the doctor has to be able to name them."""
Json = Annotated[bool, typer.Option("--json", help="One JSON value on stdout.", envvar="ACESPEC_JSON")]

Verifier = Annotated[
    str | None,
    typer.Option(help="Address of the verifier, HOST:PORT.", envvar="ACESPEC_VERIFIER", rich_help_panel=LINK),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Plain text instead of TLS.", envvar="ACESPEC_INSECURE", rich_help_panel=LINK),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        help="PEM certificates to trust instead of the system's.", envvar="ACESPEC_TLS_CA", rich_help_panel=LINK
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        help="Bearer key. Others can see a command line: prefer --api-key-file.",
        envvar="ACESPEC_API_KEY",
        show_envvar=False,
        rich_help_panel=LINK,
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(help="File whose first line is the bearer key.", envvar="ACESPEC_API_KEY_FILE", rich_help_panel=LINK),
]
TargetRate = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Wanted tokens/s; 0 = no hurry. Default: the operator's.",
        envvar="ACESPEC_TARGET_RATE",
        rich_help_panel=LINK,
    ),
]
OutageTimeout = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="Seconds without the verifier after which a running turn is given up.",
        envvar="ACESPEC_OUTAGE_TIMEOUT",
        rich_help_panel=LINK,
    ),
]
OnOutage = Annotated[
    str,
    typer.Option(
        help="While the verifier is out of reach: wait, draft (go on alone and show it as a guess) or fail.",
        envvar="ACESPEC_ON_OUTAGE",
        rich_help_panel=LINK,
        autocompletion=_one_of(*ON_OUTAGE),
    ),
]

Model = Annotated[
    str,
    typer.Option(
        help="The target, for its tokenizer: a name, owner/name, folder or GGUF file.",
        autocompletion=_models,
        envvar="ACESPEC_MODEL",
        rich_help_panel=MODEL,
    ),
]
DrafterKind = Annotated[
    str,
    typer.Option(
        "--drafter",
        help="none, ngram, mlx, gguf, torch or hybrid; with --model replay also replay, useless, hostile.",
        envvar="ACESPEC_DRAFTER",
        autocompletion=_one_of(*DRAFTERS),
        rich_help_panel=MODEL,
    ),
]
DraftProfile = Annotated[
    str,
    typer.Option(help="Replayed drafters: whose speed; see docs/replay.md.", rich_help_panel=REPLAY),
]
Acceptance = Annotated[
    str,
    typer.Option(
        help="Drafter replay: how often it is right: 0.8, or by depth 0.8,0.7,.., or a trace file.",
        rich_help_panel=REPLAY,
    ),
]
ReplayIds = Annotated[
    Path | None,
    typer.Option(help="Replayed drafters: the verifier's --replay-ids.", rich_help_panel=REPLAY),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        help="Model of the mlx, gguf, torch and hybrid drafters; its tokenizer may differ.",
        envvar="ACESPEC_DRAFT_MODEL",
        rich_help_panel=MODEL,
    ),
]
NumDraftTokens = Annotated[
    str,
    typer.Option(
        help="Most unverified tokens ahead: a number, or auto.",
        envvar="ACESPEC_NUM_DRAFT_TOKENS",
        rich_help_panel=MODEL,
    ),
]
ControllerName = Annotated[
    str | None,
    typer.Option(
        "--controller",
        help="What decides the draft: rate, confidence, ucb or fixed:N. Default: rate, or fixed:N if "
        "--num-draft-tokens is a number N.",
        envvar="ACESPEC_CONTROLLER",
        autocompletion=_one_of(*CONTROLLERS),
        rich_help_panel=MODEL,
    ),
]
DraftTreeShape = Annotated[
    str,
    typer.Option(
        "--draft-tree",
        help="Shape of drafts: off (a chain), siblings:K (a chain, K guesses at each place), on (a tree: faster where "
        "the verifier is slow, for three times the drafting).",
        envvar="ACESPEC_DRAFT_TREE",
        autocompletion=_one_of(*TREES),
        rich_help_panel=MODEL,
    ),
]
MaxKvSize = Annotated[
    int,
    typer.Option(min=16, help="Longest window of the draft model, in tokens.", rich_help_panel=MODEL),
]
DraftThreads = Annotated[
    int,
    typer.Option(
        min=1,
        help="CPU threads of a draft model in llama.cpp or torch; more than there are idle cores is much slower.",
        envvar="ACESPEC_DRAFT_THREADS",
        rich_help_panel=MODEL,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        help="Write every decision, draft, message and commit into this file; see acespec trace show.",
        envvar="ACESPEC_TRACE",
        rich_help_panel=MODEL,
    ),
]
Offline = Annotated[
    bool,
    typer.Option("--offline", help="Fetch no model.", envvar="ACESPEC_OFFLINE", rich_help_panel=MODEL),
]
SystemPrompt = Annotated[
    str | None,
    typer.Option(help="System message of the chat.", envvar="ACESPEC_SYSTEM_PROMPT", rich_help_panel=MODEL),
]

Temperature = Annotated[
    float,
    typer.Option(
        "--temp",
        "--temperature",
        min=0.0,
        max=100.0,
        help="0 = the likeliest token.",
        envvar="ACESPEC_TEMP",
        rich_help_panel=SAMPLING,
    ),
]
TopP = Annotated[
    float,
    typer.Option(min=0.0, max=1.0, help="1 = off.", envvar="ACESPEC_TOP_P", rich_help_panel=SAMPLING),
]
TopK = Annotated[int, typer.Option(min=0, help="0 = off.", envvar="ACESPEC_TOP_K", rich_help_panel=SAMPLING)]
MinP = Annotated[
    float,
    typer.Option(min=0.0, max=1.0, help="0 = off.", envvar="ACESPEC_MIN_P", rich_help_panel=SAMPLING),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=2**64 - 1, help="Default: a random one.", envvar="ACESPEC_SEED", rich_help_panel=SAMPLING),
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "-m",
        min=1,
        max=2**31 - 1,
        help="Most tokens of an answer.",
        envvar="ACESPEC_MAX_TOKENS",
        rich_help_panel=SAMPLING,
    ),
]
MinTokens = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**31 - 1,
        help="Neither an end token nor a stop text ends the first so many tokens.",
        envvar="ACESPEC_MIN_TOKENS",
        rich_help_panel=SAMPLING,
    ),
]
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", help="The model's own end tokens do not end the answer.", rich_help_panel=SAMPLING),
]
Logprobs = Annotated[
    bool,
    typer.Option("--logprobs", help="With --json: log probabilities of the tokens.", rich_help_panel=SAMPLING),
]
TopLogprobs = Annotated[
    int,
    typer.Option(
        min=0, max=MAX_TOP_LOGPROBS, help="With --logprobs: likeliest tokens beside each.", rich_help_panel=SAMPLING
    ),
]
Choices = Annotated[
    int,
    typer.Option("--choices", "-n", min=1, max=128, help="Answers, each of its own seed.", rich_help_panel=SAMPLING),
]
JsonSchema = Annotated[
    str | None,
    typer.Option(help="The answer satisfies this schema: a file, or JSON.", rich_help_panel=FORMAT),
]
JsonObject = Annotated[
    bool,
    typer.Option("--json-object", help="The answer is a JSON object.", rich_help_panel=FORMAT),
]
Regex = Annotated[
    str | None,
    typer.Option(help="The answer as a whole matches this expression.", rich_help_panel=FORMAT),
]
Grammar = Annotated[
    Path | None,
    typer.Option(help="The answer follows the grammar in this file, Lark or GBNF.", rich_help_panel=FORMAT),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", help="Text that ends the answer; may be repeated.", rich_help_panel=SAMPLING),
]
RepetitionPenalty = Annotated[
    float,
    typer.Option(min=1e-6, help="1 = off.", envvar="ACESPEC_REPETITION_PENALTY", rich_help_panel=SAMPLING),
]
FrequencyPenalty = Annotated[
    float,
    typer.Option(help="0 = off.", envvar="ACESPEC_FREQUENCY_PENALTY", rich_help_panel=SAMPLING),
]
PresencePenalty = Annotated[
    float,
    typer.Option(help="0 = off.", envvar="ACESPEC_PRESENCE_PENALTY", rich_help_panel=SAMPLING),
]
