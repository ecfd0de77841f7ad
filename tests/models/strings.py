"""Strings that tokenizers disagree about."""

from __future__ import annotations

import random

_SPACES = [" " * n for n in (1, 2, 3, 4, 7, 8, 15, 16, 31)] + [
    "\t",
    "\t\t",
    " \t ",
    "\n",
    "\n\n",
    "\r\n",
    " \n ",
    "\u00a0",
    "\u3000",
]
_DIGITS = [
    "0",
    "42",
    "1987",
    "3.14159",
    "1,000,000",
    "0x1F",
    "1e-5",
    "٣٤٥",
    "१२",
    "½",
    "²",
    "Ⅻ",
    "2026-11-30T12:00:00Z",
]
_WORDS = [
    "Hello, world!", "don't", "DON'T", "we'll they've I'm it'd", "naïve café", "Straße", "ǅ", "ﬁnance", "l’été",
    "e\u0301a\u0300", "Å Å", "한국어 텍스트", "한", "日本語のテキスト", "今日は、天気がいい。", "中文混合English文字",
    "Привет мир", "שלום עולם", "مرحبا بالعالم", "สวัสดีชาวโลก", "नमस्ते", "Ελληνικά", "İstanbul ı",
    "Zalgo ḧ̶̢e̷͍͝", "\u200bzero\u200dwidth\ufeff",
]  # fmt: skip
_EMOJI = ["🙂", "👍🏽", "👩‍👩‍👧‍👦", "🇫🇷🇩🇪", "❤️", "a🙂b", "🙂 🙂", "🏴‍☠️", "©®™", "→ ⇒ ∀∃∈", "𝔘𝔫𝔦", "\U0001f9ff" * 5]
_CODE = [
    "def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i];\n}", "#include <stdio.h>",
    "SELECT * FROM t WHERE a='b';", "<div class=\"x\">&nbsp;</div>", "{\"a\": [1, 2.5, null]}",
    "https://example.org/a?b=c#d",
    "x=1;y=2", "a_b_c", "camelCaseWord", "--flag=value",
    "/usr/bin/env", "C:\\Users\\x", "$\\frac{a}{b}$", "```py\n1\n```",
    "!!!???...", "(((a)))", "[[]]", "'''", '"""', "@#$%^&*", "~`|", "\\n", "__init__",
]  # fmt: skip
_SPECIAL = [
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "a<|im_end|>b", " <|im_end|> ",
    "<|endoftext|>", "<|im_start", "<|im_end|><|im_end|>", "<|IM_START|>",
    "<repo_name>x", "<empty_output>", "<|unknown|>",
]  # fmt: skip
_EDGES = [
    "",
    " ",
    "a",
    " a",
    "a ",
    "  a  ",
    "\x00",
    "\x01\x7f",
    "\u2028",
    "\uffff",
    "a" * 300,
    "ab " * 100,
    "\ud7ff\ue000",
]


_KINDS = [_SPACES, _DIGITS, _WORDS, _EMOJI, _CODE, _SPECIAL, _EDGES]


def strings_alone() -> list[str]:
    """Each string of each kind by itself."""
    return [text for kind in _KINDS for text in kind]


def varied_strings() -> list[str]:
    """More than 200 strings: each kind by itself, and seeded mixtures of all."""
    choose = random.Random(7)
    return strings_alone() + ["".join(choose.choice(choose.choice(_KINDS[:-1])) for _ in range(8)) for _ in range(100)]
