"""What goes up in a conversation of twenty turns, and with first prompts of growing length, against sending JSON.

    python -m acespec.bench.conversation_upload [--preset wan50] [--drafter ngram] [--json FILE]

*ours* is the real client, with drafts, before a verifier that replays the known answers at the speed of `--profile`.
*json* and *gzip* are OpenAI chat requests over HTTP/1.1 with keep-alive (`json_rival.py`), each with the whole
conversation in it, answered by a stream of events, a token each, at the same speed; for gzip the request is compressed,
which few servers accept. Each way has a link process of its own, and
bytes are read off that link's log: all IP bytes up, with headers, acknowledgements and, in a first turn, the set-up of
the connection. No TLS anywhere.

*question* is what had gone up when the other end had the whole question: it delays the answer. *turn* is all that had
gone up when the answer was here: drafts and acknowledgements of the answer are in it. Upload times run from the call to
the moment at which the other end has the question, the link's delay included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from acespec.bench.answering_verifier import Answers, answering
from acespec.bench.conversation_text import CONVERSATION
from acespec.bench.json_rival import JsonClient, JsonServer, Message
from acespec.bench.upload_meter import Meter, Upload
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.chat_ids import ChatIds
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.factory import make_drafter
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.models.store import resolve
from acespec.models.text_stream import TextStream
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import AcespecError
from acespec.proto.replay_profiles import find_verifier
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.live_link import live_link
from acespec.sim.processes import free_port
from acespec.sim.record_prompts import load_prompts
from acespec.sim.spec import LinkSpec

Conversation = Sequence[tuple[str, str]]

PROMPT_TOKENS = (100, 1000, 4000)
SHORT_ANSWER = "That is a long story."
SETTLE_S = 0.5
"""Behind an answer, until its last acknowledgements have crossed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One turn. `new_bytes`: the question as UTF-8; `prompt_tokens`: all that the answer follows on."""

    new_bytes: int
    prompt_tokens: int
    ours: Upload
    json: Upload
    gzip: Upload


@dataclass(frozen=True, slots=True)
class Ground:
    """What all ways share; `folder` is for the links' logs."""

    tokenizer: Tokenizer
    link: LinkSpec
    profile: TimingProfile
    drafter: str
    folder: Path


def compare(ground: Ground, conversation: Conversation) -> list[Row]:
    """The conversation in all three ways, one after the other."""

    def uploads(way: str, run: Callable[[str, int, Meter], AsyncIterator[Upload]]) -> list[Upload]:
        port = free_port()
        with live_link(ground.link, f"127.0.0.1:{port}", ground.folder, way) as link:
            meter = Meter(link.log)
            try:
                return asyncio.run(_collected(run(link.address, port, meter)))
            finally:
                meter.close()

    prompts: list[int] = []
    ours = uploads("ours", lambda address, port, meter: _ours(ground, conversation, address, port, meter, prompts))
    plain = uploads("json", lambda address, port, meter: _json(ground, conversation, address, port, meter, False))
    zipped = uploads("gzip", lambda address, port, meter: _json(ground, conversation, address, port, meter, True))
    questions = [len(question.encode()) for question, _ in conversation]
    return [Row(*row) for row in zip(questions, prompts, ours, plain, zipped, strict=True)]


async def _ours(
    ground: Ground, conversation: Conversation, address: str, port: int, meter: Meter, prompts: list[int]
) -> AsyncIterator[Upload]:
    tokenizer = ground.tokenizer
    answers, chat = Answers.of([answer for _, answer in conversation], tokenizer), ChatIds(tokenizer)
    verifier = answering(answers, tokenizer, ground.profile, port, meter.whole)
    async with verifier, _client(ground, address) as client:
        for number, (question, answer) in enumerate(conversation):
            ids = chat.ask(question)
            request = TurnRequest(
                as_sent(SamplingParams()), number, max_tokens=len(answers.texts[number]), end_ids=tokenizer.eos_ids
            )
            meter.begin()
            done = await _completed(client, ids, request, _spelt(tokenizer, question) if number == 0 else None)
            await asyncio.sleep(SETTLE_S)
            yield meter.end()
            _check(number, done.text, answer)
            prompts.append(len(ids))
            chat.answered(client.session.ids, done.text)


async def _json(
    ground: Ground, conversation: Conversation, address: str, port: int, meter: Meter, packed: bool
) -> AsyncIterator[Upload]:
    pieces = [_pieces(answer, ground.tokenizer) for _, answer in conversation]
    server, client = JsonServer(pieces, ground.profile.step_s(1), meter.whole), JsonClient(address, packed=packed)
    messages: list[Message] = []
    async with server.serving(port):
        for number, (question, answer) in enumerate(conversation):
            messages.append({"role": "user", "content": question})
            meter.begin()
            text = await client.ask(messages)
            await asyncio.sleep(SETTLE_S)
            yield meter.end()
            _check(number, text, answer)
            messages.append({"role": "assistant", "content": text})
        await client.close()


def _client(ground: Ground, address: str) -> Client:
    """As the command line makes one by default."""
    size = ground.tokenizer.vocab_size
    drafter = make_drafter(ground.drafter, draft_model=None, model_key="bench", vocab_size=size, cache_dir=None)
    shape = tree_shape("siblings:4")
    return Client(Endpoint(address, insecure=True), ground.tokenizer, drafter, make_controller("auto"), shape=shape)


