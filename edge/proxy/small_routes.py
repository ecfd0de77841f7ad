"""The routes that answer at once: health, models, metrics, tokens; and what is known elsewhere and not built here."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from acespec.edge.proxy.body import read_fields
from acespec.edge.proxy.errors import ApiError, json_response, refused
from acespec.edge.proxy.fields import whole
from acespec.edge.proxy.messages import read_messages, read_variables
from acespec.edge.proxy.metrics import CONTENT_TYPE
from acespec.edge.proxy.service import Service
from acespec.edge.report import Json
from acespec.edge.template_gap import render


async def health(service: Service, _: Request) -> Response:
    """503 while loading, then 200; open to all."""
    state = service.loading.state
    if state is None:
        return json_response({"status": "ok"})
    error: dict[str, Json] = {"code": 503, "message": state, "type": "unavailable_error"}
    return json_response({"error": error}, 503)


async def models(service: Service, _: Request) -> Response:
    """The one model."""
    data: list[Json] = [_model(service)]
    return json_response({"object": "list", "data": data})


async def one_model(service: Service, request: Request) -> Response:
    """The one model, by its name."""
    name = str(request.path_params["name"])
    if name not in (service.loading.served.card.model, service.settings.model):
        raise ApiError(f"model {name!r} is not served here", status=404, param="model", code="model_not_found")
    return json_response(_model(service))


async def metrics(service: Service, _: Request) -> Response:
    """For Prometheus."""
    return Response(service.metrics.show(), headers={"content-type": CONTENT_TYPE})


async def tokenize(service: Service, request: Request) -> Response:
    """Ids of a text (`content` as llama.cpp has it, `prompt` as vLLM has) or of `messages`."""
    served = service.loading.served
    fields = await read_fields(request)
    service.take_model(fields, served)
    if fields.given("messages"):
        text = render(served.tokenizer, read_messages(fields), read_variables(fields))
        ids = served.tokenizer.encode(text)
    elif fields.given("content") or fields.given("prompt"):
        ids = served.tokenizer.encode(fields.text("content") or fields.text("prompt"))
        if fields.flag("add_special") or fields.flag("add_special_tokens"):
            ids = [*served.tokenizer.prefix_ids, *ids]
    else:
        raise refused("content is missing: give the text, or messages", "content", "missing_required_parameter")
    fields.nothing_left()
    return json_response({"tokens": ids, "count": len(ids), "max_model_len": served.card.max_length})


async def detokenize(service: Service, request: Request) -> Response:
    """Text of ids (`content` as llama.cpp has it, `prompt` as vLLM has)."""
    served = service.loading.served
    fields = await read_fields(request)
    service.take_model(fields, served)
    given = fields.take("tokens")
    if not isinstance(given, list):
        raise refused("tokens has to be a list of ids", "tokens", "invalid_type")
    fields.nothing_left()
    ids = [whole(token, "tokens", served.tokenizer.vocab_size) for token in given]
    text = served.tokenizer.decode(ids, skip_special=False)
    return json_response({"content": text, "prompt": text})


async def unbuilt(_: Service, request: Request) -> Response:
    """An endpoint of others that is not here."""
    raise ApiError(
        f"{request.url.path} is not built here: /v1/chat/completions and /v1/completions are",
        status=501,
        kind="not_implemented_error",
        code="not_implemented",
    )


def _model(service: Service) -> dict[str, Json]:
    served = service.loading.served
    return {
        "id": served.card.model,
        "object": "model",
        "created": served.since,
        "owned_by": "acespec",
        "max_model_len": served.card.max_length,
        "meta": {"numerics_id": served.card.numerics_id, "exact": served.card.exact, "n_vocab": served.card.vocab_size},
    }
