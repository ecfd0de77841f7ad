"""Read the JSON files of a model folder, with one clear error for what is missing or broken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from acespec.proto.errors import IntegrityError, ModelNotFound

Json = Mapping[str, object]


def read_json(path: Path) -> Json:
    """The object in `path`. Raises ModelNotFound if there is no such file, IntegrityError if it is not JSON."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelNotFound(f"{path.parent} is no model folder: it has no {path.name}") from None
    except ValueError as fault:
        raise IntegrityError(f"{path} is not valid JSON ({fault}): fetch the model again") from fault
    if not isinstance(value, dict):
        raise IntegrityError(f"{path} holds no JSON object: fetch the model again")
    return value


def read_json_if_any(path: Path) -> Json:
    """As `read_json`, but an absent file reads as an empty object."""
    return read_json(path) if path.exists() else {}


def end_ids(folder: Path, tokenizer: Json | None = None) -> tuple[int, ...]:
    """Every id that ends a text: those of generation_config.json, of config.json, then the tokenizer's end token.

    Fine-tunes often correct only one of the three, so that their union is what a chat needs. `tokenizer` is the content
    of tokenizer.json, for a caller that has it already.
    """
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        stated = read_json_if_any(folder / name).get("eos_token_id")
        found += [i for i in (stated if isinstance(stated, list) else [stated]) if isinstance(i, int)]
    token = special_token(read_json_if_any(folder / "tokenizer_config.json"), "eos_token")
    if token is not None and (token_id := _added_token_id(folder, token, tokenizer)) is not None:
        found.append(token_id)
    return tuple(dict.fromkeys(found))


def special_token(tokenizer_config: Json, key: str) -> str | None:
    """The text of `bos_token` and the like; older files wrap it in an object."""
    value = tokenizer_config.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _added_token_id(folder: Path, content: str, tokenizer: Json | None) -> int | None:
    listed = read_json_if_any(folder / "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(listed, dict):
        for token_id, token in listed.items():
            if isinstance(token, dict) and token.get("content") == content:
                return int(token_id)
    tokenizer = read_json_if_any(folder / "tokenizer.json") if tokenizer is None else tokenizer
    added = tokenizer.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if token.get("content") == content:
            return int(token["id"])
    return None
