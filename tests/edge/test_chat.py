"""A conversation's ids only grow, and equal what encoding it as a whole gives."""

from __future__ import annotations

import pytest

from acespec.edge.chat_ids import ChatIds
from acespec.models.tokenizer import Tokenizer
from tests.tiny import tiny_model_folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_model_folder(tmp_path_factory.mktemp("model")))


def answer_ids(tokenizer: Tokenizer, text: str, *, ended: bool = True) -> list[int]:
    return tokenizer.encode(text) + ([tokenizer.eos_ids[0]] if ended else [])


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_ids_grow_and_read_like_the_rendered_conversation(
    tokenizer: Tokenizer, ended: bool, system: str | None
) -> None:
    chat = ChatIds(tokenizer, system)
    first = chat.ask("What is the capital?")
    spoken = first + answer_ids(tokenizer, "Paris.", ended=ended)
    chat.answered(spoken, "Paris.")
    second = chat.ask("And the river?")
    assert second[: len(spoken)] == spoken
    messages = [{"role": "system", "content": system}] if system else []
    messages += [
        {"role": "user", "content": "What is the capital?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And the river?"},
    ]
    assert tokenizer.decode(second, skip_special=False) == tokenizer.apply_chat(messages)


def test_an_answer_keeps_the_ids_it_was_generated_with(tokenizer: Tokenizer) -> None:
    chat = ChatIds(tokenizer)
    first = chat.ask("Hi")
    spelled = [tokenizer.encode(letter)[0] for letter in "the river"]
    assert spelled != tokenizer.encode("the river")
    spoken = [*first, *spelled, tokenizer.eos_ids[0]]
    chat.answered(spoken, "the river")
    assert chat.ask("More")[: len(spoken)] == spoken


def test_a_template_that_rewrites_history_is_encoded_as_a_whole(tokenizer: Tokenizer) -> None:
    shouting = tokenizer.with_template(
        "{% for m in messages %}[{{ m['content'] | upper if not loop.last else m['content'] }}]{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}"
    )
    chat = ChatIds(shouting)
    first = chat.ask("one")
    chat.answered(first + shouting.encode("two"), "two")
    assert shouting.decode(chat.ask("three")) == "[ONE][TWO][three]>"


def test_a_question_without_an_answer_never_happened(tokenizer: Tokenizer) -> None:
    chat = ChatIds(tokenizer)
    chat.ask("lost")
    chat.dropped()
    assert chat.ask("Hi") == ChatIds(tokenizer).ask("Hi")
