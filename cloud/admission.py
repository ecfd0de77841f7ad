"""What this verifier serves: every `Open` is checked here, and refused by name where it asks for more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acespec.cloud.backend import SessionKey, TurnSpec
from acespec.cloud.draw_rule import Constraint
from acespec.proto import nodes, prompt
from acespec.proto.errors import InvalidRequest, Mismatch
from acespec.proto.golomb import Codec
from acespec.proto.logprobs import MAX_TOP
from acespec.proto.messages import PROTOCOL_VERSION, ModelCard, Open, Opened, OutputFormat

SERVED = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "seed",
    "max_tokens",
    "min_tokens",
    "stop_ids",
    "stop_strings",
    "ignore_eos",
    "logprobs",
    "top_logprobs",
)
"""Request fields that every verifier honours; `Describe` lists them."""
FORMATS = tuple(OutputFormat.__slots__)
"""Those of structured output, which is served where formats can be compiled."""

Compile = Callable[[OutputFormat, Sequence[int]], Constraint]
"""Makes the constraint of a format for a turn that may end with these ids; raises `ProtocolError`, naming the field."""

MAX_KEEP = 16
"""Checkpoints in one `Open`; each is looked for in all sessions of the principal."""
MAX_STOPS = 64
MAX_STOP_STRING = 256


class Admission:
    """Checks requests against a model card and turns them into turns.

    Args:
        encode: the target's tokenizer.
        default_rate: tokens/s that a session is granted if it asks for nothing.
        max_rate: tokens/s that it is granted at most; 0 is no bound.
        compile_format: makes constraints; None: structured output is not served.
        no_formats: what to say of structured output that is not served.
    """

    def __init__(
        self,
        card: ModelCard,
        encode: Callable[[str], list[int]],
        default_rate: float = 20.0,
        max_rate: float = 0.0,
        compile_format: Compile | None = None,
        no_formats: str = "not served by this verifier; leave it out",
    ) -> None:
        self._card = card
        self._encode = encode
        self._default_rate = default_rate
        self._max_rate = max_rate
        self._compile_format = compile_format
        self._no_formats = no_formats

    @property
    def vocab_size(self) -> int:
        """Token ids lie below this."""
        return self._card.vocab_size

    def check(self, request: Open) -> None:
        """Refuse what this verifier does not serve.

        Raises:
            Mismatch: protocol version, model or tokenizer differ; both are named.
            InvalidRequest: a field outside what is served, by name.
        """
        card = self._card
        if request.version != PROTOCOL_VERSION:
            raise Mismatch(
                f"protocol version {request.version} at the edge, {PROTOCOL_VERSION} here: upgrade the older one"
            )
        if request.model and request.model != card.model:
            raise Mismatch(f"model '{request.model}' was asked for, '{card.model}' is served here")
        if request.fingerprint != card.fingerprint:
            raise Mismatch(
                f"tokenizers differ: {request.fingerprint.hex()} at the edge, {card.fingerprint.hex()} for "
                f"'{card.model}' here; point the edge's --model at the served model"
            )
        self._check_served(request)
        if request.codec not in set(Codec):
            codecs = ", ".join(str(codec.value) for codec in Codec)
            raise InvalidRequest(f"codec {request.codec}: not served by this verifier; use one of {codecs}")
        self._check_ids("stop_ids", request.stop_ids)
        self._check_ids("logit_bias", [token for token, _ in request.params.logit_bias])
        if len(request.stop_ids) + len(request.stop_strings) > MAX_STOPS:
            raise InvalidRequest(f"stop: more than {MAX_STOPS} stop ids and strings")
        if any(len(s) > MAX_STOP_STRING for s in request.stop_strings):
            raise InvalidRequest(f"stop: a stop string is longer than {MAX_STOP_STRING} characters")
        if len(request.keep) > MAX_KEEP:
            raise InvalidRequest(f"keep: {len(request.keep)} checkpoints, at most {MAX_KEEP} are looked for")
        if request.max_tokens < 1:
            raise InvalidRequest("max_tokens must be at least 1")
        if request.min_tokens > request.max_tokens:
            raise InvalidRequest(f"min_tokens {request.min_tokens} is above max_tokens {request.max_tokens}")
        if request.top_logprobs is not None and request.top_logprobs > MAX_TOP:
            raise InvalidRequest(f"top_logprobs {request.top_logprobs}: at most {MAX_TOP} are served")

    def turn(self, key: SessionKey, request: Open, kept: Sequence[int]) -> TurnSpec:
        """The turn that `request` asks for, over the `kept` tokens and what it appends.

        Raises:
            BadFrame: the appended ids do not decode.
            InvalidRequest: the sequence is empty or too long, or the output format is not valid.
        """
        card = self._card
        room = card.max_prompt - len(kept)
        append = prompt.unpack_ids(request.append, card.vocab_size, room, encode=self._encode) if request.append else []
        tokens = (*kept, *append)
        if not tokens:
            raise InvalidRequest("the prompt is empty: send at least one token")
        if not 1 <= request.prompt_len <= len(tokens):
            raise InvalidRequest(f"prompt_len {request.prompt_len} is outside the sequence of {len(tokens)} tokens")
        generated = len(tokens) - request.prompt_len
        if generated >= request.max_tokens:
            raise InvalidRequest(f"the sequence already has {generated} of max_tokens {request.max_tokens}")
        end_ids = (*(() if request.ignore_eos else card.eos_ids), *request.stop_ids)
        return TurnSpec(
            session=key,
            tokens=tokens,
            prompt_len=request.prompt_len,
            params=request.params,
            seed=request.seed,
            max_tokens=request.max_tokens,
            stop_ids=end_ids,
            stop_strings=request.stop_strings,
            rate=self.granted(request),
            epoch=request.epoch,
            min_tokens=request.min_tokens,
            top_logprobs=request.top_logprobs,
            constraint=self._constraint(request, end_ids),
        )

    def granted(self, request: Open) -> float:
        """Tokens per second that the session is promised; 0 = never due."""
        wanted = self._default_rate if request.target_rate is None else request.target_rate
        return min(wanted, self._max_rate) if self._max_rate > 0 else wanted

    def nodes(self, data: bytes, first_id: int, codec: int) -> list[nodes.Node]:
        """The nodes of a draft, packed as the `Open` said; raises `BadFrame`."""
        if not data:
            return []
        return nodes.unpack(data, first_id, self._card.vocab_size, self._card.max_nodes, codec)

    def opened(self, request: Open, kept: int, resumed: bool) -> Opened:
        """The answer to `request`."""
        card = self._card
        return Opened(
            epoch=request.epoch,
            kept=kept,
            numerics_id=card.numerics_id,
            granted_rate=self.granted(request),
            max_draft=card.max_draft,
            max_nodes=card.max_nodes,
            exact=card.exact,
            resumed=resumed,
        )

    def _check_served(self, request: Open) -> None:
        if (count := request.extra.n) != 1:
            raise InvalidRequest(f"n: a session gives one answer; open {count} sessions, as the edge's choices do")
        if unserved := request.extra.asked():
            raise InvalidRequest(f"{', '.join(unserved)}: not served by this verifier; leave it out")
        formats = request.format.asked()
        if len(formats) > 1:
            raise InvalidRequest(f"{', '.join(formats)}: ask for one output format at a time")
        if formats and self._compile_format is None:
            raise InvalidRequest(f"{formats[0]}: {self._no_formats}")
        if formats and request.ignore_eos:
            raise InvalidRequest(f"ignore_eos: {formats[0]} says where the text ends; leave one of the two out")

    def _constraint(self, request: Open, end_ids: Sequence[int]) -> Constraint | None:
        if self._compile_format is None or not request.format.asked():
            return None
        return self._compile_format(request.format, end_ids)

    def _check_ids(self, field: str, ids: Sequence[int]) -> None:
        bad = next((i for i in ids if i >= self._card.vocab_size), None)
        if bad is not None:
            raise InvalidRequest(f"{field}: token id {bad} is outside the vocabulary of {self._card.vocab_size}")
