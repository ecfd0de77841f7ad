"""An edge that checks nothing: it writes frames or bytes as a test says, to a verifier process."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from acespec.edge.channel import SESSION_METHOD
from acespec.models.tokenizer import Tokenizer
from acespec.proto import nodes, wire
from acespec.proto.messages import Draft, EdgeMessage, Open
from acespec.proto.nodes import ROOT, Node
from acespec.proto.prompt import pack_ids

Call = grpc.aio.StreamStreamCall[bytes, bytes]


@asynccontextmanager
async def raw_stream(address: str) -> AsyncIterator[Call]:
    """A stream on a connection of its own."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call: Call = channel.stream_stream(SESSION_METHOD)()
        yield call
        call.cancel()


async def status_after(address: str, frames: Sequence[EdgeMessage | bytes]) -> tuple[str, str]:
    """Name and details of the status with which the verifier answers `frames`."""
    async with raw_stream(address) as call, asyncio.timeout(10):
        try:
            for frame in frames:
                await call.write(frame if isinstance(frame, bytes) else wire.encode_edge(frame))
            while await call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.05)  # A failed write has a status of its own for a moment.
        return (await call.code()).name, await call.details()


def open_frame(tokenizer: Tokenizer, ids: Sequence[int], number: int = 0, **changes: object) -> Open:
    """A valid first `Open`, but for `changes`."""
    base = Open(
        session_id=(number + 1).to_bytes(16, "big"),
        epoch=1,
        fingerprint=tokenizer.fingerprint,
        prompt_len=len(ids),
        seed=number,
        max_tokens=2000,
        append=pack_ids(ids, _packed_range(tokenizer)),
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def _packed_range(tokenizer: Tokenizer) -> int:
    """All ids that have a place in the packed form, valid or not."""
    return 1 << (tokenizer.vocab_size - 1).bit_length()


def draft_frame(received: int, tokens: Sequence[int], vocab_size: int) -> Draft:
    """A chain behind the committed prefix."""
    chain = [Node(ROOT if n == 0 else n - 1, token) for n, token in enumerate(tokens)]
    return Draft(received=received, nodes=nodes.pack(chain, 0, vocab_size))


async def vanish_mid_draft(address: str, tokenizer: Tokenizer, number: int, length: int) -> None:
    """Open a session with a prompt of `length` ids, draft, read a little, and drop the connection."""
    ids = [(7 * n + number) % tokenizer.vocab_size for n in range(length)]
    async with raw_stream(address) as call, asyncio.timeout(20):
        await call.write(wire.encode_edge(open_frame(tokenizer, ids, number)))
        await call.write(wire.encode_edge(draft_frame(length, ids[:16], tokenizer.vocab_size)))
        for _ in range(3):
            await call.read()
