"""Text is right at every boundary: any split of any text into tokens and commits streams to the same text.

Tokens need not be those that a tokenizer would choose: a sampled text may spell a character, or a word, in any way that
the vocabulary allows. So these tests split bytes at random, not texts.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.events import Committed, Finished
from acespec.edge.turn_request import TurnRequest
from acespec.edge.turn_text import TurnText
from acespec.edge.wire_stats import WireTotals
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.models.text_stream import TextStream
from acespec.models.tokenizer import Tokenizer
from acespec.proto.messages import FinishReason, Totals
from tests.models.strings import strings_alone
from tests.tiny import SPECIAL_TOKENS

EMOJI = ["🙂", "👍🏽", "👩‍👩‍👧‍👦", "🇫🇷🇩🇪", "❤️", "🏴‍☠️", "\U0001f9ff"]
MANY = ["a", " ", "é", "今", "\n", "\u0301", "\u200d", "\ufeff", "\x00", "the", " river", *EMOJI, *SPECIAL_TOKENS]
TEXTS = st.one_of(
    st.text(max_size=20), st.lists(st.sampled_from(MANY), max_size=12).map("".join), st.sampled_from(strings_alone())
)

DICE = st.integers(0, 2**32).map(random.Random)
"""One draw for a whole spelling: a draw for each token takes hypothesis many times longer."""


def byte_fallback_tokenizer(folder: Path) -> Tokenizer:
    """SentencePiece's kind: bytes as <0xNN>, one leading space that decoding drops."""
    vocab = {"<unk>": 0, "</s>": 1} | {f"<0x{b:02X}>": b + 2 for b in range(256)}
    vocab |= {piece: 258 + rank for rank, piece in enumerate(["▁", "a", "▁a", "é", "今", "the", "▁the", "🙂"])}
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    end = {"id": 1, "content": "</s>", "special": True, "normalized": False}
    end |= {"single_word": False, "lstrip": False, "rstrip": False}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": True, "unk_token": "<unk>"}
    description = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": model,
    }
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(description))
    return Tokenizer.load(folder)


class Pieces:
    """A vocabulary by its bytes, to spell any bytes in any way."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.special = [i for i in range(tokenizer.vocab_size) if tokenizer.is_special(i)]
        self._by_first: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
        for i in range(tokenizer.vocab_size):
            if piece := tokenizer.token_bytes(i):
                self._by_first[piece[0]].append((piece, i))

    def spell(self, dice: random.Random, raw: bytes) -> list[int]:
        """Ids whose bytes are `raw`, special tokens among them, which have none."""
        ids: list[int] = []
        at = 0
        while at < len(raw):
            fitting = [(piece, i) for piece, i in self._by_first[raw[at]] if raw.startswith(piece, at)]
            piece, i = dice.choice(fitting)
            ids += [i] if dice.random() < 0.8 else [i, dice.choice(self.special)]
            at += len(piece)
        return ids


@pytest.fixture(scope="module", params=["byte level", "byte fallback", "replay"])
def pieces(request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    kind: str = request.param
    if kind == "byte level":
        return Pieces(Tokenizer.load(tiny))
    if kind == "byte fallback":
        return Pieces(byte_fallback_tokenizer(tmp_path_factory.mktemp("fallback") / "model"))
    return Pieces(replay_tokenizer(300))


def commits(dice: random.Random, ids: Sequence[int]) -> list[Committed]:
    """`ids` as a verifier may commit them."""
    found, at = [], 0
    while at < len(ids):
        n = dice.randint(1, 6)
        found.append(Committed(at, tuple(ids[at : at + n])))
        at += n
    return found


def finish(text_end: int | None = None) -> Finished:
    return Finished(FinishReason.STOP_TOKEN, text_end, Totals())


@given(DICE, TEXTS)
def test_any_split_streams_to_the_same_text(pieces: Pieces, dice: random.Random, text: str) -> None:
    ids = pieces.spell(dice, text.encode("utf-8", errors="surrogatepass"))
    turn = TurnText(pieces.tokenizer, TurnRequest(), 0.0, WireTotals())
    shown = "".join([*(turn.committed(c).text for c in commits(dice, ids)), turn.finished(finish()).text])
    expected = text.removeprefix(" ") if pieces.tokenizer.drops_first_space else text
    assert shown == expected == pieces.tokenizer.decode(ids) == "".join(turn.pieces)
    assert turn.token_ids == ids


@given(DICE, st.one_of(st.binary(max_size=12), TEXTS.map(lambda text: text.encode()[:-1])))
def test_bytes_that_are_no_text_stream_to_what_they_decode_to(pieces: Pieces, dice: random.Random, raw: bytes) -> None:
    """A turn may end in the middle of a character, and a model may sample bytes that are no UTF-8 at all."""
    ids = pieces.spell(dice, raw)
    turn = TurnText(pieces.tokenizer, TurnRequest(), 0.0, WireTotals())
    shown = "".join([*(turn.committed(c).text for c in commits(dice, ids)), turn.finished(finish()).text])
    assert shown == pieces.tokenizer.decode(ids)


@given(DICE, TEXTS)
def test_what_is_shown_dimmed_is_what_will_be_shown_if_it_is_right(
    pieces: Pieces, dice: random.Random, text: str
) -> None:
    ids = pieces.spell(dice, text.encode())
    whole = pieces.tokenizer.decode(ids)
    turn = TurnText(pieces.tokenizer, TurnRequest(stop_strings=("\x01\x02",)), 0.0, WireTotals())
    shown, done = "", 0
    for commit in commits(dice, ids):
        shown += turn.committed(commit).text
        done += len(commit.tokens)
        ahead = ids[done : done + dice.randint(0, 8)]
        dimmed = turn.behind(ahead)
        assert whole.startswith(shown + dimmed)
        assert turn.behind(ids[done:]) == whole[len(shown) :]
        assert turn.behind(ahead) == dimmed, "looking changes nothing"
    assert shown + turn.finished(finish()).text == whole


@given(DICE, st.sampled_from(["🙂", "é今", "a a", "the", "\u200d👧"]), TEXTS, TEXTS)
def test_a_stop_string_cuts_where_the_verifier_says_however_it_is_split(
    pieces: Pieces, dice: random.Random, stop: str, before: str, after: str
) -> None:
    ids = pieces.spell(dice, (before + stop + after).encode())
    whole = pieces.tokenizer.decode(ids)
    at = whole.find(stop)
    needed = next(n for n in range(len(ids) + 1) if stop in TextStream(pieces.tokenizer).push(ids[:n]))
    turn = TurnText(pieces.tokenizer, TurnRequest(stop_strings=(stop,)), 0.0, WireTotals())
    shown = ""
    assert turn.behind(ids) == whole[:at]
    for commit in commits(dice, ids[:needed]):
        shown += turn.committed(commit).text
        assert whole[:at].startswith(shown), "nothing that a stop string may hold was shown"
        assert shown + turn.behind(ids[len(turn.token_ids) :]) == whole[:at]
    assert shown + turn.finished(finish(len(whole[:at].encode()))).text == whole[:at]


@given(DICE, st.binary(max_size=16))
def test_peeking_is_pushing_without_taking(pieces: Pieces, dice: random.Random, raw: bytes) -> None:
    ids = pieces.spell(dice, raw)
    cut = dice.randint(0, len(ids))
    stream = TextStream(pieces.tokenizer)
    stream.push(ids[:cut])
    peeked = stream.peek(ids[cut:])
    assert stream.peek(ids[cut:]) == peeked == stream.push(ids[cut:])
