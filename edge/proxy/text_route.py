"""`POST /v1/completions`: plain text or ids, without a chat template."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from acespec.edge.proxy.answering import as_events, in_one_piece
from acespec.edge.proxy.body import read_fields
from acespec.edge.proxy.errors import refused
from acespec.edge.proxy.fields import Fields, sound, whole
from acespec.edge.proxy.generation import Ended, Job
from acespec.edge.proxy.parameters import read_parameters, text_logprobs
from acespec.edge.proxy.reply import TextReply
from acespec.edge.proxy.service import Service, with_room
from acespec.models.tokenizer import Tokenizer

MOST_PROMPTS = 64

Prompt = tuple[str | None, list[int]]
"""The text that encodes to the ids, if there is one; the ids."""


async def complete(service: Service, request: Request) -> ASGIApp:
    """Go on behind one prompt or several.

    Raises:
        AcespecError: it cannot be.
    """
    served = service.loading.served
    fields = await read_fields(request)
    model = service.take_model(fields, served)
    prompts = read_prompts(fields, served.tokenizer)
    fields.nothing_but("echo", [False])
    fields.nothing_but("suffix", [""])
    best_of = fields.integer("best_of", 0, 0, 128)
    asked = read_parameters(fields, service.settings.defaults, served.tokenizer, text_logprobs(fields))
    if best_of not in (0, asked.n):
        raise refused("best_of other than n is not served here: leave it out", "best_of", "unsupported_parameter")
    jobs = [
        with_room(Job(ids, text, asked.turn, asked.n, asked.draft_tokens), served, "prompt") for text, ids in prompts
    ]
    reply = TextReply(served.tokenizer, model, sum(len(ids) for _, ids in prompts))
    generation = service.begin(jobs, _forget)
    if not asked.stream:
        return await in_one_piece(service, generation, reply, request)
    return await as_events(service, generation, reply, request, asked.n * len(jobs), asked.include_usage)


def read_prompts(fields: Fields, tokenizer: Tokenizer) -> list[Prompt]:
    """Take `prompt`: a text, ids, or a list of either."""
    given = fields.take("prompt")
    several = isinstance(given, list) and (not given or isinstance(given[0], str | list))
    items = given if isinstance(given, list) and several else [given]
    if not 1 <= len(items) <= MOST_PROMPTS:
        raise refused(f"prompt: {len(items)} prompts, 1 to {MOST_PROMPTS} are served at once", "prompt")
    return [_prompt(item, tokenizer) for item in items]


def _prompt(given: object, tokenizer: Tokenizer) -> Prompt:
    text: str | None = None
    if isinstance(given, str):
        ids = tokenizer.encode(sound(given, "prompt"))
        prefix = [] if ids[:1] == list(tokenizer.prefix_ids) else list(tokenizer.prefix_ids)
        text, ids = (None if prefix else given), prefix + ids
    elif isinstance(given, list):
        ids = [whole(item, "prompt", tokenizer.vocab_size) for item in given]
    else:
        raise refused("prompt has to be a string, a list of ids, or a list of either", "prompt", "invalid_type")
    if not ids:
        raise refused("prompt is empty: give at least one token", "prompt", "invalid_value")
    return text, ids


def _forget(_: Ended) -> None:
    """Nothing comes back of a plain completion."""