async def _completed(client: Client, ids: Sequence[int], request: TurnRequest, text: str | None) -> Completion:
    async with aclosing(client.stream(ids, request, text=text)) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return part
    raise RuntimeError("the stream ended without a completion")


def _pieces(text: str, tokenizer: Tokenizer) -> list[str]:
    """The text token by token, as a server streams it."""
    stream = TextStream(tokenizer)
    return [*(stream.push((token,)) for token in tokenizer.encode(text)), stream.flush()]


def _spelt(tokenizer: Tokenizer, question: str) -> str:
    return tokenizer.apply_chat([{"role": "user", "content": question}])


def _check(number: int, text: str, answer: str) -> None:
    if text != answer:
        raise RuntimeError(f"turn {number + 1} brought another answer than it should: {text[:60]!r}")


async def _collected(uploads: AsyncIterator[Upload]) -> list[Upload]:
    return [upload async for upload in uploads]


def cut(text: str, tokens: int, encode: Callable[[str], list[int]]) -> str:
    """The longest beginning of `text`, in whole words, of at most `tokens` tokens."""
    words = text.split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(encode(" ".join(words[:middle]))) <= tokens else (low, middle - 1)
    return " ".join(words[:low])


def totals(rows: Sequence[Row]) -> Row:
    """Sums over the turns; the prompt is the last one's."""

    def added(uploads: Sequence[Upload]) -> Upload:
        return Upload(
            sum(u.question_bytes for u in uploads), sum(u.turn_bytes for u in uploads), sum(u.upload_s for u in uploads)
        )

    ways = ([getattr(row, way) for row in rows] for way in ("ours", "json", "gzip"))
    return Row(sum(row.new_bytes for row in rows), rows[-1].prompt_tokens, *map(added, ways))


def ratios(row: Row) -> dict[str, float]:
    """What the rivals need, over ours."""
    return {
        f"{way}_{what}": getattr(getattr(row, way), what) / getattr(row.ours, what)
        for way in ("json", "gzip")
        for what in ("question_bytes", "turn_bytes", "upload_s")
    }


def table(title: str, named: Sequence[tuple[str, Row]]) -> Table:
    """Bytes and times of each row, and how many times ours the rivals take."""
    out = Table(title=title, header_style="", caption="three figures: ours, json, gzip; two: json and gzip over ours")
    for name in ("", "prompt tokens", "new B", "question, IP B up", "turn, IP B up", "upload s", "bytes", "time"):
        out.add_column(name, justify="right")
    for name, row in named:
        ways, ratio = (row.ours, row.json, row.gzip), ratios(row)
        out.add_row(
            name,
            str(row.prompt_tokens),
            str(row.new_bytes),
            " / ".join(str(way.question_bytes) for way in ways),
            " / ".join(str(way.turn_bytes) for way in ways),
            " / ".join(f"{way.upload_s:.2f}" for way in ways),
            " / ".join(f"{ratio[f'{way}_question_bytes']:.1f}x" for way in ("json", "gzip")),
            " / ".join(f"{ratio[f'{way}_upload_s']:.1f}x" for way in ("json", "gzip")),
        )
    return out


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer is used")
    parser.add_argument("--preset", default="wan50", help="the link")
    parser.add_argument("--profile", default="h100-70b-fp8", help="the verifier's speed")
    parser.add_argument("--drafter", default="ngram", choices=("ngram", "none"))
    parser.add_argument("--turns", type=int, default=len(CONVERSATION))
    parser.add_argument("--prompts", default="mtbench", help="text of the first prompts; see acespec-sim record --help")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    logging.basicConfig(level="WARNING", stream=sys.stderr)
    try:
        with tempfile.TemporaryDirectory(prefix="acespec-bench-") as name:
            tokenizer = Tokenizer.load(resolve(args.model, weights=False))
            link, profile = LinkSpec.preset(args.preset), find_verifier(args.profile)
            ground = Ground(tokenizer, link, profile, args.drafter, Path(name))
            turns = compare(ground, CONVERSATION[: args.turns])
            text = "\n\n".join(prompt.text for prompt in load_prompts(args.prompts))
            firsts = [(n, compare(ground, [(cut(text, n, tokenizer.encode), SHORT_ANSWER)])[0]) for n in PROMPT_TOKENS]
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    whole = totals(turns)
    rows = [*((f"turn {i}", row) for i, row in enumerate(turns, 1)), ("all", whole)]
    console = Console(width=160)
    console.print(table(f"a conversation over {args.preset}, drafter {args.drafter}", rows))
    console.print(table("first prompts", [(f"{n} tokens", row) for n, row in firsts]))
    if args.json:
        figures = {
            "preset": args.preset,
            "profile": args.profile,
            "drafter": args.drafter,
            "model": args.model,
            "turns": [asdict(row) | {"ratios": ratios(row)} for row in turns],
            "all": asdict(whole) | {"ratios": ratios(whole)},
            "first_prompts": [{"tokens": n} | asdict(row) | {"ratios": ratios(row)} for n, row in firsts],
        }
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
