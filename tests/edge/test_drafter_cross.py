"""Drafting across vocabularies: right ids where the text is right, exact bytes always, silence where that cannot be."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.drafters.base import Candidate, Drafter, QuietDrafter, TurnContext
from acespec.edge.drafters.cross_drafter import HELD_BACK, PATIENCE, CrossVocabularyDrafter
from acespec.edge.drafters.cross_text import FollowingIds, Spelling, incomplete
from acespec.edge.drafters.factory import make_drafter
from acespec.models.tokenizer import Tokenizer
from acespec.proto.sampling_params import SamplingParams
from tests.tiny import TRAINING_TEXT, tiny_model_folder, write_tiny_tokenizer

TEXT = (
    "When the water rose again, nobody could remember the stones.\n\n    return width * height\n"
    "Über 365 Häuser: 今日は天気がいいです。 Это просто слова, and that is all there is to say about the river."
)


def tokenizer(folder: Path, vocab: int) -> Tokenizer:
    folder.mkdir(exist_ok=True)
    write_tiny_tokenizer(folder, vocab)
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    """(the drafter's, the target's): the first merges far less."""
    folder = tmp_path_factory.mktemp("tokenizers")
    return tokenizer(folder / "coarse", 290), tokenizer(folder / "fine", 512)


class Author(QuietDrafter):
    """A draft model that knows the text: it goes on with its own tokenization of what is left of it."""

    name = "author"

    def __init__(self, tokenizer: Tokenizer, text: str, chance: float = 0.9, *, ends: bool = False) -> None:
        super().__init__()
        self.tokenizer, self.text, self.chance, self.ends = tokenizer, text.encode(), chance, ends
        self.bytes = {Spelling(tokenizer).token(i): i for i in range(tokenizer.vocab_size)}
        self.next: dict[bytes, int] = {}
        self.asked = 0
        self.turn: TurnContext | None = None

    def begin(self, turn: TurnContext) -> None:
        self.turn = turn

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        self.asked += 1
        said = Spelling(self.tokenizer).text(path)
        assert self.text.startswith(said), "the context is not the committed text"
        left = self.text[len(said) :]
        if not left:
            return [Candidate(self.tokenizer.eos_ids[0], self.chance, "lm")] if self.ends else []
        if left not in self.next:
            inside = left[0] & 0xC0 == 0x80
            self.next[left] = self.bytes[left[:1]] if inside else self.tokenizer.encode(left.decode())[0]
        return [Candidate(self.next[left], self.chance, "lm")]


def cross(pair: tuple[Tokenizer, Tokenizer], author: Drafter, seed: int = 1) -> CrossVocabularyDrafter:
    drafter = CrossVocabularyDrafter(author, *pair)
    drafter.begin(TurnContext(SamplingParams(temperature=1.0), seed, 0, pair[1].vocab_size))
    return drafter


def drafted(drafter: Drafter, path: Sequence[int], most: int = 1000) -> list[Candidate]:
    """What a session would draft behind `path`."""
    path, found = list(path), list[Candidate]()
    while len(found) < most and (guesses := drafter.propose(path)):
        found += guesses
        path.append(guesses[0].token)
    return found


@pytest.mark.parametrize("swapped", [False, True])
def test_a_right_text_gives_the_targets_own_ids(pair: tuple[Tokenizer, Tokenizer], swapped: bool) -> None:
    """Nearly always: these tokenizers cut many words into more ids than are held back."""
    inner, target = reversed(pair) if swapped else pair
    truth = target.encode(TEXT)
    drafter = cross((inner, target), Author(inner, TEXT))
    asked = range(1, len(truth) - HELD_BACK)
    right = [[c.token for c in drafter.propose(truth[:at])] == [truth[at]] for at in asked]
    assert sum(right) >= 0.93 * len(asked)


def test_the_end_of_the_text_settles_everything(pair: tuple[Tokenizer, Tokenizer]) -> None:
    inner, target = pair
    truth = target.encode(TEXT)
    for length in range(len(truth) - 8, len(truth) + 1):
        rest = [*truth[length:], target.eos_ids[0]]
        drafter = cross(pair, Author(inner, TEXT, ends=True))
        assert [c.token for c in drafted(drafter, truth[:length], len(rest))] == rest


def test_the_chance_of_the_text_is_kept(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """The product over the target's ids is the product over the model's own that begin in them."""
    inner, target = pair
    start = target.encode("When the water")
    found = drafted(cross(pair, Author(inner, TEXT, chance=0.5)), start, 12)
    text = Spelling(target).text([c.token for c in found])
    product = 1.0
    for candidate in found:
        product *= candidate.probability
    ends, at = [], 0
    for token in inner.encode(TEXT[len("When the water") :]):
        ends.append(at)
        at += len(Spelling(inner).token(token))
    assert product == pytest.approx(0.5 ** sum(start < len(text) for start in ends))


def test_the_model_is_asked_greedily_and_not_more_than_needed(pair: tuple[Tokenizer, Tokenizer]) -> None:
    author = Author(pair[0], TEXT)
    drafter = cross(pair, author)
    assert author.turn is not None
    assert author.turn.params == SamplingParams()
    assert author.turn.vocab_size == pair[0].vocab_size
    path = pair[1].encode("When the water")
    first = drafter.propose(path, 4)
    asked = author.asked
    assert len(first) == 1
    assert drafter.propose(path, 4) == first
    assert author.asked == asked
    drafter.propose([*path, first[0].token])
    assert author.asked <= asked + 6, "the text that was drafted ahead is used"


def test_a_word_that_the_target_cut_is_completed(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """Boundaries do not align: the target ended a token in the middle of what would be one."""
    inner, target = pair
    truth = target.encode(TEXT)
    cuts = [target.encode(TEXT[:length]) for length in range(5, 60)]
    odd = [cut for cut in cuts if cut != truth[: len(cut)]]
    assert len(odd) > 5
    for cut in odd:
        tokens = [c.token for c in drafted(cross(pair, Author(inner, TEXT)), cut, 8)]
        assert TEXT.encode().startswith(Spelling(target).text([*cut, *tokens]))
        assert len(tokens) == 8


@given(cuts=st.lists(st.integers(1, len(TEXT) - 1), min_size=1, max_size=6))
def test_what_is_drafted_always_spells_the_text(pair: tuple[Tokenizer, Tokenizer], cuts: list[int]) -> None:
    """However the target cut the committed text, and in whatever order paths are asked about."""
    drafter = cross(pair, Author(pair[0], TEXT))
    for first, second in zip(cuts, cuts[1:] + cuts[:1], strict=True):
        low, high = sorted((first, second))
        path = pair[1].encode(TEXT[:low]) + pair[1].encode(TEXT[low:high])
        tokens = [c.token for c in drafted(drafter, path, 10)]
        assert TEXT.encode().startswith(Spelling(pair[1]).text(path + tokens))


def test_a_path_that_ends_inside_a_character(pair: tuple[Tokenizer, Tokenizer]) -> None:
    inner, target = pair
    text = "Это 🙂日は, said the river."
    truth = target.encode(text)
    inside = [i for i in range(1, len(truth)) if incomplete(Spelling(target).text(truth[:i]))]
    assert len(inside) >= 3
    for at in inside:
        tokens = [c.token for c in drafted(cross(pair, Author(inner, text)), truth[:at])]
        assert tokens == truth[at : at + len(tokens)]
        assert len(tokens) >= len(truth) - at - HELD_BACK


def test_silence_where_the_text_cannot_be_spelt(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """B41: a model whose text is no UTF-8 is given up after a while, and nothing of it is proposed."""
    inner, target = pair
    broken = inner.encode("Ü")[0]
    assert incomplete(Spelling(inner).token(broken))

    class Mumbling(QuietDrafter):
        asked = 0

        def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
            self.asked += 1
            return [Candidate(broken, 0.9, "lm")]

    mumbling = Mumbling()
    assert drafted(cross(pair, mumbling), target.encode("When the")) == []
    assert mumbling.asked <= PATIENCE


def test_stop_and_close_reach_the_model(pair: tuple[Tokenizer, Tokenizer]) -> None:
    author = Author(pair[0], TEXT)
    drafter = cross(pair, author)
    drafter.should_stop = lambda: True
    assert author.should_stop()
    assert drafter.should_stop()
    assert drafter.proposal_s is None
    drafter.commit([1, 2], 0)
    drafter.close()
    assert drafter.name == "author"


words = st.text(st.sampled_from([*"abc .,\n0", "é", "今", "🙂"]), max_size=30)


@given(st.lists(st.tuples(words, st.integers(0, 40)), max_size=5))
def test_following_ids_spell_what_is_followed(pair: tuple[Tokenizer, Tokenizer], steps: list[tuple[str, int]]) -> None:
    """After any edits, the followed ids and the owed bytes are the text."""
    given_, wanted = Spelling(pair[1]), Spelling(pair[0])
    following = FollowingIds(given_, wanted)
    path: list[int] = []
    for text, cut in steps:
        path = path[: max(0, len(path) - cut)] + pair[1].encode(text)
        ids, owed = following.follow(path)
        assert wanted.text(ids) + owed == given_.text(path) or b"\xef\xbf\xbd" in wanted.text(ids)


def test_unchanged_text_keeps_its_ids(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """So that the draft model's cache stays good: a commit of one token moves only what is near it."""
    inner, target = pair
    ids = target.encode(TRAINING_TEXT)
    following = FollowingIds(Spelling(target), Spelling(inner))
    before, _ = following.follow(ids[:200])
    after, _ = following.follow(ids[:201])
    assert after[: len(before) - 16] == before[:-16]
    assert before == inner.encode(target.decode(ids[:200]))


