"""A conversation as token ids that only grow: what was said is never tokenised again.

Each turn appends to the ids so far what the chat template puts between an answer and the next one. So only new tokens
go up, and the verifier's KV cache of the conversation stays good. The piece between is found by rendering the template
around a stand-in answer; where a template is not made that way, the whole conversation is encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acespec.edge.template_gap import Message, gap_behind
from acespec.models.tokenizer import Tokenizer


class ChatIds:
    """One conversation. `ask` gives the prompt ids of the next turn, `answered` takes what came of it."""

    def __init__(self, tokenizer: Tokenizer, system: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._messages: list[dict[str, str]] = []
        self._ids: list[int] = []
        self.restart(system)

    @property
    def messages(self) -> tuple[Mapping[str, str], ...]:
        """What was said so far, the system message included."""
        return tuple(self._messages)

    @property
    def system(self) -> str | None:
        """The system message, if there is one."""
        first = self._messages[:1]
        return first[0]["content"] if first and first[0]["role"] == "system" else None

    def restart(self, system: str | None) -> None:
        """Forget everything; the next question is the first, behind this system message."""
        self._messages = [{"role": "system", "content": system}] if system else []
        self._ids = []

    def ask(self, text: str) -> list[int]:
        """The ids of the conversation with this question behind it, ready for the answer."""
        asked = [*self._messages, {"role": "user", "content": text}]
        added = self._between(asked) if self._ids else None
        self._messages = asked
        if added is None:
            return self._tokenizer.encode(self._tokenizer.apply_chat(asked))
        return self._ids + self._tokenizer.encode(added)

    def answered(self, ids: Sequence[int], text: str) -> None:
        """`ids`: the whole sequence, the answer included; `text`: the answer as it was shown."""
        self._ids = list(ids)
        self._messages.append({"role": "assistant", "content": text})

    def dropped(self) -> None:
        """The last question got no answer: it never happened."""
        self._messages.pop()

    def _between(self, asked: Sequence[Message]) -> str | None:
        """What the template puts between the end of the last answer and the beginning of the next."""
        *before, _answer, question = asked
        between = gap_behind(self._tokenizer, before, [question], {})
        return None if between is None else between.removeprefix(self._end_already_there())

    def _end_already_there(self) -> str:
        last = self._ids[-1:]
        ended = last and last[0] in self._tokenizer.eos_ids
        return self._tokenizer.decode(last, skip_special=False) if ended else ""
