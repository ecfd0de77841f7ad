"""The messages of a chat request: role and text of each, or a refusal that names the one that is not served."""

from __future__ import annotations

from acespec.edge.proxy.errors import refused
from acespec.edge.proxy.fields import Fields, sound

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Chat templates know no `developer`; it took the place of `system` in OpenAI's API."""

OURS = ("messages", "add_generation_prompt", "self")
"""Variables that a request cannot set."""

Message = dict[str, str]


def read_messages(fields: Fields) -> list[Message]:
    """Take `messages`.

    Raises:
        ApiError: there are none, or one holds what is not served: tools, pictures, sound.
    """
    given = fields.take("messages")
    if not isinstance(given, list) or not given:
        raise refused("messages has to be a list of at least one message", "messages", "invalid_type")
    return [_message(item, f"messages[{number}]") for number, item in enumerate(given)]


def read_variables(fields: Fields) -> dict[str, object]:
    """Take `chat_template_kwargs`: further variables of the chat template.

    Raises:
        ApiError: one has a name that is ours to fill.
    """
    variables = fields.mapping("chat_template_kwargs")
    for name in OURS:
        if name in variables:
            path = f"chat_template_kwargs.{name}"
            raise refused(f"{path} is not for requests to set: leave it out", path, "invalid_value")
    return variables


def _message(given: object, path: str) -> Message:
    if not isinstance(given, dict):
        raise refused(f"{path} has to be an object with role and content", path, "invalid_type")
    role = given.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise refused(f"{path}.role {role!r}: choose one of {', '.join(ROLES)}", f"{path}.role", "invalid_value")
    for name in ("tool_calls", "function_call", "audio"):
        if given.get(name):
            raise refused(f"{path}.{name} is not served here: leave it out", f"{path}.{name}", "unsupported_parameter")
    return {"role": ROLES[role], "content": _content(given.get("content"), role, f"{path}.content")}


def _content(given: object, role: str, path: str) -> str:
    if isinstance(given, str):
        return sound(given, path)
    if given is None and role == "assistant":
        return ""
    if not isinstance(given, list):
        raise refused(f"{path} has to be a string, or a list of text parts", path, "invalid_type")
    return "".join(_part(part, f"{path}[{number}]") for number, part in enumerate(given))


def _part(given: object, path: str) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    text = given.get("text") if isinstance(given, dict) else None
    if kind != "text":
        raise refused(f"{path}.type {kind!r} is not served here: only text is", f"{path}.type", "invalid_value")
    if not isinstance(text, str):
        raise refused(f"{path}.text has to be a string", f"{path}.text", "invalid_type")
    return sound(text, f"{path}.text")
