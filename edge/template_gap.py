"""What a chat template puts behind an answer, up to where the next one begins.

It is found by rendering the conversation around a stand-in answer. So the ids of what was said stay as they are, and
only the gap is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acespec.models.tokenizer import Tokenizer

Message = Mapping[str, str]

STAND_IN = "acespec"
"""Any answer that templates neither trim nor read anything into."""


def gap_behind(
    tokenizer: Tokenizer, before: Sequence[Message], after: Sequence[Message], variables: Mapping[str, object]
) -> str | None:
    """The text between an answer to `before` and the answer to the whole; None if the template is not made that way.

    Args:
        after: the messages behind the answer.
        variables: further ones of the template.
    """
    prompt = render(tokenizer, before, variables) + STAND_IN
    whole = render(tokenizer, [*before, {"role": "assistant", "content": STAND_IN}, *after], variables)
    return whole.removeprefix(prompt) if whole.startswith(prompt) else None


def render(tokenizer: Tokenizer, messages: Sequence[Message], variables: Mapping[str, object]) -> str:
    """A conversation as text, ready for the next answer.

    Raises:
        UsageError: the template refuses it.
    """
    return tokenizer.apply_chat(messages, add_generation_prompt=True, **variables)
