"""Maps a history that a client sends back to the ids that were there when it came about.

HTTP clients send the whole conversation with each question, as text. Encoded again it would give other ids here and
there (a model's tokens are not always those that its text encodes to), and the verifier would have to read all of it
again. So each answer is remembered behind the messages that led to it, and a history that contains it gets its ids
back; only what the template puts behind it is encoded.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acespec.edge.proxy.messages import Message
from acespec.edge.template_gap import gap_behind, render
from acespec.models.tokenizer import Tokenizer

ROOM = 4_000_000
"""Ids that are remembered, at four bytes each."""
MOST_ANSWERS = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids to generate behind. `text` encodes to all of them, if it is known; `known` leading ones were remembered."""

    ids: list[int]
    text: str | None
    known: int = 0


@dataclass(frozen=True, slots=True)
class _Answer:
    """The whole sequence to the end of an answer; `start` is where the answer begins in it."""

    text: str
    ids: array[int]
    start: int


Key = tuple[bytes, str]
"""Digest of the messages before an answer, and its text without the space around it."""


class Conversations:
    """Of one model. Forgets the answers that were asked for least recently when there are too many."""

    def __init__(self, tokenizer: Tokenizer, room: int = ROOM) -> None:
        self._tokenizer = tokenizer
        self._room = room
        self._held = 0
        self._answers: OrderedDict[Key, _Answer] = OrderedDict()
        self._behind: dict[bytes, list[Key]] = {}

    def prompt(self, messages: Sequence[Message], variables: Mapping[str, object]) -> Prompt:
        """The ids of a conversation, ready for the next answer; as many of them as possible are remembered ones.

        Args:
            variables: further ones of the chat template.

        Raises:
            UsageError: the template refuses the conversation.
        """
        digests = _digests(messages, variables)
        for place in range(len(messages) - 1, 0, -1):
            if messages[place]["role"] != "assistant":
                continue
            answer = self._recall(digests[place], messages[place]["content"])
            if answer is None:
                continue
            gap = gap_behind(self._tokenizer, messages[:place], messages[place + 1 :], variables)
            if gap is not None:
                return self._joined(answer, messages[place]["content"], gap)
        text = render(self._tokenizer, messages, variables)
        return Prompt(self._tokenizer.encode(text), text)

    def answered(
        self,
        messages: Sequence[Message],
        variables: Mapping[str, object],
        prompt: Sequence[int],
        generated: Sequence[int],
        text: str,
    ) -> None:
        """Remember the answer `text` to `messages`: the ids `generated` behind `prompt`."""
        digest = _digests(messages, variables)[-1]
        key = digest, text.strip()
        self._forget(key)
        self._answers[key] = _Answer(text, array("i", [*prompt, *generated]), len(prompt))
        self._behind.setdefault(digest, []).append(key)
        self._held += len(self._answers[key].ids)
        while len(self._answers) > 1 and (self._held > self._room or len(self._answers) > MOST_ANSWERS):
            self._forget(next(iter(self._answers)))

    def _recall(self, digest: bytes, said: str) -> _Answer | None:
        """The answer that was `said`, or one that begins so and was left early."""
        keys = self._behind.get(digest, [])
        exact = (digest, said.strip())
        if exact not in self._answers:
            exact = next((key for key in reversed(keys) if said and self._answers[key].text.startswith(said)), exact)
        if exact not in self._answers:
            return None
        self._answers.move_to_end(exact)
        return self._answers[exact]

    def _joined(self, answer: _Answer, said: str, gap: str) -> Prompt:
        whole, start = list(answer.ids), answer.start
        ids, rest = whole, ""
        if said.strip() != answer.text.strip() or self._says_more(whole[start:], answer.text):
            kept, rest = self._within(whole[start:], said)
            ids = whole[:start] + kept
        if ids and ids[-1] in self._tokenizer.eos_ids:
            gap = gap.removeprefix(self._tokenizer.decode(ids[-1:], skip_special=False))
        return Prompt(ids + self._tokenizer.encode(rest + gap), None, len(ids))

    def _says_more(self, generated: Sequence[int], text: str) -> bool:
        """True if a stop string cut the text off."""
        return len(self._tokenizer.decode(generated)) > len(text)

    def _within(self, generated: Sequence[int], said: str) -> tuple[list[int], str]:
        """(the leading ids whose text lies within `said`, what they lack of it)."""
        target, shown = said.encode(), b""
        if self._tokenizer.drops_first_space and self._tokenizer.token_bytes(generated[0]).startswith(b" "):
            target = b" " + target
        kept: list[int] = []
        for token in generated:
            longer = shown + self._tokenizer.token_bytes(token)
            if shown == target or not target.startswith(longer):
                break
            shown = longer
            kept.append(token)
        try:
            return kept, target[len(shown) :].decode()
        except UnicodeDecodeError:  # It stops within a character: without its first bytes the rest is no text.
            return self._within(generated[: len(kept) - 1], said)

    def _forget(self, key: Key) -> None:
        answer = self._answers.pop(key, None)
        if answer is None:
            return
        self._held -= len(answer.ids)
        others = self._behind[key[0]]
        others.remove(key)
        if not others:
            del self._behind[key[0]]


def _digests(messages: Sequence[Message], variables: Mapping[str, object]) -> list[bytes]:
    """Item i names the first i messages."""
    digest = hashlib.blake2b(json.dumps(variables, sort_keys=True).encode(), digest_size=16)
    digests = [digest.digest()]
    for message in messages:
        digest.update(json.dumps([message["role"], message["content"].strip()]).encode())
        digests.append(digest.digest())
    return digests
