"""A history that comes back as text gets its ids back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.proxy.conversations import Conversations
from acespec.models.tokenizer import Tokenizer
from tests.e2e.local import tiny_folder

TOKENIZER = Tokenizer.load(tiny_folder("llama"))
NONE: dict[str, object] = {}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def letters(text: str) -> list[int]:
    """Ids that spell `text` byte by byte: not those that it encodes to."""
    return [next(i for i in range(3, 259) if TOKENIZER.token_bytes(i) == bytes([byte])) for byte in text.encode()]


def spoken(talk: Conversations, messages: list[dict[str, str]], text: str, *, ended: bool = True) -> list[int]:
    """Let the model answer `text` in odd tokens; the whole sequence."""
    prompt = talk.prompt(messages, NONE).ids
    generated = letters(text) + ([TOKENIZER.eos_ids[0]] if ended else [])
    talk.answered(messages, NONE, prompt, generated, text)
    return prompt + generated


def as_text(ids: list[int]) -> str:
    return TOKENIZER.decode(ids, skip_special=False)


def test_a_first_question_is_what_the_template_makes_of_it() -> None:
    prompt = Conversations(TOKENIZER).prompt([user("hello")], NONE)
    assert prompt.text is not None
    assert prompt.ids == TOKENIZER.encode(prompt.text)
    assert prompt.known == 0


def test_the_second_question_keeps_the_ids_of_the_first_answer() -> None:
    talk = Conversations(TOKENIZER)
    whole = spoken(talk, [user("hello")], "the river")
    assert whole != TOKENIZER.encode(as_text(whole)), "the test's tokens are not those of its text"
    messages = [user("hello"), assistant("the river"), user("and then?")]
    prompt = talk.prompt(messages, NONE)
    assert prompt.ids[: len(whole)] == whole
    assert prompt.known == len(whole)
    assert as_text(prompt.ids) == TOKENIZER.apply_chat(messages)


@given(
    answers=st.lists(st.text("abc .\n", min_size=1, max_size=12).filter(str.strip), min_size=1, max_size=5),
    ended=st.booleans(),
)
def test_a_long_talk_only_grows(answers: list[str], ended: bool) -> None:
    talk, messages, whole = Conversations(TOKENIZER), [], list[int]()
    for number, answer in enumerate(answers):
        messages.append(user(f"question {number}"))
        prompt = talk.prompt(messages, NONE)
        assert prompt.ids[: len(whole)] == whole
        assert as_text(prompt.ids) == TOKENIZER.apply_chat(messages)
        whole = spoken(talk, messages, answer, ended=ended)
        messages.append(assistant(answer))


def test_an_answer_that_was_left_early_is_known_as_far_as_it_was_read() -> None:
    talk = Conversations(TOKENIZER)
    whole = spoken(talk, [user("hello")], "the river was low", ended=False)
    messages = [user("hello"), assistant("the river"), user("go on")]
    prompt = talk.prompt(messages, NONE)
    assert prompt.known == len(whole) - len(" was low")
    assert prompt.ids[: prompt.known] == whole[: prompt.known]
    assert as_text(prompt.ids) == TOKENIZER.apply_chat(messages)


def test_half_a_character_is_encoded_anew() -> None:
    talk = Conversations(TOKENIZER)
    prompt = talk.prompt([user("x")], NONE).ids
    talk.answered([user("x")], NONE, prompt, [*letters("aé"), *letters("ü!")], "aéü!")
    messages = [user("x"), assistant("aé"), user("y")]
    again = talk.prompt(messages, NONE)
    assert again.known == len(prompt) + 3
    assert as_text(again.ids) == TOKENIZER.apply_chat(messages)


def test_what_a_stop_string_cut_off_is_not_kept() -> None:
    talk = Conversations(TOKENIZER)
    prompt = talk.prompt([user("x")], NONE).ids
    talk.answered([user("x")], NONE, prompt, letters("one two"), "one")
    messages = [user("x"), assistant("one"), user("y")]
    again = talk.prompt(messages, NONE)
    assert again.known == len(prompt) + 3
    assert as_text(again.ids) == TOKENIZER.apply_chat(messages)


def test_space_around_an_answer_does_not_count() -> None:
    talk = Conversations(TOKENIZER)
    whole = spoken(talk, [user("hello")], " the river\n")
    again = talk.prompt([user("hello"), assistant("the river"), user("more")], NONE)
    assert again.ids[: len(whole)] == whole


def test_an_edited_history_is_encoded_from_the_edit_on() -> None:
    talk = Conversations(TOKENIZER)
    first = spoken(talk, [user("a")], "one")
    spoken(talk, [user("a"), assistant("one"), user("b")], "two")
    messages = [user("a"), assistant("one"), user("b"), assistant("other"), user("c")]
    prompt = talk.prompt(messages, NONE)
    assert prompt.known == len(first)
    assert as_text(prompt.ids) == TOKENIZER.apply_chat(messages)
    strange = [user("A"), assistant("one"), user("b")]
    assert talk.prompt(strange, NONE).known == 0
    assert as_text(talk.prompt(strange, NONE).ids) == TOKENIZER.apply_chat(strange)


def test_of_two_answers_to_one_question_the_one_that_was_said_counts() -> None:
    talk = Conversations(TOKENIZER)
    one, other = spoken(talk, [user("a")], "one"), spoken(talk, [user("a")], "other")
    for text, whole in (("one", one), ("other", other)):
        assert talk.prompt([user("a"), assistant(text), user("b")], NONE).ids[: len(whole)] == whole


def test_memory_is_bounded_and_the_least_recent_answer_goes_first() -> None:
    talk = Conversations(TOKENIZER, room=300)
    for number in range(20):
        spoken(talk, [user(f"q{number}")], "an answer that has some length")
        talk.prompt([user("q0"), assistant("an answer that has some length"), user("z")], NONE)
    assert talk.prompt([user("q0"), assistant("an answer that has some length"), user("z")], NONE).known
    assert not talk.prompt([user("q1"), assistant("an answer that has some length"), user("z")], NONE).known


def test_a_template_without_the_usual_form_gets_everything_encoded() -> None:
    backwards = TOKENIZER.with_template(
        "{% for m in messages | reverse %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    )
    talk = Conversations(backwards)
    messages = [user("a")]
    talk.answered(messages, NONE, talk.prompt(messages, NONE).ids, letters("one"), "one")
    later = [*messages, assistant("one"), user("b")]
    prompt = talk.prompt(later, NONE)
    assert prompt.known == 0
    assert prompt.ids == backwards.encode(backwards.apply_chat(later))
