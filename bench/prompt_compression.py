"""How small does a prompt get? Bytes and bits per token of every way to write it.

    python -m acespec.bench.prompt_compression --model smollm2-135m [--prompts FILE] [--json FILE]

FILE holds one JSON object a line whose "turns" is a list of texts (the format of Spec-Bench); without it a few
prompts of our own are measured. Bytes are payload: the 79 bytes of gRPC, HTTP/2, TCP and IP headers come on top.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.dictionary import prompt_dictionary
from acespec.proto.inflate import zstd
from acespec.proto.prompt import Method, all_forms, pack_ids, unpack_ids

LENGTH_CLASSES: Final = ((1, 32), (32, 128), (128, 512), (512, 1 << 30))
"""Tokens, from and below."""

OWN_PROMPTS: Final = (
    "What is the tallest mountain in Africa?",
    "Write a Python function that removes duplicate lines from a file but keeps their order.",
    "Translate to German: I would like a room with a view of the lake for two nights, please.",
    "My sister is planning a weekend trip with three small children and asked me for a packing list. Please write "
    "one, sorted by what goes into which bag, and add a short remark where something is often forgotten.",
    "A water tank holds 450 litres. It loses 3 litres an hour through a crack and is filled at 12 litres an hour. "
    "After how many hours is it full if it holds 90 litres now? Show each step, then give the number alone.",
    "Fix the bug in this code and explain it:\n\ndef mean(values):\n    total = 0\n    for i in range(1, len(values)):"
    "\n        total += values[i]\n    return total / len(values)\n",
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, and the bytes of each way to write it."""

    tokens: int
    sizes: dict[str, int]
    chosen: Method
    seconds: float


def measure(text: str, ids: list[int], vocab_size: int, encode: Callable[[str], list[int]]) -> Prompt:
    """All sizes for one prompt; `seconds` is packing and unpacking."""
    forms = all_forms(np.asarray(ids), vocab_size)
    raw = text.encode()
    start = time.perf_counter()
    ours = pack_ids(ids, vocab_size, text=text, encode=encode)
    if unpack_ids(ours, vocab_size, len(ids), encode=encode) != ids:
        raise AssertionError(f"the prompt does not come back as it was: {text[:60]!r}")
    seconds = time.perf_counter() - start
    sizes = {
        "text": len(raw),
        "zlib of text": len(zlib.compress(raw, 9)),
        "zstd of text": len(zstd(raw)),
        "zstd of text + dictionary": len(zstd(raw, prompt_dictionary())),
        "packed ids": len(forms[Method.PACKED]),
        "zstd of ids": len(forms[Method.ZSTD]),
        "deflate of ids": len(forms[Method.DEFLATE]),
        "ours (smallest, with header)": len(ours),
    }
    return Prompt(tokens=len(ids), sizes=sizes, chosen=Method(ours[0]), seconds=seconds)


def read_prompts(path: Path | None) -> Iterable[str]:
    """The first turn of each line, or our own prompts."""
    if path is None:
        return OWN_PROMPTS
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["turns"][0] for line in lines if line.strip()]


def table(prompts: Sequence[Prompt]) -> Table:
    """Mean bits per token, and bytes per prompt, by length of the prompt."""
    out = Table(title="bits per token (mean bytes a prompt)")
    out.add_column("")
    groups = [group for group in _by_length(prompts) if group[1]]
    for name, group in groups:
        out.add_column(f"{name}\n{len(group)} prompts", justify="right")
    for way in prompts[0].sizes:
        out.add_row(way, *(_cell(way, group) for _, group in groups))
    for method in Method:
        out.add_row(f"chosen: {method.name}", *(str(sum(p.chosen == method for p in group)) for _, group in groups))
    out.add_row(
        "pack + unpack, ms", *(f"{1e3 * sum(p.seconds for p in group) / len(group):.1f}" for _, group in groups)
    )
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer is used")
    parser.add_argument("--prompts", type=Path, help="JSON lines with 'turns'")
    parser.add_argument("--json", type=Path, help="write all sizes to this file")
    options = parser.parse_args()
    tokenizer = Tokenizer.load(resolve(options.model))
    texts = [text for text in read_prompts(options.prompts) if text]
    prompts = [measure(text, tokenizer.encode(text), tokenizer.vocab_size, tokenizer.encode) for text in texts]
    Console().print(table(prompts))
    if options.json:
        options.json.write_text(json.dumps([asdict(prompt) for prompt in prompts]), encoding="utf-8")


def _by_length(prompts: Sequence[Prompt]) -> list[tuple[str, list[Prompt]]]:
    classes = [
        (f"{low}-{high - 1} tokens" if high < 1 << 30 else f"{low}+ tokens", low, high) for low, high in LENGTH_CLASSES
    ]
    groups = [(name, [p for p in prompts if low <= p.tokens < high]) for name, low, high in classes]
    return [*groups, ("all", list(prompts))]


def _cell(way: str, group: Sequence[Prompt]) -> str:
    size, tokens = sum(p.sizes[way] for p in group), sum(p.tokens for p in group)
    return f"{8 * size / tokens:.2f} ({size / len(group):.0f})"


if __name__ == "__main__":
    main()
