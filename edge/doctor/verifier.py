"""The verifier itself: is it healthy, does it let us in, does it serve what we would ask for?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from acespec.edge.channel import DESCRIBE_METHOD, Endpoint, error_of
from acespec.edge.doctor.finding import Finding, fault, ok, skipped, warning
from acespec.models.tokenizer import Tokenizer
from acespec.proto import wire
from acespec.proto.errors import ProtocolError, Unauthenticated
from acespec.proto.messages import PROTOCOL_VERSION, ModelCard
from acespec.proto.noise import NOISE_VERSION

HEALTH_METHOD = "/grpc.health.v1.Health/Check"
HEALTH, KEY, CARD, TOKENIZER = "health", "key", "verifier", "tokenizer"


async def verifier_findings(endpoint: Endpoint, tokenizer: Tokenizer | None, timeout: float) -> AsyncIterator[Finding]:
    """Health, key and card; ends at the first fault that hides the rest. `timeout` in seconds is for each call."""
    channel = endpoint.connect()
    try:
        yield (healthy := await _health(channel, endpoint, timeout))
        if healthy.fix:
            return
        try:
            card = await asyncio.wait_for(_card(channel, endpoint), timeout)
        except Unauthenticated as error:
            yield _locked_out(endpoint, error)
            return
        except (ProtocolError, TimeoutError) as error:
            yield fault(CARD, str(error) or f"no answer within {timeout:.0f} s", "ask whoever runs the verifier")
            return
    finally:
        await channel.close()
    yield ok(KEY, "accepted" if endpoint.api_key else "none is wanted")
    for finding in card_findings(card, tokenizer):
        yield finding


async def _health(channel: grpc.aio.Channel, endpoint: Endpoint, timeout: float) -> Finding:
    check: grpc.aio.UnaryUnaryMultiCallable[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]
    check = channel.unary_unary(
        HEALTH_METHOD,
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    try:
        answer = await check(health_pb2.HealthCheckRequest(), timeout=timeout)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return fault(
                HEALTH,
                f"{endpoint.target} speaks gRPC, but is no verifier of ours",
                "check address and port in --verifier",
            )
        why = error_of(error.code().name, error.details(), endpoint.target)
        return fault(HEALTH, str(why), "look at the verifier's log; a proxy on the way has to pass gRPC on")
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return ok(HEALTH, "serving")
    return fault(
        HEALTH,
        f"{endpoint.target} is up but takes no new sessions: it is draining, about to shut down or restart",
        "wait until it is back, or give --verifier another one",
    )


async def _card(channel: grpc.aio.Channel, endpoint: Endpoint) -> ModelCard:
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(DESCRIBE_METHOD)
    try:
        return wire.decode_card(await method(b"", metadata=endpoint.metadata))
    except grpc.aio.AioRpcError as error:
        raise error_of(error.code().name, error.details(), endpoint.target) from error


def _locked_out(endpoint: Endpoint, error: Unauthenticated) -> Finding:
    given = "the key that is given is refused" if endpoint.api_key else "the verifier wants a key, and none is given"
    fix = "--api-key-file FILE or ACESPEC_API_KEY, with a key from whoever runs the verifier"
    return fault(KEY, f"{given} ({error})", fix)


def card_findings(card: ModelCard, tokenizer: Tokenizer | None) -> list[Finding]:
    """What the verifier says of itself, against what is here."""
    findings = [_versions(card), _tokenizers(card, tokenizer)]
    if not card.exact:
        findings.append(
            warning(
                CARD,
                "the verifier does not promise exact output: its self-check failed on its machine",
                "whoever runs it should look at its log; drafts may change the text",
            )
        )
    return findings


def _versions(card: ModelCard) -> Finding:
    about = f"{card.model}, version {card.server_version}, up to {card.max_length} tokens, drafts to {card.max_draft}"
    if card.protocol_version != PROTOCOL_VERSION:
        return fault(
            CARD,
            f"it speaks protocol {card.protocol_version}, this acespec {PROTOCOL_VERSION} ({about})",
            "install the release that both ends share: pip install -U acespec, here or there",
        )
    if card.noise_version != NOISE_VERSION:
        return warning(
            CARD,
            f"it draws with noise {card.noise_version}, drafts here with {NOISE_VERSION}: fewer guesses are right",
            "install the same release on both ends",
        )
    return ok(CARD, about)


def _tokenizers(card: ModelCard, tokenizer: Tokenizer | None) -> Finding:
    if tokenizer is None:
        return skipped(TOKENIZER, f"not compared with the verifier's ({card.fingerprint.hex()}): ours is not here")
    if tokenizer.fingerprint != card.fingerprint:
        return fault(
            TOKENIZER,
            f"ours ({tokenizer.fingerprint.hex()}) is not that of {card.model}, which is served "
            f"({card.fingerprint.hex()}): every session will be refused",
            f"--model with the model that is served, {card.model}, or a folder with its tokenizer",
        )
    return ok(TOKENIZER, f"the same as the verifier's ({card.model})")
