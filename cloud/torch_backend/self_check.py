"""Does this machine, with this model and thread count, keep the promise? Tried at every start, in about a second.

The same text is run in several ways: in one block, token by token, with others in the step, over pages full of
rejected drafts, as a tree, in pages that lie apart. All must give the same logits, bit for bit. The bits themselves
are returned too: they go into the name of the numerics, so that two machines whose libraries add up in different
orders get different names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import PAGE, Block
from acespec.proto.sampling_params import SamplingParams

WINDOW = 5
"""Rows that are compared: the last before a page edge and the first after it."""

Pages = tuple[int, ...]

WHOLE, OWN, SCATTERED, BEFORE, AFTER = (0, 1), (3, 4), (3, 2), (5,), (6,)
"""Page tables; the text up to the window lies in the first page of `OWN` and `SCATTERED`."""
PROBE_PAGES = 7

Run = Callable[[Sequence[Block]], list[torch.Tensor]]
"""Runs one step; float32[len(tokens) - sample_from, vocab rows] for each block, on the CPU."""

Probe = Callable[[Run, list[int], int], torch.Tensor]
"""(engine whose pages `OWN` hold the text up to the window, text, start of the window) -> the window's logits."""


def probe_bits(run: Run, max_length: int, vocab_size: int) -> tuple[bytes, str | None]:
    """(logits of the probe text's last rows, what differed or None if nothing did). Writes to pages 0 .. 6."""
    length = min(PAGE + 2, max_length)
    tokens = [(7 + 31 * n) % vocab_size for n in range(length)]
    start = length - min(WINDOW, length - 1)
    expected = _run(run, _block(WHOLE, 0, tokens, start))
    _run(run, _block(OWN, 0, tokens[:start], start))
    wrong = [name for name, probe in PROBES.items() if not torch.equal(probe(run, tokens, start), expected)]
    return expected.numpy().tobytes(), ", ".join(wrong) or None


def _one_at_a_time(run: Run, tokens: list[int], start: int) -> torch.Tensor:
    return torch.cat([_run(run, _block(OWN, n, tokens[n : n + 1])) for n in range(start, len(tokens))])


def _in_company(run: Run, tokens: list[int], start: int) -> torch.Tensor:
    """The window between two other sessions, at other positions and with other tokens."""
    own = _block(OWN, start, tokens[start:])
    return run([_block(BEFORE, 0, tokens[:2]), own, _block(AFTER, 0, tokens[:1])])[1]


def _after_rejection(run: Run, tokens: list[int], start: int) -> torch.Tensor:
    """Wrong tokens first, then the window in two unequal parts."""
    _run(run, _block(OWN, start, tokens[: len(tokens) - start]))
    cut = start + 2
    first = _run(run, _block(OWN, start, tokens[start:cut]))
    return torch.cat((first, _run(run, _block(OWN, cut, tokens[cut:]))))


def _as_a_tree(run: Run, tokens: list[int], start: int) -> torch.Tensor:
    """The window as the younger of two siblings at every depth."""
    rows, parents = tokens[start : start + 1], [-1]
    for depth, token in enumerate(tokens[start + 1 :]):
        rows += [tokens[depth], token]
        parents += [2 * depth, 2 * depth]
    return _run(run, _block(OWN, start, rows, parents=parents))[::2]


def _in_scattered_pages(run: Run, tokens: list[int], start: int) -> torch.Tensor:
    return _run(run, _block(SCATTERED, start, tokens[start:]))


PROBES: dict[str, Probe] = {
    "one token at a time": _one_at_a_time,
    "with other sessions in the step": _in_company,
    "after rejected drafts": _after_rejection,
    "as a tree beside its siblings": _as_a_tree,
    "in scattered pages": _in_scattered_pages,
}


def _run(run: Run, block: Block) -> torch.Tensor:
    return run([block])[0]


def _block(pages: Pages, start: int, tokens: Sequence[int], sample_from: int = 0, parents: Sequence[int] = ()) -> Block:
    return Block(
        pages, start, tuple(tokens), (0,) * start, sample_from, DrawRule(SamplingParams(), 0, 0), tuple(parents)
    )