@pytest.mark.parametrize(
    ("text", "left"),
    [(b"", b""), (b"a", b""), ("é".encode(), b""), ("é".encode()[:1], b"\xc3"), ("🙂".encode()[:3], "🙂".encode()[:3])],
)
def test_incomplete_characters(text: bytes, left: bytes) -> None:
    assert incomplete(b"x" + text) == left


def test_special_marks_are_carried_over_as_text(pair: tuple[Tokenizer, Tokenizer]) -> None:
    inner, target = pair
    chat = target.encode(target.apply_chat([{"role": "user", "content": "Why is the river low?"}]))
    ids, owed = FollowingIds(Spelling(target), Spelling(inner)).follow(chat)
    assert ids == inner.encode(inner.apply_chat([{"role": "user", "content": "Why is the river low?"}]))
    assert owed == b""


def test_a_drafter_of_another_family_is_wrapped_and_said(
    tmp_path: Path, pair: tuple[Tokenizer, Tokenizer], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    other = tiny_model_folder(tmp_path / "other", vocab=290)
    settings = {"model_key": "t", "vocab_size": 512, "cache_dir": None, "draft_model": str(other)}
    same = make_drafter("torch", tokenizer=pair[0], **settings)  # type: ignore[arg-type]
    assert not isinstance(same, CrossVocabularyDrafter)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        wrapped = make_drafter("torch", tokenizer=pair[1], **settings)  # type: ignore[arg-type]
    assert isinstance(wrapped, CrossVocabularyDrafter)
    assert pair[0].fingerprint.hex() in caplog.text
    assert pair[1].fingerprint.hex() in caplog.text
    wrapped.begin(TurnContext(SamplingParams(temperature=1.0), 1, 0, 512))
    path = pair[1].encode("When the water rose")
    found = drafted(wrapped, path, 6)  # random weights: perhaps no text at all
    wrapped.close()
    assert all(0 < c.probability <= 1 and 0 <= c.token < 512 for c in found)
    Spelling(pair[1]).text([c.token for c in found]).decode()


@pytest.mark.model
@pytest.mark.slow
def test_real_tokenizers_both_ways(tmp_path: Path) -> None:
    """SmolLM2's tokenizer against Qwen's (if the benchmarks' pair is here): a perfect text is nearly all accepted."""
    from acespec.bench.real_pair import DRAFTER, fetch_part_file
    from acespec.models.gguf_models import gguf_tokenizer
    from acespec.models.store import resolve
    from acespec.proto.errors import ModelError

    try:
        qwen = gguf_tokenizer(fetch_part_file(DRAFTER, offline=True))
        smol = Tokenizer.load(resolve("smollm2-135m", offline=True))
    except ModelError as error:
        pytest.skip(str(error))
    text = json.dumps({"text": TEXT, "numbers": list(range(90, 110))}, ensure_ascii=False) + TRAINING_TEXT
    for inner, target in ((smol, qwen), (qwen, smol)):
        truth = target.encode(text)
        drafter = CrossVocabularyDrafter(Author(inner, text), inner, target)
        drafter.begin(TurnContext(SamplingParams(), 1, 0, target.vocab_size))
        right = sum([c.token for c in drafter.propose(truth[:at])] == [truth[at]] for at in range(1, len(truth) - 3))
        assert right >= 0.97 * (len(truth) - 4)
