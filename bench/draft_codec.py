"""Does it pay to write the ids of draft nodes in fewer bits than ceil(log2 V)?

First: bits of an id in codes that know nothing, the size of ids, or the text so far, on what a real drafter guessed
(the committed traces of Qwen2.5-Coder 0.5B for 1.5B, 151,665 ids). Then: what that buys in the world.

    python -m acespec.bench.draft_codec [--seeds 6] [--json FILE]

The prompt is part of what both ends know. Prompts and tokenizer are those that `bench.acceptance --record` fetched;
without them the answers alone are known, and the table says so.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from acespec.bench.acceptance import PROMPTS, TRACES
from acespec.bench.id_code_world import Cell, run_charged
from acespec.bench.id_codes import CODES, Raw
from acespec.bench.real_pair import DRAFTER
from acespec.edge.drafters.lm_models import find_language_model
from acespec.models.paths import cache_root
from acespec.proto.errors import AcespecError
from acespec.proto.golomb import Codec
from acespec.proto.nodes import ROOT, Node, pack, unpack
from acespec.sim.record_prompts import load_prompts
from acespec.sim.trace_file import Trace, read_traces
from acespec.sim.world.result import Result

WIDTHS = {"off": 1, "siblings:2": 2, "siblings:4": 4, "on": 4}
"""Guesses at one place, by `--draft-tree`."""
LENGTH = 6
"""Places of a message, up to the first wrong guess."""
LAG = 8
"""Tokens by which what both ends know for sure is behind the tip: about a round trip."""
WORLD_CODES = ("raw", "by size of the id", "learned counts (ideal)")
NOTHING = "no bits at all"
PROMISED, FAST, SLOW = ("h100-70b-fp8", "never", 20.0), ("h100-70b-fp8", "idle", 20.0), ("a100-70b", "always", 0.0)
CELLS = tuple(
    Cell(*policy, kbps, tree)
    for policy, kbps in ((PROMISED, 10), (PROMISED, 50), (PROMISED, 250), (FAST, 50), (SLOW, 50))
    for tree in ("off", "siblings:4", "on")
)
Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bits:
    """Mean bits an id, by guesses at one place; `us` is what the length of a code takes to find, in microseconds."""

    code: str
    widths: dict[int, float]
    us: float


@dataclass(frozen=True, slots=True)
class Gain:
    """A code against raw in one cell, in percent with standard errors over seeds."""

    code: str
    bits: float
    tokens_per_s: tuple[float, float]
    up: tuple[float, float]
    both: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """A cell: what raw ids give, and what others would change."""

    cell: Cell
    tokens_per_s: float
    up: float
    both: float
    gains: tuple[Gain, ...]


def bits_of(code: Raw, trace: Trace, prompt: Prompt, width: int) -> Iterator[float]:
    """Bits of each node of a whole answer, drafted message by message."""
    text = [*prompt, *trace.ids]
    for length in range(1, len(prompt) + 1):
        code.commit(text[:length])
    known = len(prompt)
    at = 0
    while at < len(trace):
        while known < len(prompt) + at - LAG:
            known += 1
            code.commit(text[:known])
        for place in range(at, min(at + LENGTH, len(trace))):
            for guess in trace.guesses[place][:width]:
                yield code.bits(text[: len(prompt) + place], guess)
            at = place + 1
            if trace.ranks[place]:
                break


def measure(name: str, traces: Sequence[Trace], prompts: Sequence[Prompt], widths: Sequence[int]) -> Bits:
    """One code on all traces."""
    means: dict[int, float] = {}
    count, began = 0, time.process_time()
    for width in widths:
        found = [
            bits
            for trace, prompt in zip(traces, prompts, strict=True)
            for bits in bits_of(CODES[name](trace.source.vocab_size), trace, prompt, width)
        ]
        means[width] = statistics.fmean(found)
        count += len(found)
    return Bits(name, means, 1e6 * (time.process_time() - began) / count)


def prompts_of(traces: Sequence[Trace]) -> list[Prompt] | None:
    """The ids of each trace's prompt; None if the models' tokenizer or the prompts are not on this machine."""
    model = cache_root() / "bench-models" / DRAFTER.file.removesuffix(".gguf") / DRAFTER.file
    if not model.is_file():
        return None
    try:
        tokenizer = find_language_model("gguf", str(model), max_kv=2048, offline=True).tokenizer()
        texts = {(p.prompt_set, p.name): p.text for which in PROMPTS for p in load_prompts(which, offline=True)}
    except AcespecError:
        return None
    chats = ([{"role": "user", "content": texts[t.source.prompt_set, t.source.prompt]}] for t in traces)
    return [tuple(tokenizer.encode(tokenizer.apply_chat(chat))) for chat in chats]


def codec_us(traces: Sequence[Trace], codec: Codec, rounds: int = 20) -> float:
    """Microseconds a node for packing and unpacking chains of `LENGTH` first guesses."""
    vocab = traces[0].source.vocab_size
    firsts = [guesses[0] for trace in traces for guesses in trace.guesses]
    messages = [
        [Node(ROOT if i == 0 else i - 1, token) for i, token in enumerate(firsts[at : at + LENGTH])]
        for at in range(0, len(firsts), LENGTH)
    ]
    began = time.process_time()
    for _ in range(rounds):
        for message in messages:
            unpack(pack(message, 0, vocab, codec), 0, vocab, LENGTH, codec)
    return 1e6 * (time.process_time() - began) / (rounds * len(firsts))


def compare(cell: Cell, charges: dict[str, float], seeds: Sequence[int], tokens: int) -> Row:
    """Every code in one cell, each seed against itself with raw ids."""
    results = {name: [run_charged(cell, bits, seed, tokens) for seed in seeds] for name, bits in charges.items()}
    raw = results["raw"]
    gains = tuple(
        Gain(name, charges[name], _change(_speed, found, raw), _change(_up, found, raw), _change(_both, found, raw))
        for name, found in results.items()
        if name != "raw"
    )
    speed, up, both = (statistics.fmean(map(figure, raw)) for figure in (_speed, _up, _both))
    return Row(cell, speed, up, both, gains)


def charges_of(measured: Sequence[Bits], tree: str) -> dict[str, float]:
    """Bits an id in the world, by code."""
    return {b.code: b.widths[WIDTHS[tree]] for b in measured if b.code in WORLD_CODES} | {NOTHING: 0.0}


def bits_table(measured: Sequence[Bits]) -> str:
    """The first table as text."""
    widths = list(measured[0].widths)
    head = "".join(f"{f'{w} a place':>12}" for w in widths)
    lines = [f"{'bits an id':28}{head}{'us an id':>12}"]
    lines += [
        f"{row.code:28}" + "".join(f"{row.widths[w]:12.2f}" for w in widths) + f"{row.us:12.1f}" for row in measured
    ]
    return "\n".join(lines)


def row_text(row: Row) -> str:
    """A cell as text."""
    cell = row.cell
    lines = [f"{cell.name:44}{row.tokens_per_s:7.2f} tokens/s {row.up:6.1f} B up {row.both:6.1f} B both ways a token"]
    lines += [
        f"    {gain.code:24}{gain.bits:5.1f} bits   tokens/s {_percent(gain.tokens_per_s)}   up {_percent(gain.up)}"
        f"   both ways {_percent(gain.both)}"
        for gain in row.gains
    ]
    return "\n".join(lines)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6, help="runs a cell and code")
    parser.add_argument("--tokens", type=int, default=400, help="of an answer in the world")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    try:
        traces = read_traces(TRACES)
        prompts = prompts_of(traces)
        measured = [
            measure(name, traces, prompts or [()] * len(traces), sorted(set(WIDTHS.values()))) for name in CODES
        ]
        known = "prompt and answer known" if prompts else "the prompts are not at hand: answers alone known"
        sys.stdout.write(f"{bits_table(measured)}\n({known}; log2 V = {math.log2(traces[0].source.vocab_size):.1f})\n")
        for codec in Codec:
            sys.stdout.write(f"pack and unpack, {codec.name}: {codec_us(traces, codec):.2f} us a node\n")
        sys.stdout.write("\nAgainst raw ids, percent (standard error over seeds):\n")
        rows: list[Row] = []
        for cell in CELLS:
            rows.append(compare(cell, charges_of(measured, cell.tree), range(1, args.seeds + 1), args.tokens))
            sys.stdout.write(row_text(rows[-1]) + "\n")
            sys.stdout.flush()
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    if args.json:
        figures = {"bits": [asdict(b) for b in measured], "world": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def _change(figure: Callable[[Result], float], ours: Sequence[Result], raw: Sequence[Result]) -> tuple[float, float]:
    """Mean change in percent, and its standard error."""
    changes = [100 * (figure(a) / figure(b) - 1) for a, b in zip(ours, raw, strict=True)]
    error = statistics.stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else 0.0
    return statistics.fmean(changes), error


def _speed(result: Result) -> float:
    return result.tokens_per_s.mean


def _up(result: Result) -> float:
    return result.up_bytes_per_token


def _both(result: Result) -> float:
    return result.up_bytes_per_token + result.down_bytes_per_token


def _percent(value: tuple[float, float]) -> str:
    return f"{value[0]:+5.1f} ({value[1]:.1f})"


if __name__ == "__main__":
    sys.exit(main())
