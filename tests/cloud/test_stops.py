"""Where an answer ends, and what `min_tokens` changes about it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from acespec.cloud.stops import Stop, StopRule
from acespec.proto.messages import FinishReason

END = 0


class Letters:
    """Id n is the n-th letter; 30 and beyond are two letters each."""

    def push(self, ids: Sequence[int]) -> str:
        return "".join("xy" if i >= 30 else chr(ord("a") + i) for i in ids)


def ended_by(
    tokens: Sequence[int], strings: Sequence[str] = (), most: int = 100, least: int = 0
) -> tuple[int, Stop | None]:
    """(tokens taken, why it stopped)."""
    rule = StopRule((END,), strings, most, Letters(), least)
    for count, token in enumerate(tokens, 1):
        if stop := rule.push(token):
            return count, stop
    return len(tokens), None


def ids(text: str) -> list[int]:
    return [ord(c) - ord("a") for c in text]


def test_an_end_token_within_the_first_tokens_ends_nothing() -> None:
    for least, taken in ((0, 1), (1, 3), (2, 3), (3, 4)):
        assert ended_by([END, 5, END, END], least=least) == (taken, Stop(FinishReason.STOP_TOKEN))


def test_a_stop_string_that_the_first_tokens_complete_is_never_looked_at_again() -> None:
    text = ids("bcdbcdq")
    assert ended_by(text, ["bcd"]) == (3, Stop(FinishReason.STOP_STRING, 0))
    assert ended_by(text, ["bcd"], least=2) == (3, Stop(FinishReason.STOP_STRING, 0)), "its last token comes after them"
    assert ended_by(text, ["bcd"], least=3) == (6, Stop(FinishReason.STOP_STRING, 3))
    assert ended_by(text, ["bcd"], least=6) == (7, None)


def test_a_longer_stop_string_does_not_bring_a_barred_one_back() -> None:
    """The text that is kept for the longer one still holds the shorter one."""
    assert ended_by(ids("bcqqqq"), ["bc", "zzzzzzzz"], least=2) == (6, None)
    assert ended_by(ids("bcqqbc"), ["bc", "zzzzzzzz"], least=2) == (6, Stop(FinishReason.STOP_STRING, 4))


def test_the_limit_holds_whatever_the_least_is() -> None:
    assert ended_by([END] * 9, most=4, least=4) == (4, Stop(FinishReason.LENGTH))


@given(
    tokens=st.lists(st.sampled_from([1, 2, 3, 30]), max_size=30),
    strings=st.lists(st.text("bcdxy", min_size=1, max_size=4), min_size=1, max_size=3),
    least=st.integers(0, 12),
)
def test_it_ends_at_the_first_token_after_the_least_that_completes_a_stop_string(
    tokens: list[int], strings: list[str], least: int
) -> None:
    decode = Letters().push
    expected: tuple[int, Stop | None] = (len(tokens), None)
    for count in range(least + 1, len(tokens) + 1):
        text, before = decode(tokens[:count]), len(decode(tokens[: count - 1]))
        starts = [at for s in strings for at in range(len(text)) if text.startswith(s, at) and at + len(s) > before]
        if starts:
            expected = (count, Stop(FinishReason.STOP_STRING, min(starts)))
            break
    assert ended_by(tokens, strings, least=least) == expected
