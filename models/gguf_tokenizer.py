"""GGUF vocabulary -> `tokenizer.json` and `tokenizer_config.json`.

A GGUF file holds tokens, their types and the merges; how text is cut before merging it only names (`pre`). The
cutting rules below are those that the name stands for, in the form of the `tokenizers` library.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from acespec.models.gguf_file import GgufFile
from acespec.proto.errors import UnsupportedModel

CONTROL, USER_DEFINED, UNUSED, BYTE = 3, 4, 5, 6
END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "</s>")
"""Control tokens that end a text or a turn wherever they exist, beside the one that the file names."""

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_GPT2_WORDS = _BYTE_LEVEL | {"use_regex": True}


def _words(digits: str) -> dict[str, object]:
    """The cutting rule that Llama 3 and Qwen 2 share but for how many digits stay together."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_PRE: Mapping[str, tuple[dict[str, object], ...]] = MappingProxyType(
    {
        "smollm": ({"type": "Digits", "individual_digits": True}, _GPT2_WORDS),
        "qwen2": (_words(r"\p{N}"), _BYTE_LEVEL),
        "llama-bpe": (_words(r"\p{N}{1,3}"), _BYTE_LEVEL),
        "gpt-2": (_GPT2_WORDS,),
    }
)
_ALIASES = MappingProxyType({"llama3": "llama-bpe", "llama-v3": "llama-bpe"})


def tokenizer_json(file: GgufFile) -> dict[str, object]:
    """The `tokenizer.json` of the file. Raises UnsupportedModel for a kind of tokenizer that is not known."""
    pre = _pre_name(file)
    tokens, types = _tokens(file)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(token_id, tokens[token_id], kind == CONTROL)
            for token_id, kind in enumerate(types)
            if kind in (CONTROL, USER_DEFINED)
        ],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(_PRE[pre])},
        "post_processor": _post_processor(file, tokens),
        "decoder": dict(_BYTE_LEVEL),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind != UNUSED},
            "merges": [merge.split(" ", 1) for merge in file.strings("tokenizer.ggml.merges")],
        },
    }


def tokenizer_config(file: GgufFile) -> dict[str, object]:
    """The `tokenizer_config.json` of the file, with its chat template if it has one."""
    tokens, _ = _tokens(file)
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.integer("{arch}.context_length"),
        "add_bos_token": _adds_bos(file),
    }
    for key, name in (("bos", "bos"), ("eos", "eos"), ("padding", "pad"), ("unknown", "unk")):
        token_id = file.integer(f"tokenizer.ggml.{key}_token_id", -1)
        if 0 <= token_id < len(tokens):
            config[f"{name}_token"] = tokens[token_id]
    if template := file.text("tokenizer.chat_template", ""):
        config["chat_template"] = template
    return config


def end_ids(file: GgufFile) -> list[int]:
    """Ids that end a text: the file's own first, then every well-known end token that is a control token."""
    tokens, types = _tokens(file)
    named = [file.integer(f"tokenizer.ggml.{key}_token_id", -1) for key in ("eos", "eot", "eom")]
    wanted = {token: i for i, token in enumerate(tokens) if types[i] == CONTROL and token in END_TOKENS}
    known = [wanted[token] for token in END_TOKENS if token in wanted]
    return list(dict.fromkeys(i for i in named + known if 0 <= i < len(tokens)))


def _pre_name(file: GgufFile) -> str:
    model = file.text("tokenizer.ggml.model")
    pre = file.text("tokenizer.ggml.pre", "missing")
    name = _ALIASES.get(pre, pre)
    if model != "gpt2" or name not in _PRE:
        raise UnsupportedModel(
            f"{file.path.name} has a tokenizer of kind {model}/{pre}; from GGUF files the kinds {', '.join(_PRE)} are "
            "read: take the model's safetensors folder instead"
        )
    return name


def _tokens(file: GgufFile) -> tuple[list[str], list[int]]:
    tokens = file.strings("tokenizer.ggml.tokens")
    types = file.integers("tokenizer.ggml.token_type")
    if len(tokens) != len(types):
        raise UnsupportedModel(f"{file.path.name} lists {len(tokens)} tokens but {len(types)} token types")
    return tokens, types


def _adds_bos(file: GgufFile) -> bool:
    stated = file.get("tokenizer.ggml.add_bos_token")
    return bool(stated) if stated is not None else _pre_name(file) == "llama-bpe"


def _post_processor(file: GgufFile, tokens: list[str]) -> dict[str, object]:
    """Byte level changes offsets only; a file that wants a begin token gets it put first."""
    byte_level: dict[str, object] = dict(_BYTE_LEVEL)
    if not _adds_bos(file):
        return byte_level
    bos_id = file.integer("tokenizer.ggml.bos_token_id")
    bos = tokens[bos_id]
    first: dict[str, object] = {"SpecialToken": {"id": bos, "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            first,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": bos, "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }
    return {"type": "Sequence", "processors": [byte_level, template]}


def _added_token(token_id: int, content: str, special: bool) -> dict[str, object]:
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }
