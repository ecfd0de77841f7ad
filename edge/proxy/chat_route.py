"""`POST /v1/chat/completions`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from acespec.edge.proxy.answering import as_events, in_one_piece
from acespec.edge.proxy.body import read_fields
from acespec.edge.proxy.generation import Ended, Job
from acespec.edge.proxy.messages import read_messages, read_variables
from acespec.edge.proxy.parameters import chat_logprobs, read_parameters
from acespec.edge.proxy.reply import ChatReply
from acespec.edge.proxy.service import Service, with_room


async def chat(service: Service, request: Request) -> ASGIApp:
    """Answer a conversation.

    Raises:
        AcespecError: it cannot be.
    """
    served = service.loading.served
    fields = await read_fields(request)
    model = service.take_model(fields, served)
    messages = read_messages(fields)
    variables = read_variables(fields)
    asked = read_parameters(fields, service.settings.defaults, served.tokenizer, chat_logprobs(fields))
    prompt = served.conversations.prompt(messages, variables)
    job = Job(prompt.ids, prompt.text, asked.turn, asked.n, asked.draft_tokens)
    job = with_room(job, served, "messages")

    def remember(ended: Ended) -> None:
        served.conversations.answered(messages, variables, ended.job.ids, ended.token_ids, ended.text)

    reply = ChatReply(served.tokenizer, model, len(prompt.ids))
    generation = service.begin([job], remember)
    if not asked.stream:
        return await in_one_piece(service, generation, reply, request)
    return await as_events(service, generation, reply, request, asked.n, asked.include_usage)
