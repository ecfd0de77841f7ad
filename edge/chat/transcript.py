"""A conversation as a file: Markdown to read, or JSON in the form of OpenAI's messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from acespec.proto.errors import UsageError

Messages = Sequence[Mapping[str, str]]
HEADINGS = {"system": "System", "user": "You", "assistant": "Answer"}


def save(path: Path, messages: Messages) -> None:
    """Write a new file; a name that ends in `.json` gets JSON.

    Raises:
        UsageError: it exists, or cannot be written.
    """
    text = as_json(messages) if path.suffix == ".json" else as_markdown(messages)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists: choose another name") from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def as_json(messages: Messages) -> str:
    """`{"messages": [...]}`, as a chat completion request has them."""
    return json.dumps({"messages": [dict(message) for message in messages]}, ensure_ascii=False, indent=2) + "\n"


def as_markdown(messages: Messages) -> str:
    """A heading a message, and the message as it is."""
    return "\n".join(f"## {HEADINGS.get(m['role'], m['role'])}\n\n{m['content']}\n" for m in messages)
