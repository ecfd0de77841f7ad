"""The ASGI application: routes, who may use them, and errors as OpenAI's objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from acespec.edge.proxy import small_routes as small
from acespec.edge.proxy.chat_route import chat
from acespec.edge.proxy.errors import ApiError, api_error
from acespec.edge.proxy.event_stream import ClientGone
from acespec.edge.proxy.guard import Guard
from acespec.edge.proxy.loading import Loading
from acespec.edge.proxy.metrics import Metrics
from acespec.edge.proxy.pool import ClientPool
from acespec.edge.proxy.service import Service
from acespec.edge.proxy.settings import Settings
from acespec.edge.proxy.text_route import complete
from acespec.proto.errors import AcespecError

UNBUILT = (
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/moderations",
    "/v1/rerank",
    "/v1/audio",
    "/v1/images",
    "/v1/files",
    "/v1/batches",
    "/v1/fine_tuning",
    "/v1/assistants",
    "/v1/threads",
    "/v1/vector_stores",
    "/v1/realtime",
    "/completion",
    "/embedding",
    "/embeddings",
    "/infill",
    "/rerank",
    "/slots",
    "/props",
    "/api",
)
"""What clients of OpenAI, Anthropic, llama.cpp, vLLM and ollama may look for."""

Handler = Callable[[Service, Request], Awaitable[ASGIApp]]


def make_app(pool: ClientPool, settings: Settings, loading: Loading, metrics: Metrics) -> Starlette:
    """The application over `pool`; `app.state.service` is what its routes share."""
    service = Service(pool, settings, loading, metrics)
    app = Starlette(
        routes=_routes(service),
        middleware=_middleware(settings),
        exception_handlers={HTTPException: _plain_fault, Exception: _broken},
    )
    app.state.service = service
    return app


def _plain_fault(request: Request, fault: Exception) -> Response:
    """No such route, or not with this method."""
    status = fault.status_code if isinstance(fault, HTTPException) else 500
    return ApiError(
        f"there is no {request.method} {request.url.path} here; docs/proxy.md lists what there is",
        status=status,
        code="not_found" if status == 404 else "method_not_allowed",
    ).response()


def _broken(_: Request, fault: Exception) -> Response:
    """A fault that nobody foresaw; Starlette raises it again behind this answer, so that it is logged."""
    return ApiError(
        f"the proxy broke ({type(fault).__name__}): see its log", status=500, kind="server_error"
    ).response()


def _middleware(settings: Settings) -> list[Middleware]:
    guard = Middleware(Guard, settings=settings)
    if not settings.origins:
        return [guard]
    cors = Middleware(
        CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["GET", "POST"], allow_headers=["*"]
    )
    return [cors, guard]


def _routes(service: Service) -> list[BaseRoute]:
    def route(path: str, handler: Handler, method: str = "GET") -> Route:
        return Route(path, _Endpoint(service, handler, path), methods=[method])

    routes: list[BaseRoute] = [
        route("/v1/chat/completions", chat, "POST"),
        route("/v1/completions", complete, "POST"),
        route("/v1/models", small.models),
        route("/v1/models/{name:path}", small.one_model),
        route("/health", small.health),
        route("/v1/health", small.health),
        route("/metrics", small.metrics),
        route("/tokenize", small.tokenize, "POST"),
        route("/detokenize", small.detokenize, "POST"),
    ]
    if find_spec("acespec.edge.proxy.page_routes") is not None:
        from acespec.edge.proxy import page_routes

        routes += page_routes.routes(service.pool)
    for path in UNBUILT:
        routes += [Route(each, _Endpoint(service, small.unbuilt, path)) for each in (path, path + "/{rest:path}")]
    return routes


class _Endpoint:
    """An ASGI endpoint around a handler: its faults become answers, and answers are counted."""

    def __init__(self, service: Service, handler: Handler, path: str) -> None:
        self._service = service
        self._handler = handler
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            answer = await self._handler(self._service, Request(scope, receive))
        except ClientGone:
            self._count(499)
            return
        except AcespecError as fault:
            told = api_error(fault)
            answer = told.response()
        self._count(getattr(answer, "status_code", 200))
        await answer(scope, receive, send)

    def _count(self, status: int) -> None:
        self._service.metrics.requests.labels(self._path, str(status)).inc()
