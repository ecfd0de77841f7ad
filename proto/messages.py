"""The messages of the contract as frozen values: what the state machines of both ends speak.

`wire.py` turns them into bytes and back. Lengths count tokens; a position is an absolute index in the sequence
(prompt included); durations name their unit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from acespec.proto.sampling_params import SamplingParams

PROTOCOL_VERSION = 1
"""Raised with every change that an older end would misread."""

DIGEST_BYTES = 16
SESSION_ID_BYTES = 16
FINGERPRINT_BYTES = 16


class FinishReason(enum.IntEnum):
    """Why a turn ended; values are those of the wire."""

    STOP_TOKEN = 1
    STOP_STRING = 2
    LENGTH = 3
    CANCELLED = 4

    @property
    def openai(self) -> str:
        """The name that OpenAI's API has for it: `stop`, `length` or `cancelled`."""
        return {1: "stop", 2: "stop", 3: "length", 4: "cancelled"}[self.value]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A prefix that the server may still hold: its length in tokens and its 16-byte digest."""

    length: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What the generated text has to look like: one of these at most, none leaves it free.

    Attributes:
        json_schema: JSON text of a schema that the text has to satisfy.
        json_object: any JSON object.
        regex: an expression that the whole text has to match.
        grammar: a context-free grammar, in Lark's syntax or in GBNF.
    """

    json_schema: str = ""
    json_object: bool = False
    regex: str = ""
    grammar: str = ""

    def asked(self) -> list[str]:
        """Names of the fields that are set."""
        return [name for name in self.__slots__ if getattr(self, name)]


@dataclass(frozen=True, slots=True)
class Unserved:
    """Sampling controls that have their field on the wire, so that a verifier can refuse them by name."""

    n: int = 1
    best_of: int = 1
    prompt_logprobs: bool = False
    suffix: str = ""

    def asked(self) -> list[str]:
        """Names of the fields that differ from their defaults."""
        default = Unserved()
        return [name for name in self.__slots__ if getattr(self, name) != getattr(default, name)]


@dataclass(frozen=True, slots=True)
class Open:
    """Starts or resumes a turn: the sequence is the longest kept checkpoint plus the appended ids.

    `append` is compressed (proto/prompt.py); `target_rate` is in tokens/s, None leaves it to the operator.
    `top_logprobs` counts the alternatives to report for each token; None reports no log probabilities at all.
    """

    session_id: bytes
    epoch: int
    fingerprint: bytes
    prompt_len: int
    seed: int
    max_tokens: int
    params: SamplingParams = SamplingParams()
    append: bytes = b""
    keep: tuple[Checkpoint, ...] = ()
    model: str = ""
    version: int = PROTOCOL_VERSION
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    target_rate: float | None = None
    codec: int = 1
    ignore_eos: bool = False
    top_logprobs: int | None = None
    format: OutputFormat = field(default_factory=OutputFormat)
    extra: Unserved = field(default_factory=Unserved)


@dataclass(frozen=True, slots=True)
class Opened:
    """Answers `Open`: how much of the sequence the server held, and on what terms it serves."""

    epoch: int
    kept: int
    numerics_id: str
    granted_rate: float
    max_draft: int
    max_nodes: int
    exact: bool
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft nodes, or an acknowledgement alone. `nodes` is packed (proto/nodes.py)."""

    received: int
    nodes: bytes = b""
    base: int | None = None
    step: bool = False
    held_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """What a turn cost the verifier.

    `verify_us` is the turn's share of step time, by rows; `cached_tokens` are prompt tokens whose KV was there already.
    """

    verify_steps: int = 0
    plain_steps: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    verify_us: int = 0
    received_nodes: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens that are final. `tokens` is packed (proto/tokens.py) and follows the matched node.

    `logprobs` is packed (proto/logprobs.py): an item for each token of the commit, matched ones included, if asked for.
    """

    length: int
    digest: int
    tokens: bytes = b""
    matched: int | None = None
    ack: int = 0
    held_us: int = 0
    verify_us: int = 0
    load: int = 0
    next_in_ms: int = 0
    finish: FinishReason | None = None
    text_end: int | None = None
    totals: Totals | None = None
    logprobs: bytes = b""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ends the turn; answered by a final `Commit` unless it had ended already."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a `Pong` on an idle stream."""


@dataclass(frozen=True, slots=True)
class Pong:
    """Answers a `Ping`."""


EdgeMessage = Open | Draft | Cancel | Ping
CloudMessage = Opened | Commit | Pong


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a verifier serves and within which limits."""

    model: str
    vocab_size: int
    fingerprint: bytes
    eos_ids: tuple[int, ...]
    max_length: int
    noise_version: int
    noise_vector: bytes
    numerics_id: str
    max_draft: int
    max_nodes: int
    max_prompt: int
    served: tuple[str, ...]
    server_version: str
    protocol_version: int
    exact: bool
    free_run: str
