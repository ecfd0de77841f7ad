"""Acceptance traces on disk: what a target said, and what a drafter thought of each token.

A file is a sequence of JSON lines compressed with zstandard, one line a prompt, each complete in itself (files may be
concatenated after decompression). `ids`, `ranks` and `probabilities` are what the replay backend and the replay drafter
read; the simulator reads the rest too.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import zstandard

from acespec.proto.errors import UsageError

FORMAT = "acespec-trace-1"
SIBLINGS = 8
"""Guesses that are kept for each position."""
DEEPEST_RANK = 64
"""Ranks are counted up to here; this value itself means: not among the first so many."""
SUFFIX = ".jsonl.zst"
_LEVEL = 19


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Where a trace comes from.

    Attributes:
        target, drafter: the models, each with its runtime (`name, runtime`).
        temperature: of the sampling; 0 is greedy. No other filter is on.
        seed: of the noise, which both ends share.
        prompt_set, prompt, category: which prompt it was.
        prompt_len: ids before the first recorded position.
        vocab_size: ids that the target can sample.
        ended: the target ended the text by itself, and the last id is its end.
    """

    target: str
    drafter: str
    temperature: float
    seed: int
    prompt_set: str
    prompt: str
    category: str
    prompt_len: int
    vocab_size: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer of the target with the drafter's view of every token, given all tokens before it.

    Attributes:
        ids: the target's tokens.
        ranks: of each token in the drafter's list (log q + the shared noise, best first); at most DEEPEST_RANK.
        guesses: the first SIBLINGS of that list.
        chances: their probabilities under q.
        gaps: how far each of them lies behind the first in log q + noise; the second is the margin.
        overlaps: sum of min(p, q) over the vocabulary, the acceptance of optimal rejection sampling; at temperature 0
            whether the two agree.
        likeliest: whether the token is the likeliest under q: the acceptance of a drafter that ignores the noise.
    """

    source: TraceSource
    ids: tuple[int, ...]
    ranks: tuple[int, ...]
    guesses: tuple[tuple[int, ...], ...]
    chances: tuple[tuple[float, ...], ...]
    gaps: tuple[tuple[float, ...], ...]
    overlaps: tuple[float, ...]
    likeliest: tuple[bool, ...]

    def __post_init__(self) -> None:
        parts = (self.ranks, self.guesses, self.chances, self.gaps, self.overlaps, self.likeliest)
        if any(len(part) != len(self.ids) for part in parts):
            raise ValueError("the parts of a trace are of different length")

    def __len__(self) -> int:
        return len(self.ids)


def write_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Write all traces, or nothing: the file appears when it is whole.

    Raises:
        UsageError: it cannot be written.
    """
    text = "".join(json.dumps(_line(trace), separators=(",", ":")) + "\n" for trace in traces)
    data = zstandard.ZstdCompressor(level=_LEVEL).compress(text.encode())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def read_traces(path: Path) -> tuple[Trace, ...]:
    """All traces of a file.

    Raises:
        UsageError: it cannot be read, or is no trace of this format.
    """
    try:
        text = zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode()
        return tuple(_trace(json.loads(line)) for line in text.splitlines())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no whole trace of format {FORMAT} ({error}): record it again") from error


def _line(trace: Trace) -> dict[str, object]:
    return {
        "format": FORMAT,
        **asdict(trace.source),
        "ids": trace.ids,
        "ranks": trace.ranks,
        "probabilities": [round(chances[0], 4) for chances in trace.chances],
        "guesses": trace.guesses,
        "chances": [[round(chance, 4) for chance in chances[1:]] for chances in trace.chances],
        "gaps": [[round(gap, 2) for gap in gaps[1:]] for gaps in trace.gaps],
        "overlaps": [round(overlap, 4) for overlap in trace.overlaps],
        "likeliest": [int(hit) for hit in trace.likeliest],
    }


def _trace(line: dict[str, Any]) -> Trace:
    if line["format"] != FORMAT:
        raise ValueError(f"its format is {line['format']}")
    return Trace(
        TraceSource(**{field.name: line[field.name] for field in fields(TraceSource)}),
        ids=tuple(line["ids"]),
        ranks=tuple(line["ranks"]),
        guesses=tuple(tuple(row) for row in line["guesses"]),
        chances=tuple((best, *rest) for best, rest in zip(line["probabilities"], line["chances"], strict=True)),
        gaps=tuple((0.0, *rest) for rest in line["gaps"]),
        overlaps=tuple(line["overlaps"]),
        likeliest=tuple(bool(hit) for hit in line["likeliest"]),
    )
