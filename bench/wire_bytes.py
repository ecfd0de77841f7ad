"""Steady-state IP bytes per token over a shaped link, plain and drafted, and where they go.

One turn per mode runs over a link of its own; the packets between the first and the last commit are counted, so that
connection set-up and the prompt stay out. Beside them: what one message costs in proto/framing.py's model.

    python -m acespec.bench.wire_bytes
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from acespec.bench.prompts import PROMPTS
from acespec.bench.stack import NGRAM, PLAIN, Link, Mode, Stack
from acespec.edge.completion import Completion
from acespec.proto.errors import AcespecError
from acespec.proto.framing import GRPC_HEADERS, PACKET_HEADER, message_bytes
from acespec.sim.link import Direction
from acespec.sim.packet_log import read_records
from acespec.sim.units import SECOND

SETUP_S = 3.0
"""Left out at the beginning: connection, prompt, the first tokens."""


@dataclass(frozen=True, slots=True)
class Way:
    """One direction in the steady state; bytes per committed token unless said otherwise."""

    packets: float
    acks: float
    stream: float
    headers: float
    total: float


@dataclass(frozen=True, slots=True)
class Row:
    """A mode's figures; `protobuf_*` are whole-turn means per message."""

    mode: str
    tokens_per_s: float
    messages_up: float
    messages_down: float
    protobuf_up: float
    protobuf_down: float
    up: Way
    down: Way


def steady(link: Link, direction: Direction, tokens_per_s: float) -> Way:
    """Bytes per token of the packets behind the set-up."""
    packets = [r for r in read_records(link.log) if r.dir == direction and r.start > SETUP_S * SECOND]
    span = (max(r.finish for r in packets) - SETUP_S * SECOND) / SECOND
    tokens = tokens_per_s * span
    stream = sum(r.bytes for r in packets)
    wire = sum(r.wire for r in packets)
    acks = sum(r.kind == "ack" for r in packets)
    return Way(len(packets) / tokens, acks / tokens, stream / tokens, (wire - stream) / tokens, wire / tokens)


async def run(stack: Stack, link: Link, mode: Mode, tokens: int) -> Completion:
    """One turn of the prompt that drafters find hardest."""
    async with stack.client(link.address, mode) as client:
        return await stack.generate(client, PROMPTS[0], stack.request(tokens))


def row_of(mode: Mode, link: Link, done: Completion) -> Row:
    """The figures of one turn."""
    rate, tokens, wire = done.decode_tokens_per_s, len(done.token_ids), done.wire
    return Row(
        mode.name,
        rate,
        wire.up_messages / tokens,
        wire.down_messages / tokens,
        wire.up_payload_bytes / wire.up_messages,
        wire.down_payload_bytes / wire.down_messages,
        steady(link, "up", rate),
        steady(link, "down", rate),
    )


def show(rows: list[Row]) -> None:
    """Print the table."""
    out = ["per committed token, steady state      messages  packets  bare ACKs  stream B  headers B  IP bytes"]
    for row in rows:
        for name, way, messages, payload in (
            ("up", row.up, row.messages_up, row.protobuf_up),
            ("down", row.down, row.messages_down, row.protobuf_down),
        ):
            out.append(
                f"{row.mode:8}{name:6}({payload:4.1f} B protobuf a message){messages:9.2f}{way.packets:9.2f}"
                f"{way.acks:11.2f}{way.stream:10.1f}{way.headers:11.1f}{way.total:10.1f}"
            )
    out.append(
        f"A message of n protobuf bytes: n + {GRPC_HEADERS} (gRPC, HTTP/2) + {PACKET_HEADER} (TCP/IP) = "
        f"{message_bytes(16)} at n = 16, plus {PACKET_HEADER} the other way where its ACK rides on nothing."
    )
    sys.stdout.write("\n".join(out) + "\n")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--preset", default="wan50")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Row] = []
    try:
        with Stack.running(args.model) as stack:
            for mode in (PLAIN, NGRAM):
                with stack.link(args.preset, mode.name) as link:
                    done = asyncio.run(run(stack, link, mode, args.tokens))
                rows.append(row_of(mode, link, done))
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    show(rows)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
