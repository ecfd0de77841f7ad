"""The edge: `from acespec.edge import connect` (docs/python_api.md). What is named here is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acespec.edge.channel import Endpoint
    from acespec.edge.chat_ids import ChatIds
    from acespec.edge.client import Client
    from acespec.edge.completion import Completion, TextDelta
    from acespec.edge.connecting import connect
    from acespec.edge.requesting import request_for
    from acespec.edge.shared_link import SharedLink
    from acespec.edge.turn_request import TurnRequest
    from acespec.edge.view import View
    from acespec.proto.sampling_params import SamplingParams

__all__ = [
    "ChatIds",
    "Client",
    "Completion",
    "Endpoint",
    "SamplingParams",
    "SharedLink",
    "TextDelta",
    "TurnRequest",
    "View",
    "connect",
    "request_for",
]

_HOMES = {
    "ChatIds": "acespec.edge.chat_ids",
    "Client": "acespec.edge.client",
    "Completion": "acespec.edge.completion",
    "Endpoint": "acespec.edge.channel",
    "SamplingParams": "acespec.proto.sampling_params",
    "SharedLink": "acespec.edge.shared_link",
    "TextDelta": "acespec.edge.completion",
    "TurnRequest": "acespec.edge.turn_request",
    "View": "acespec.edge.view",
    "connect": "acespec.edge.connecting",
    "request_for": "acespec.edge.requesting",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
