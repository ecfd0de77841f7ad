"""The JSON object in a request's body."""

from __future__ import annotations

import json

from starlette.requests import Request

from acespec.edge.proxy.errors import ApiError, refused
from acespec.edge.proxy.fields import Fields

MOST_BYTES = 16 * 2**20


async def read_fields(request: Request) -> Fields:
    """The members of the body.

    Raises:
        ApiError: it is too long, or no JSON object.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise ApiError(f"the body is longer than {MOST_BYTES >> 20} MiB", status=413, code="body_too_long")
        parts.append(part)
    try:
        body = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as fault:
        raise refused(f"the body is no JSON ({fault})", None, "invalid_json") from fault
    if not isinstance(body, dict):
        raise refused("the body has to be a JSON object", None, "invalid_json")
    return Fields(body)
