"""Drafting with a model of another tokenizer: it writes text, and the text is tokenised again for the target.

The last ids of the committed text are tokenised together with the draft (a look-behind window). If they come out as
they are, what follows them is the draft; if not (the draft completes a word that the target has cut), the draft is
tokenised by itself. Either way the ids must spell the draft byte for byte, else nothing is proposed. The last word is
held back, since the text that follows may change its ids. The method is known as string-level exact match (Timor et
al., arXiv 2502.05202).

The draft model is asked for its likeliest token at any temperature: the noise that both ends share is keyed by target
ids, so sampling by other ids would only add mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from acespec.edge.drafters.base import Candidate, Drafter, TurnContext
from acespec.edge.drafters.cross_text import LOOK_BEHIND, FollowingIds, Spelling, incomplete, is_continuation
from acespec.models.tokenizer import Tokenizer
from acespec.proto.sampling_params import SamplingParams

LONGEST = 48
"""Ids that the model drafts from one anchor; then the text is anchored anew."""
HELD_BACK = 4
"""Most ids that are held back; a script without spaces has no words."""
PATIENCE = 12
"""Ids of the model without one that settles, after which a text is given up."""


class CrossVocabularyDrafter:
    """Wraps `inner`, which drafts ids of `inner_tokenizer`, for a target of `target_tokenizer`."""

    def __init__(self, inner: Drafter, inner_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> None:
        self.name = inner.name
        self._inner = inner
        self._inner_ends = frozenset(inner_tokenizer.eos_ids)
        self._inner_vocab = inner_tokenizer.vocab_size
        self._target_end = next(iter(target_tokenizer.eos_ids), None)
        self._spelling = Spelling(inner_tokenizer)
        self._target = Spelling(target_tokenizer)
        self._context = FollowingIds(self._target, self._spelling, inner_tokenizer.prefix_ids)
        self._draft: _TextDraft | None = None

    @property
    def should_stop(self) -> Callable[[], bool]:
        """Passed on to the model."""
        return self._inner.should_stop

    @should_stop.setter
    def should_stop(self, stop: Callable[[], bool]) -> None:
        self._inner.should_stop = stop

    @property
    def proposal_s(self) -> float | None:
        """The model's; the two vocabularies' tokens are taken to be about as long."""
        return self._inner.proposal_s

    def begin(self, turn: TurnContext) -> None:
        """See `Drafter.begin`."""
        self._draft = None
        self._inner.begin(TurnContext(SamplingParams(), turn.seed, 0, self._inner_vocab))

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """The next target id of the drafted text, if it is settled: one candidate at most."""
        if k < 1:
            return []
        draft = self._draft
        given = draft.progress(path) if draft is not None else None
        if draft is None or given is None or (given == len(draft.settled) and draft.spent):
            draft, given = self._anchored(path), 0
        while given == len(draft.settled):
            if draft.spent or not self._extend(draft):
                return []
        return [draft.settled[given]]

    def commit(self, tokens: Sequence[int], start: int) -> None:
        """See `Drafter.commit`; a language model learns nothing from it."""

    def close(self) -> None:
        """See `Drafter.close`."""
        self._draft = None
        self._inner.close()

    def _anchored(self, path: Sequence[int]) -> _TextDraft:
        ids, owed = self._context.follow(path)
        self._draft = _TextDraft(path, ids, owed, self._target)
        return self._draft

    def _extend(self, draft: _TextDraft) -> bool:
        """One more id of the model; False if it has nothing to say or was stopped."""
        found = self._inner.propose(draft.inner_path)
        if not found:
            return False
        best = found[0]
        if best.token in self._inner_ends:
            draft.end(self._target_end, best.probability)
        else:
            draft.add(best.token, self._spelling.token(best.token), best.probability)
        return True


class _TextDraft:
    """Text drafted behind one path (the anchor), and how much of it is settled in target ids.

    Attributes:
        inner_path: ids of the model, context and draft.
        settled: the proposals behind the anchor.
        spent: nothing more will settle here.
    """

    def __init__(self, anchor: Sequence[int], context: list[int], owed: bytes, target: Spelling) -> None:
        self.inner_path = context
        self.settled: list[Candidate] = []
        self.spent = False
        self._anchor = list(anchor)
        self._target = target
        self._owed = owed  # bytes of the anchor that the context lacks; the draft must begin with them
        self._window = _window(self._anchor, target)
        self._window_text = target.text(self._window)
        self._text = bytearray()
        self._starts: list[int] = []
        self._chances: list[float] = []
        self._settled_at = 0

    def progress(self, path: Sequence[int]) -> int | None:
        """How many settled ids `path` has behind the anchor; None if it left them."""
        behind = len(path) - len(self._anchor)
        if not 0 <= behind <= len(self.settled) or list(path[: len(self._anchor)]) != self._anchor:
            return None
        said = [candidate.token for candidate in self.settled[:behind]]
        return behind if list(path[len(self._anchor) :]) == said else None

    def add(self, token: int, text: bytes, probability: float) -> None:
        """The model went on with `token`."""
        self.inner_path.append(token)
        self._starts.append(len(self._text))
        self._chances.append(probability)
        self._text += text
        ids = self._tokenised(bytes(self._text))
        self._settle(ids[: self._whole_words(ids)])
        drafted = len(self._starts)
        self.spent = self.spent or drafted >= LONGEST or drafted - self._settled_at >= PATIENCE

    def end(self, end_id: int | None, probability: float) -> None:
        """The model ended the text: no later text can change its last id."""
        self._settle(self._tokenised(bytes(self._text)))
        spelt = sum(len(self._target.token(candidate.token)) for candidate in self.settled)
        if end_id is not None and not self.spent and spelt + len(self._owed) == len(self._text):
            self.settled.append(Candidate(end_id, probability, "lm"))
        self.spent = True

    def _tokenised(self, text: bytes) -> list[int]:
        """Target ids of the whole characters that are drafted; [] if they cannot be had exactly."""
        if not text.startswith(self._owed):
            self.spent = self.spent or not self._owed.startswith(text)
            return []
        text = text[len(self._owed) : len(text) - len(incomplete(text))]
        ids = self._target.exact(self._window_text + text)
        if ids is not None and ids[: len(self._window)] == self._window:
            return ids[len(self._window) :]
        return self._target.exact(text) or []

    def _whole_words(self, ids: list[int]) -> int:
        """How many of the ids stand before the beginning of the last word, and before the last id in any case."""
        least = max(0, len(ids) - HELD_BACK)
        for at in range(len(ids) - 1, least, -1):
            if _begins_word(self._target.token(ids[at - 1]), self._target.token(ids[at])):
                return at
        return least

    def _settle(self, ids: list[int]) -> None:
        known = len(self.settled)
        if len(ids) < known:
            return  # a longer last word; the next one settles it
        if ids[:known] != [candidate.token for candidate in self.settled]:
            self.spent = True  # Text that came later changed what was given out: start anew behind it.
            return
        at = sum(len(self._target.token(token)) for token in ids[:known]) + len(self._owed)
        for token in ids[known:]:
            end = at + len(self._target.token(token))
            self.settled.append(Candidate(token, self._chance(at if self.settled else 0, end), "lm"))
            at = end
        if len(ids) > known:
            self._settled_at = len(self._starts)

    def _chance(self, start: int, end: int) -> float:
        """The product over the model's ids that begin in these bytes; a chain of such products is the text's chance."""
        return math.prod(p for at, p in zip(self._starts, self._chances, strict=True) if start <= at < end)


def _begins_word(before: bytes, piece: bytes) -> bool:
    """Whether tokenizers cut between these two pieces whatever follows: before a space, and where letters end."""
    if piece[:1].isspace():
        return not before[-1:].isspace()
    return _is_letter(before[-1:]) and not _is_letter(piece[:1])


def _is_letter(byte: bytes) -> bool:
    return byte.isalpha() or byte >= b"\x80"


def _window(anchor: list[int], target: Spelling) -> list[int]:
    """The last ids of the anchor, from the first one in reach that begins a word, else from a whole character on."""
    pieces = [target.token(token) for token in anchor[-LOOK_BEHIND:]]
    begins = [i for i, piece in enumerate(pieces) if piece[:1].isspace()]
    whole = [i for i, piece in enumerate(pieces) if piece and not is_continuation(piece, 0)]
    first = next(iter(begins or whole), len(pieces))
    return anchor[len(anchor) - len(pieces) + first :]
