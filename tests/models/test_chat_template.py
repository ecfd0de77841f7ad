"""Templates render as their authors tested them, and cannot do more than render."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acespec.models.chat_template import ChatTemplate
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import UsageError
from tests.tiny import tiny_model_folder

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "ü"}]


def render(source: str, **kwargs: object) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(CHAT, add_generation_prompt=True, **kwargs)


def test_chatml(tiny: Path) -> None:
    tokenizer = Tokenizer.load(tiny)
    turns = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n<|im_start|>user\nü<|im_end|>\n"
    assert tokenizer.apply_chat(CHAT) == turns + "<|im_start|>assistant\n"
    assert tokenizer.apply_chat(CHAT, add_generation_prompt=False) == turns


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages | length }}", "<s>3"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "user"),
        ("{{ {'b': 'ü<', 'a': 1} | tojson }}", '{"b": "ü<", "a": 1}'),
        ("a{% generation %}{{ messages[1]['content'] }}{% endgeneration %}b", "aHob"),
        ("{{ strftime_now('%Y') | length }}{{ tools is none }}{{ thinking }}", "4Trueno"),
    ],
)
def test_dialect(source: str, text: str) -> None:
    assert render(source, thinking="no") == text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses this conversation: roles must alternate"),
        ("{% for %}", "refuses"),
        ("{{ ''.__class__.__mro__ }}", "refuses"),
        ("{{ messages.append(1) }}", "refuses"),
        ("{{ 1 + 'a' }}", "fails on this conversation"),
    ],
)
def test_refusals_are_one_clear_line(source: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        render(source)


def test_where_templates_are_found(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())

    def state(template: object) -> Tokenizer:
        (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
        return Tokenizer.load(folder)

    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    assert state(several).apply_chat(CHAT) == "plain"
    assert state(several).with_template("mine").apply_chat(CHAT) == "mine"
    with pytest.raises(UsageError, match="no chat template"):
        state(None).apply_chat(CHAT)
    (folder / "chat_template.jinja").write_text("beside {{ eos_token }}")
    assert state("in config").apply_chat(CHAT) == "beside <|im_end|>"
