"""The output format that a command line asks for: options to one `OutputFormat`."""

from __future__ import annotations

import json
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.proto.messages import OutputFormat


def output_format(json_schema: str | None, json_object: bool, regex: str | None, grammar: Path | None) -> OutputFormat:
    """What the text has to look like.

    Args:
        json_schema: a schema, or the file that holds it: what begins with a brace is a schema.
        grammar: a file in Lark's syntax or in GBNF.

    Raises:
        UsageError: a file cannot be read, the schema is no JSON, or more than one format is asked for.
    """
    chosen = OutputFormat(
        json_schema=_schema(json_schema) if json_schema else "",
        json_object=json_object,
        regex=regex or "",
        grammar=_text(grammar, "--grammar") if grammar else "",
    )
    if len(names := chosen.asked()) > 1:
        options = ", ".join("--" + name.replace("_", "-") for name in names)
        raise UsageError(f"{options}: choose one output format")
    return chosen


def _schema(given: str) -> str:
    text = given if given.lstrip().startswith("{") else _text(Path(given), "--json-schema")
    try:
        json.loads(text)
    except ValueError as error:
        raise UsageError(f"--json-schema is no JSON ({error}): give a schema, or the file that holds one") from error
    return text


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path} is not UTF-8 text") from error
