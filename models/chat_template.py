"""Render a conversation with the model's own Jinja template, in a sandbox, as its authors tested it.

The environment matches what templates are written for: trimmed blocks, loop controls, `raise_exception`,
`strftime_now`, `tojson` that leaves text readable, and the `generation` block (which marks, and prints its body).
A template comes with a download, so it is not trusted: it can neither reach attributes of Python nor change data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from acespec.proto.errors import UsageError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

Messages = Sequence[Mapping[str, str]]


class ChatTemplate:
    """A template's source (None: the model has none) and the special tokens it may mention."""

    def __init__(self, source: str | None, variables: Mapping[str, str]) -> None:
        self.source = source
        self.variables = variables

    def render(self, messages: Messages, *, add_generation_prompt: bool, **kwargs: object) -> str:
        """The conversation as text. Raises UsageError if there is no template, or if it refuses."""
        from jinja2 import TemplateError

        if self.source is None:
            raise UsageError("this model has no chat template: pass one (--chat-template) or use a plain prompt")
        values: dict[str, object] = {**self.variables, "tools": None, "documents": None, **kwargs}
        try:
            return _compiled(self.source).render(values, messages=messages, add_generation_prompt=add_generation_prompt)
        except TemplateError as fault:
            raise UsageError(f"the chat template refuses this conversation: {fault}") from fault
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as fault:
            raise UsageError(
                f"the chat template fails on this conversation ({type(fault).__name__}: {fault}): check the messages"
            ) from fault


@cache
def _compiled(source: str) -> Template:
    return _environment().from_string(source)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from acespec.models.generation_block import GenerationBlock

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationBlock]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON; Jinja's own filter would escape it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
