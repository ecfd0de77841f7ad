"""Who may use the API: holders of a key, if there are keys, and no web page of a stranger.

A page that somebody visits can send requests to loopback, and by a DNS name of its own that points there it can even
read the answers. So requests that come from a page of another origin need `--cors`, and on loopback only names of this
machine are answered.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from acespec.edge.proxy.errors import ApiError
from acespec.edge.proxy.settings import Settings, is_loopback

PUBLIC = frozenset({"/", "/health", "/v1/health", "/favicon.ico"})
"""Open without a key: the page asks for it, and a health check has none."""


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._keys = [key.encode() for key in settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        fault = self._fault(scope) if scope["type"] == "http" else None
        await (self._app if fault is None else fault.response())(scope, receive, send)

    def _fault(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._settings.loopback and not is_loopback(_name(host)):
            return _forbidden(f"this proxy answers to names of this machine only, not to {host!r}")
        origin = headers.get("origin")
        if origin is not None and not self._welcome(origin, host):
            return _forbidden(f"pages of {origin} may not use this proxy: start it with --cors {origin}")
        if scope["path"] not in PUBLIC and not self._knows(headers.get("authorization", "")):
            return ApiError(
                "the key is missing or wrong: send it as 'Authorization: Bearer KEY'",
                status=401,
                code="invalid_api_key",
            )
        return None

    def _welcome(self, origin: str, host: str) -> bool:
        allowed = self._settings.origins
        return "*" in allowed or origin in allowed or urlsplit(origin).netloc == host

    def _knows(self, authorization: str) -> bool:
        if not self._keys:
            return True
        scheme, _, given = authorization.partition(" ")
        # All of them, so that the time does not tell which one is near.
        matches = [hmac.compare_digest(given.strip().encode(), key) for key in self._keys]
        return scheme.lower() == "bearer" and any(matches)


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    return urlsplit(f"//{host}").hostname or ""


def _forbidden(message: str) -> ApiError:
    return ApiError(message, status=403, kind="permission_error", code="forbidden")
