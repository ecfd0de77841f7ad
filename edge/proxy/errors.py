"""Faults as OpenAI's error objects: an HTTP status, and a body that names the parameter and says what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from starlette.responses import Response

from acespec.edge.report import Json
from acespec.proto.errors import (
    AcespecError,
    Exhausted,
    InvalidRequest,
    Mismatch,
    ModelError,
    Unauthenticated,
    Unavailable,
    UsageError,
)

RETRY_S = 2.0
"""When to try again after the verifier could not be reached."""
REQUEST_NAMES = {
    "stop_strings": "stop",
    "stop_ids": "stop_token_ids",
    "json_schema": "response_format",
    "json_object": "response_format",
    "format": "response_format",
}
"""Fields of the verifier whose parameter has another name here."""
PARAMETERS = frozenset(
    {
        *("temperature", "top_k", "top_p", "min_p", "seed", "stop", "max_tokens", "min_tokens", "ignore_eos"),
        *("repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias"),
        *("logprobs", "top_logprobs", "regex", "grammar", *REQUEST_NAMES.values()),
    }
)


class ApiError(AcespecError):
    """What an HTTP client is told.

    Args:
        status: of HTTP.
        kind: OpenAI's `type`.
        param: the parameter at fault.
        code: a word for programs.
        retry_after: seconds after which the same request may succeed; None: it will not.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def as_json(self) -> dict[str, Json]:
        """The body."""
        error: dict[str, Json] = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> Response:
        """The answer to the request. `x-should-retry` is heeded by OpenAI's own clients."""
        headers = {"x-should-retry": "false" if self.retry_after is None else "true"}
        if self.retry_after is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after))
        return json_response(self.as_json(), self.status, headers)


def json_response(body: dict[str, Json], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer, its text as it is."""
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", errors="replace")
    return Response(data, status, dict(headers or {}), "application/json")


def refused(message: str, param: str | None, code: str | None = None) -> ApiError:
    """A request that cannot be served as it is."""
    return ApiError(message, param=param, code=code)


def not_served(name: str) -> ApiError:
    """A parameter that exists elsewhere, or nowhere."""
    return ApiError(
        f"{name} is not served here: leave it out; docs/proxy.md lists what is",
        param=name,
        code="unsupported_parameter",
    )


def api_error(fault: AcespecError) -> ApiError:
    """`fault` as an HTTP client should see it: what the verifier refuses is the request's fault, the rest is ours."""
    text = str(fault)
    match fault:
        case ApiError():
            return fault
        case UsageError():
            return ApiError(text)
        case InvalidRequest():
            return ApiError(text, param=_param(text))
        case Exhausted():
            return ApiError(
                text,
                status=429,
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                retry_after=fault.retry_after_s,
            )
        case Unavailable():
            return ApiError(text, status=503, kind="unavailable_error", code="unavailable", retry_after=RETRY_S)
        case Unauthenticated():
            return _upstream(f"the verifier does not accept the proxy's key ({text}): check --api-key-file", "key")
        case Mismatch():
            return _upstream(text, "mismatch")
        case ModelError():
            return ApiError(text, status=500, kind="server_error", code="model")
        case _:
            return _upstream(text, "verifier_fault")


def _upstream(text: str, code: str) -> ApiError:
    return ApiError(text, status=502, kind="server_error", code=code)


def _param(text: str) -> str | None:
    """The parameter that a refusal of the verifier begins with, under its name here."""
    words = text.replace(":", " ").split()
    name = words[0] if words else ""
    name = REQUEST_NAMES.get(name, name)
    return name if name in PARAMETERS else None
