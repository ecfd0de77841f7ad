"""From a request's output format to a constraint: the loaded target's tokenizer in llguidance's terms, and its limits.

Formats come from strangers. What is too long, too branching or too slow to compile is refused with its field's name,
and at most one compilation that overran its time is ever under way.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import numpy as np

from acespec.cloud.grammar import GrammarConstraint, one_line
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import Exhausted, InvalidRequest
from acespec.proto.messages import OutputFormat

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MAX_FORMAT_BYTES: Final = 64 << 10
DEADLINE_S: Final = 0.5
"""A schema of 87 KB takes 0.1 s; a few dozen hostile characters would take 3 s, and 20,000 of them 16 s."""
KEPT: Final = 16
"""Compiled formats that are kept for the next request."""
MAX_ITEMS_IN_ROW: Final = 10_000
"""Ways in which a text may go on: the library's 2,000 do not suffice for objects of a thousand properties."""
PROBE: Final = 8
"""Tokens that a grammar is walked on trial: what branches too widely often shows behind its first brace only."""

_ANY_OBJECT: Final = '{"type": "object"}'


def missing_library() -> str | None:
    """What to say where structured output cannot be served; None where it can."""
    if find_spec("llguidance") is not None:
        return None
    return "structured output needs llguidance on the verifier: its operator can run pip install 'acespec[verifier]'"


class GrammarCompiler:
    """Compiles output formats for one tokenizer; make one for each loaded target, and call it for each turn."""

    def __init__(self, tokenizer: Tokenizer, *, deadline_s: float = DEADLINE_S) -> None:
        self._vocab_size = tokenizer.vocab_size
        self._deadline_s = deadline_s
        self._model_ends = bool(tokenizer.eos_ids)
        self._tokens = _token_trie(tokenizer)
        self._ready: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()
        self._overdue: threading.Thread | None = None

    def __call__(self, wanted: OutputFormat, end_ids: Sequence[int]) -> GrammarConstraint:
        """The constraint of a turn that may end with `end_ids`.

        Raises:
            InvalidRequest: two formats at once, one that is too long or takes too long, or one that is not valid;
                the message names the field and the reason.
            Exhausted: another format that takes too long is still under way.
        """
        name, text = _the_one(wanted)
        if not self._model_ends or not end_ids:
            raise InvalidRequest(f"{name}: this turn has no token that ends a text, so no format can be kept")
        return GrammarConstraint(self._matcher(name, text), end_ids, self._vocab_size)

    def _matcher(self, name: str, text: str) -> LLMatcher:
        known = self._ready.pop((name, text), None)
        matcher = known if known is not None else self._in_time(name, lambda: self._compiled(name, text))
        self._ready[name, text] = matcher
        if len(self._ready) > KEPT:
            self._ready.popitem(last=False)
        return matcher

    def _in_time(self, name: str, work: Callable[[], LLMatcher]) -> LLMatcher:
        """What `work` returns, unless it takes too long: the library cannot be interrupted, only left behind."""
        if self._overdue is not None and self._overdue.is_alive():
            raise Exhausted(f"{name}: another grammar is still being compiled; try again in a moment", 5.0)
        made: list[LLMatcher | InvalidRequest] = []

        def attempt() -> None:
            try:
                made.append(work())
            except InvalidRequest as fault:
                made.append(fault)

        thread = threading.Thread(target=attempt, name="grammar", daemon=True)
        thread.start()
        thread.join(self._deadline_s)
        if not made:
            self._overdue = thread
            raise InvalidRequest(f"{name}: it takes more than {self._deadline_s} s to compile; make it simpler")
        if isinstance(made[0], InvalidRequest):
            raise made[0]
        return made[0]

    def _compiled(self, name: str, text: str) -> LLMatcher:
        from llguidance import LLMatcher

        try:
            source = _source(name, text)
        except ValueError as fault:
            raise InvalidRequest(f"{name}: {one_line(str(fault))}") from fault
        matcher = LLMatcher(self._tokens, source, log_level=0, limits=_limits())
        if matcher.is_error():
            raise InvalidRequest(f"{name}: {one_line(matcher.get_error())}")
        self._probe(name, matcher.deep_copy())
        return matcher

    def _probe(self, name: str, matcher: LLMatcher) -> None:
        """Walk a few tokens on trial; refuse what allows nothing, or breaks a limit at once."""
        for step in range(PROBE):
            bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
            if matcher.is_error():
                raise InvalidRequest(f"{name}: {one_line(matcher.get_error())}")
            if matcher.is_stopped():
                return
            mask = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
            if not mask.any():
                if step == 0:
                    raise InvalidRequest(f"{name}: no text at all satisfies it")
                return
            matcher.consume_token(int(mask.argmax()))


def _the_one(wanted: OutputFormat) -> tuple[str, str]:
    """(field, text) of the only format that is set."""
    names = wanted.asked()
    if len(names) != 1:
        raise InvalidRequest(f"{', '.join(names) or 'format'}: ask for exactly one output format")
    name = names[0]
    text = _ANY_OBJECT if name == "json_object" else str(getattr(wanted, name))
    size = len(text.encode())
    if size > MAX_FORMAT_BYTES:
        raise InvalidRequest(f"{name}: {size} bytes, at most {MAX_FORMAT_BYTES} are served; make it shorter")
    return name, text


def _source(name: str, text: str) -> str:
    """The format in the library's own notation. Raises ValueError for what it cannot read."""
    from llguidance import LLMatcher, grammar_from

    match name:
        case "regex":
            return LLMatcher.grammar_from_regex(text)
        case "grammar":
            return grammar_from("grammar", text)
        case _:
            return LLMatcher.grammar_from_json_schema(text)


def _limits() -> LLParserLimits:
    from llguidance import LLParserLimits

    return LLParserLimits(max_items_in_row=MAX_ITEMS_IN_ROW, verbose_errors=False)


def _token_trie(tokenizer: Tokenizer) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    ends = list(tokenizer.eos_ids) or [0]  # The library wants one even where there is none.
    return LLTokenizer(TokenizerWrapper(_Spelling(tokenizer, ends[0])), tokenizer.vocab_size, ends)


class _Spelling:
    """The tokenizer as the library reads it: the bytes of every id, and which ids are control tokens."""

    def __init__(self, tokenizer: Tokenizer, end_id: int) -> None:
        ids = range(tokenizer.vocab_size)
        self.eos_token_id = end_id
        self.bos_token_id: int | None = None
        self.special_token_ids = [i for i in ids if tokenizer.is_special(i)]
        self.tokens = [self._spelt(tokenizer, i) for i in ids]
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode(errors="replace"))

    @staticmethod
    def _spelt(tokenizer: Tokenizer, token: int) -> bytes:
        if tokenizer.is_special(token):
            return tokenizer.decode([token], skip_special=False).encode()
        return tokenizer.token_bytes(token)
