from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from acespec.models.replay_tokenizer import replay_model, replay_tokenizer, replay_vocabulary
from acespec.proto.errors import UsageError
from acespec.proto.replay_text import (
    FIRST_WORD,
    RecordedText,
    Recording,
    SyntheticText,
    end_id,
    mix,
    read_recordings,
    replay_text,
)
from acespec.sim.trace_file import Trace, TraceSource, write_traces

VOCAB = 1000


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_synthetic_token_is_a_word_whatever_the_prompt(seed: int, position: int, prompt_len: int) -> None:
    text = SyntheticText(VOCAB)
    token = text.token(seed, position, prompt_len)
    assert FIRST_WORD <= token < end_id(VOCAB)
    assert token == text.token(seed, position, 0)


def test_synthetic_tokens_are_spread_and_differ_by_seed() -> None:
    text = SyntheticText(FIRST_WORD + 11)
    counts = Counter(text.token(3, position, 0) for position in range(10_000))
    assert len(counts) == 10
    assert all(850 < count < 1150 for count in counts.values())
    same = sum(text.token(3, p, 0) == text.token(4, p, 0) for p in range(10_000))
    assert 850 < same < 1150, "two seeds agree by chance only"


def test_mix_is_pinned() -> None:
    """Both ends must agree on it, whatever their versions. The first is SplitMix64's own first output for seed 0."""
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(5, 7) == 0x8EA5269B74DEE2BC
    assert mix(5, ~7) == 0x1B4B7C3E7480832E
    assert mix(7, 5) != mix(5, 7)


def test_a_recorded_text_is_chosen_by_the_seed_and_ends() -> None:
    text = RecordedText(((5, 6), (7, 8, 9)), VOCAB)
    assert [text.token(2, p, 10) for p in range(10, 14)] == [5, 6, end_id(VOCAB), end_id(VOCAB)]
    assert [text.token(3, p, 10) for p in range(10, 14)] == [7, 8, 9, end_id(VOCAB)]
    assert text.name != RecordedText(((5, 6), (7, 8, 8)), VOCAB).name
    assert text.name != RecordedText(((5, 6, 7), (8, 9)), VOCAB).name


def test_recordings_are_read_plain_and_compressed(tmp_path: Path) -> None:
    lines = b'{"ids": [1, 2], "ranks": [0, 3], "probabilities": [0.9, 0.25], "category": "code"}\n\n{"ids": [4]}\n'
    expected = (Recording((1, 2), (0, 3), (0.9, 0.25)), Recording((4,)))
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.zst"
    plain.write_bytes(lines)
    packed.write_bytes(zstandard.compress(lines))
    assert read_recordings(plain) == read_recordings(packed) == expected
    assert replay_text(plain, VOCAB) == RecordedText(((1, 2), (4,)), VOCAB)
    assert replay_text(None, VOCAB) == SyntheticText(VOCAB)


def test_a_recorded_acceptance_trace_can_be_replayed(tmp_path: Path) -> None:
    source = TraceSource("target", "drafter", 0.7, 1, "set", "prompt", "code", 12, VOCAB, True)
    trace = Trace(source, (5, 6), (0, 2), ((5,), (7,)), ((0.75,), (0.5,)), ((0.0,), (0.0,)), (0.9, 0.1), (True, False))
    path = tmp_path / "trace.jsonl.zst"
    write_traces(path, [trace, trace])
    assert read_recordings(path) == (Recording((5, 6), (0, 2), (0.75, 0.5)),) * 2


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[1, 2]", "line 1: not an object"),
        ('{"tokens": [1]}', "line 1: not an object"),
        ('{"ids": [1, -2]}', "-2 is not a whole number"),
        ('{"ids": [1.5]}', "1.5 is not a whole number"),
        ('{"ids": [1, 2], "ranks": [0]}', "as long as 'ids', which has 2"),
        ("nonsense", "line 1"),
    ],
)
def test_a_bad_recording_is_refused_with_its_line(line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(UsageError, match=complaint):
        read_recordings(path)


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="vocabulary of 1001 or more"):
        RecordedText(((999,),), VOCAB)
    with pytest.raises(UsageError, match="without ids"):
        RecordedText(((), ()), VOCAB)
    with pytest.raises(UsageError, match="at least 260"):
        SyntheticText(100)
    with pytest.raises(UsageError, match=r"nowhere\.jsonl"):
        read_recordings(tmp_path / "nowhere.jsonl")
    broken = tmp_path / "broken.zst"
    broken.write_bytes(b"no frame")
    with pytest.raises(UsageError, match=r"broken\.zst"):
        read_recordings(broken)


class TestTokenizer:
    def test_bytes_and_words(self) -> None:
        tokenizer = replay_tokenizer(VOCAB)
        text = "höhe 500\n"
        assert tokenizer.encode(text) == list(text.encode())
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode([300, 998, end_id(VOCAB)]) == " 300 998"
        assert tokenizer.eos_ids == (end_id(VOCAB),)
        assert tokenizer.vocab_size == VOCAB
        chat = tokenizer.apply_chat([{"role": "user", "content": "hi"}])
        assert chat == "user: hi\nassistant: "

    def test_its_fingerprint_tells_the_size(self) -> None:
        assert replay_tokenizer(VOCAB).fingerprint == replay_tokenizer(VOCAB).fingerprint
        assert replay_tokenizer(VOCAB).fingerprint != replay_tokenizer(VOCAB + 1).fingerprint

    def test_names(self) -> None:
        assert replay_vocabulary("replay") == 151_936
        assert replay_vocabulary("replay:1000") == 1000
        assert replay_vocabulary("smollm2-135m") is None
        assert replay_vocabulary("./replay") is None
        assert replay_model(1000) == "replay:1000"
        assert replay_model(151_936) == "replay"
        for bad in ("replay:", "replay:x", "replay:259", "replay:-5"):
            with pytest.raises(UsageError, match="260 or more"):
                replay_vocabulary(bad)
