"""Replies in OpenAI's shapes: what chat and plain completions write differently, behind one interface."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from acespec.edge.completion import Completion, TextDelta
from acespec.edge.proxy.figures import speculation, timings, usage
from acespec.edge.report import NO_CHANCE, Json, token_logprobs
from acespec.models.tokenizer import Tokenizer
from acespec.proto.logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Head:
    """What all parts of a reply share."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, prefix: str, model: str) -> Head:
        """Of a reply that begins now."""
        return cls(f"{prefix}-{secrets.token_hex(12)}", int(time.time()), model)


class Reply(ABC):
    """Writes one reply, whole or in chunks.

    Args:
        prompt_tokens: of all prompts together.
    """

    prefix = ""
    whole_object = ""
    chunk_object = ""

    def __init__(self, tokenizer: Tokenizer, model: str, prompt_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._head = Head.new(self.prefix, model)
        self._prompt_tokens = prompt_tokens

    @abstractmethod
    def opening(self, index: int) -> dict[str, Json] | None:
        """The choice of the first chunk of answer `index`, if there is one before its text."""

    @abstractmethod
    def delta(self, index: int, part: TextDelta) -> dict[str, Json]:
        """The choice of a chunk with text."""

    @abstractmethod
    def ending(self, index: int, finish: str) -> dict[str, Json]:
        """The choice of an answer's last chunk."""

    @abstractmethod
    def answer(self, index: int, done: Completion) -> dict[str, Json]:
        """The choice of a complete answer."""

    def whole(self, done: Sequence[Completion]) -> dict[str, Json]:
        """The reply in one piece."""
        choices: list[Json] = [self.answer(index, each) for index, each in enumerate(done)]
        body = self._object(self.whole_object, choices)
        return body | {"usage": usage(self._prompt_tokens, done)} | self.figures(done)

    def chunk(self, choice: dict[str, Json] | None) -> dict[str, Json]:
        """A chunk of a stream; None for one without a choice."""
        choices: list[Json] = [] if choice is None else [choice]
        return self._object(self.chunk_object, choices)

    def figures(self, done: Sequence[Completion]) -> dict[str, Json]:
        """`timings` and `speculation`."""
        return {"timings": timings(self._prompt_tokens, done), "speculation": speculation(done)}

    def usage(self, done: Sequence[Completion]) -> dict[str, Json]:
        """OpenAI's account."""
        return usage(self._prompt_tokens, done)

    def _object(self, kind: str, choices: list[Json]) -> dict[str, Json]:
        head = self._head
        return {
            "id": head.id,
            "object": kind,
            "created": head.created,
            "model": head.model,
            "system_fingerprint": None,
            "choices": choices,
        }


class ChatReply(Reply):
    """`/v1/chat/completions`."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Json] | None:
        """See `Reply.opening`."""
        return self._choice(index, {"role": "assistant", "content": ""}, None)

    def delta(self, index: int, part: TextDelta) -> dict[str, Json]:
        """See `Reply.delta`."""
        return self._choice(index, {"content": part.text}, None, self._logprobs(part.token_ids, part.logprobs))

    def ending(self, index: int, finish: str) -> dict[str, Json]:
        """See `Reply.ending`."""
        return self._choice(index, {}, finish)

    def answer(self, index: int, done: Completion) -> dict[str, Json]:
        """See `Reply.answer`."""
        return {
            "index": index,
            "message": {"role": "assistant", "content": done.text, "refusal": None},
            "logprobs": self._logprobs(done.token_ids, done.logprobs),
            "finish_reason": done.finish.openai,
        }

    def _logprobs(self, tokens: Sequence[int], items: Sequence[TokenLogprobs] | None) -> Json:
        if not items:
            return None
        content: list[Json] = [token_logprobs(self._tokenizer, *pair) for pair in zip(tokens, items, strict=True)]
        return {"content": content, "refusal": None}

    @staticmethod
    def _choice(index: int, delta: dict[str, Json], finish: str | None, logprobs: Json = None) -> dict[str, Json]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


class TextReply(Reply):
    """`/v1/completions`."""

    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer, model: str, prompt_tokens: int) -> None:
        super().__init__(tokenizer, model, prompt_tokens)
        self._offsets: dict[int, int] = {}

    def opening(self, index: int) -> dict[str, Json] | None:
        """See `Reply.opening`."""
        return None

    def delta(self, index: int, part: TextDelta) -> dict[str, Json]:
        """See `Reply.delta`."""
        return self._choice(index, part.text, None, self._logprobs(index, part.token_ids, part.logprobs))

    def ending(self, index: int, finish: str) -> dict[str, Json]:
        """See `Reply.ending`."""
        return self._choice(index, "", finish)

    def answer(self, index: int, done: Completion) -> dict[str, Json]:
        """See `Reply.answer`."""
        return self._choice(
            index, done.text, done.finish.openai, self._logprobs(index, done.token_ids, done.logprobs or ())
        )

    def _logprobs(self, index: int, ids: Sequence[int], items: Sequence[TokenLogprobs]) -> Json:
        """The older form: four lists, of one item a token. `text_offset` counts characters of single tokens' texts."""
        if not items:
            return None
        tokens: list[Json] = []
        chances: list[Json] = []
        best: list[Json] = []
        offsets: list[Json] = []
        for token, item in zip(ids, items, strict=True):
            text = self._spelt(token)
            tokens.append(text)
            chances.append(max(item.logprob, NO_CHANCE))
            best.append({self._spelt(other): max(chance, NO_CHANCE) for other, chance in item.top})
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = self._offsets.get(index, 0) + len(text)
        return {"tokens": tokens, "token_logprobs": chances, "top_logprobs": best, "text_offset": offsets}

    def _spelt(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special=False)

    @staticmethod
    def _choice(index: int, text: str, finish: str | None, logprobs: Json = None) -> dict[str, Json]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
