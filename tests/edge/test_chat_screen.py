"""What an answer looks like while it is written, and what is left of it: on a terminal that wraps lines anew."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acespec.edge.chat.cells import advance, clusters, fitting, harmless
from acespec.edge.chat.screen import AHEAD_ROWS, Screen, Status
from tests.edge.chat_terminal import Terminal

STATUS = Status("41 Kbps · RTT 102 ms")
ACCENT = "\u0301"
LETTERS = st.sampled_from("abc de\n漢字é🙂" + ACCENT)


@dataclass
class Stage:
    terminal: Terminal
    screen: Screen

    @classmethod
    def of(cls, width: int = 20, height: int = 8) -> Stage:
        terminal = Terminal(width, height)
        screen = Screen(terminal.write, lambda: (terminal.width, terminal.height))
        screen.begin()
        return cls(terminal, screen)


def test_guesses_stand_dimmed_behind_what_is_final_and_the_status_below() -> None:
    stage = Stage.of()
    stage.screen.show("The river", " is long", STATUS)
    assert stage.terminal.screen() == ["The river is long", "41 Kbps · RTT 102 …"]
    assert stage.terminal.text(dim=False) == "The river\n"
    assert not stage.terminal.cursor


def test_a_wrong_guess_is_replaced_in_place() -> None:
    stage = Stage.of()
    stage.screen.show("The river", " is long", STATUS)
    stage.screen.show(" was", " deep", STATUS)
    assert stage.terminal.screen()[0] == "The river was deep"
    assert stage.terminal.text(dim=False) == "The river was\n"


def test_at_the_end_nothing_but_the_answer_stays() -> None:
    stage = Stage.of()
    stage.screen.show("The river", " is long", STATUS)
    stage.screen.end(" was deep.")
    assert stage.terminal.text() == "The river was deep.\n"
    assert stage.terminal.cursor
    assert stage.terminal.column == 0


def test_long_guesses_are_cut() -> None:
    stage = Stage.of(width=10)
    stage.screen.show("abc", "x" * 100, STATUS)
    screen = stage.terminal.screen()
    assert len(screen) == AHEAD_ROWS + 1
    assert screen[AHEAD_ROWS - 1] == "x" * 9 + "…"


def test_a_long_answer_is_written_once_and_scrolls_away_whole() -> None:
    stage = Stage.of(width=30, height=5)
    answer = " ".join(f"word{n}" for n in range(400))
    for at in range(0, len(answer), 7):
        stage.screen.show(answer[at : at + 7], answer[at + 7 : at + 20], Status(""))
    stage.screen.end()
    assert unfolded(stage.terminal.text(), answer)
    assert all(set(row.split()) <= set(answer.split()) for row in stage.terminal.screen())
    frames = len(answer) // 7 + 1
    assert stage.terminal.written < len(answer) + frames * (13 + len(" word999"))  # guesses, and the last word twice


def test_prose_breaks_between_words_and_code_is_left_to_the_terminal() -> None:
    stage = Stage.of(width=12)
    text = "one two three four\n```\nfive = six + seven\n```\neight nine ten eleven\n" + "x" * 30 + " 漢字漢字漢字漢字"
    for character in text:
        stage.screen.show(character, "", STATUS)
    stage.screen.end()
    assert stage.terminal.text().split("\n") == [
        "one two ",
        "three four",
        "```",
        "five = six + seven",
        "```",
        "eight nine ",
        "ten eleven",
        "x" * 30 + " 漢字漢字漢字漢字",
        "",
    ]


def test_a_word_that_grows_too_long_moves_to_the_next_row() -> None:
    stage = Stage.of(width=12)
    stage.screen.show("the grav", "itational", STATUS)
    stage.screen.show("", "ity", STATUS)
    assert stage.terminal.screen()[0] == "the gravity"
    stage.screen.show("itation", " is", STATUS)
    assert stage.terminal.screen()[:2] == ["the ", "gravitation "]
    assert stage.terminal.text(dim=False).split("\n")[:2] == ["the ", "gravitation"]


def test_nothing_is_written_if_nothing_changes() -> None:
    stage = Stage.of()
    stage.screen.show("abc", "d", STATUS)
    written = stage.terminal.written
    stage.screen.show("", "d", STATUS)
    assert stage.terminal.written == written


def test_what_would_steer_the_terminal_is_made_visible() -> None:
    stage = Stage.of(width=60)
    stage.screen.show("a\x1b[2Jb\x07\x9bc\r\nd\te", "\x1b]0;x\x07", STATUS)
    stage.screen.end()
    assert stage.terminal.text() == "a␛[2Jb␇\ufffdc\nd    e\n"


def test_an_accent_that_comes_late_joins_its_letter() -> None:
    stage = Stage.of()
    stage.screen.show("cafe", "xx", STATUS)
    stage.screen.show("\u0301 noir", "", STATUS)
    stage.screen.end()
    assert stage.terminal.text() == "cafe\u0301 noir\n"


SHOWS = st.lists(
    st.tuples(
        st.text(LETTERS, max_size=12),
        st.text(LETTERS, max_size=30),
        st.sampled_from(["", "status", "a status line that is too long for it"]),
        st.none() | st.tuples(st.integers(4, 24), st.integers(3, 9)),
    ),
    max_size=12,
)


def with_letters(before: str, text: str) -> str:
    """No accent without a letter before it: terminals differ there."""
    kept = ""
    for character in text:
        if character != ACCENT or (before + kept)[-1:] not in ("", " ", "\n"):
            kept += character
    return kept


def unfolded(seen: str, text: str) -> bool:
    """True if `seen` is `text`, but for newlines in place of blanks, blanks at a row's end, and an empty last line."""
    pattern = "".join(
        re.escape(piece) if not piece.startswith(" ") else f"(?:{piece}| {{0,{len(piece)}}}(?:\n|(?=\n)|$))"
        for piece in re.split("( +)", text)
    )
    return re.fullmatch(pattern + "\n?", seen) is not None


@settings(max_examples=200, deadline=None)
@given(SHOWS)
@example([("abcdefghij", "x", "s", None), ("abcdefghijklmnopqrst", "", "s", (10, 4)), ("z", "yy", "s", (20, 5))])
def test_whatever_comes_and_however_it_is_resized_the_answer_stays(
    shows: list[tuple[str, str, str, tuple[int, int] | None]],
) -> None:
    stage = Stage.of()
    final = ""
    for text, ahead, status, size in shows:
        if size is not None:
            stage.terminal.resize(*size)
        text, ahead = with_letters(final, text), ahead.lstrip(ACCENT)
        stage.screen.show(text, ahead, Status(status))
        final += text
        assert stage.terminal.text(dim=False).split() == final.split()
    stage.screen.end()
    assert unfolded(stage.terminal.text(), final)


@given(st.text(LETTERS, max_size=40), st.integers(0, 9), st.integers(1, 4))
def test_what_fits_fits(text: str, column: int, rows: int) -> None:
    shown = fitting(column, text, 10, rows)
    assert advance(column, shown, 10)[0] < rows or not shown
    if shown != text:
        assert shown.endswith("…")
        assert advance(column, text, 10)[0] >= rows


@pytest.mark.parametrize(
    ("text", "cells"),
    [("abc", 3), ("漢字", 4), ("🙂", 2), ("e\u0301", 1), ("👩‍🚀", 2), ("❤️", 2), ("", 0)],
)
def test_widths_are_those_of_terminals(text: str, cells: int) -> None:
    assert advance(0, text, 80) == (0, cells)
    assert "".join(cluster for cluster, _ in clusters(text)) == text
    assert harmless(text) == text
