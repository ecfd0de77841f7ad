"""What the chat does by itself: commands, figures, saved conversations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acespec.edge.chat.slash import SlashCommands, quits
from acespec.edge.chat.tally import Tally
from acespec.edge.chat_ids import ChatIds
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto.replay_text import FIRST_WORD
from tests.edge.test_cli import make_completion

TOKENIZER = replay_tokenizer(1000)


@pytest.fixture
def chat() -> ChatIds:
    chat = ChatIds(TOKENIZER, "Be brief.")
    ids = chat.ask("Hi *there*")
    chat.answered([*ids, FIRST_WORD], " 256")
    return chat


@pytest.fixture
def commands(chat: ChatIds) -> SlashCommands:
    return SlashCommands(chat, Tally())


def test_every_command_is_in_the_help(commands: SlashCommands) -> None:
    told = commands.answer("/help", strict=True)
    assert told is not None
    assert all(name in told for name in commands.names if name != "/help")


@pytest.mark.parametrize("line", ["hello", "/etc/passwd is what?", "/ what", "what is /help?", "/Help", "1/2"])
def test_a_question_is_no_command(commands: SlashCommands, line: str) -> None:
    assert commands.answer(line, strict=True) is None


def test_a_slip_is_told_only_to_a_person(commands: SlashCommands) -> None:
    assert commands.answer("/sytem x", strict=False) is None
    assert "/sytem" in (commands.answer("/sytem x", strict=True) or "")


def test_reset_keeps_the_system_message(commands: SlashCommands, chat: ChatIds) -> None:
    commands.answer("/reset", strict=True)
    assert chat.ask("x") == ChatIds(TOKENIZER, "Be brief.").ask("x")


def test_system_shows_and_sets(commands: SlashCommands, chat: ChatIds) -> None:
    assert commands.answer("/system", strict=True) == "Be brief."
    commands.answer("/system  Sing.\nLoudly. ", strict=True)
    assert chat.system == "Sing.\nLoudly."
    assert chat.ask("x") == ChatIds(TOKENIZER, "Sing.\nLoudly.").ask("x")


def test_a_saved_conversation_can_be_read_again(commands: SlashCommands, chat: ChatIds, tmp_path: Path) -> None:
    commands.answer(f"/save {tmp_path / 'talk.json'}", strict=True)
    messages = json.loads((tmp_path / "talk.json").read_text())["messages"]
    assert messages == [dict(m) for m in chat.messages]
    assert [m["content"] for m in messages] == ["Be brief.", "Hi *there*", " 256"]
    commands.answer(f"/save {tmp_path / 'talk.md'}", strict=True)
    assert "## You\n\nHi *there*\n" in (tmp_path / "talk.md").read_text()


def test_saving_overwrites_nothing_and_says_why_not(commands: SlashCommands, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    assert "exists" in (commands.answer(f"/save {kept}", strict=True) or "")
    assert kept.read_text() == "kept"
    assert "cannot write" in (commands.answer(f"/save {tmp_path}/no/such/file", strict=True) or "")
    assert "FILE" in (commands.answer("/save", strict=True) or "")


def test_stats_add_up() -> None:
    tally = Tally()
    assert "no finished answer" in tally.report()
    tally.finished(make_completion(4))
    tally.finished(make_completion(6))
    tally.stopped(3)
    report = tally.report()
    assert "answers     2, and 1 stopped after 3 tokens" in report
    assert "tokens      10 in 4.0 s, 2.5/s" in report
    assert "4 of 6 accepted, AL 1.00, 4 verify steps" in report
    assert "up 400 down 600, 100 a token" in report


def test_quit_has_its_usual_names() -> None:
    assert all(map(quits, ("/quit", " /exit ", "/bye")))
    assert not quits("/quit now")
