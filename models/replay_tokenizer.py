"""A tokenizer without a model, for replays: bytes and numbered words. Both ends make the same one from its size alone.

Ids below 256 are the bytes of prompts; id n above is the word " n", so that replayed text can be read; the last id ends
a text.
"""

from __future__ import annotations

from acespec.models.chat_template import ChatTemplate
from acespec.models.token_bytes import BYTE_OF_CHARACTER
from acespec.models.tokenizer import BYTE_LEVEL, Tokenizer
from acespec.proto.errors import UsageError
from acespec.proto.replay_text import FIRST_WORD, SMALLEST_VOCABULARY, end_id

NAME = "replay"
DEFAULT_VOCABULARY = 151_936
"""Qwen's: 18 bits an id."""
END = "<|end|>"
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def replay_vocabulary(model: str) -> int | None:
    """The vocabulary size that `replay` or `replay:SIZE` names; None for the name of a real model.

    Raises:
        UsageError: SIZE is no number, or too small.
    """
    name, colon, size = model.partition(":")
    if name != NAME:
        return None
    if not colon:
        return DEFAULT_VOCABULARY
    if not size.isdecimal() or int(size) < SMALLEST_VOCABULARY:
        raise UsageError(f"model {model}: give the vocabulary as {NAME}:SIZE, {SMALLEST_VOCABULARY} or more")
    return int(size)


def replay_model(vocab_size: int) -> str:
    """The name that `replay_vocabulary` reads."""
    return NAME if vocab_size == DEFAULT_VOCABULARY else f"{NAME}:{vocab_size}"


def replay_tokenizer(vocab_size: int) -> Tokenizer:
    """The tokenizer of that size; takes a fraction of a second for a large one."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Encoder

    words = {f"\u0120{i}": i for i in range(FIRST_WORD, end_id(vocab_size))}
    encoder = Encoder(models.BPE(vocab=dict(BYTE_OF_CHARACTER) | words, merges=[]))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken(END, special=True)])
    return Tokenizer(encoder, {BYTE_LEVEL}, (), (end_id(vocab_size),), ChatTemplate(TEMPLATE, {}))
