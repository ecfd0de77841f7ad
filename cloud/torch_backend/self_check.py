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
from acespec.cloud.torch_backend.kv_cache import KvCache
from acespec.cloud.torch_backend.model import Model
from acespec.cloud.torch_backend.passes import forward
from acespec.proto.sampling_params import SamplingParams

WINDOW = 5
"""Rows that are compared: the last before a page edge and the first after it."""

Pages = tuple[int, ...]

WHOLE, OWN, SCATTERED, BEFORE, AFTER = (0, 1), (3, 4), (3, 2), (5,), (6,)
"""Page tables; the text up to the window lies in the first page of `OWN` and `SCATTERED`."""
PROBE_PAGES = 7

Probe = Callable[[Model, KvCache, list[int], int], torch.Tensor]
"""(model, cache that holds the text up to the window in `OWN`, text, start of the window) -> the window's logits."""


def probe_bits(model: Model, max_length: int, vocab_size: int) -> tuple[bytes, str | None]:
    """(logits of the probe text's last rows, what differed or None if nothing did)."""
    cache = KvCache(model.config, PROBE_PAGES)
    length = min(PAGE + 2, max_length)
    tokens = [(7 + 31 * n) % vocab_size for n in range(length)]
    start = length - min(WINDOW, length - 1)
    expected = _run(model, cache, _block(WHOLE, 0, tokens, start))
    _run(model, cache, _block(OWN, 0, tokens[:start], start))
    wrong = [name for name, probe in PROBES.items() if not torch.equal(probe(model, cache, tokens, start), expected)]
    return expected.numpy().tobytes(), ", ".join(wrong) or None


def _one_at_a_time(model: Model, cache: KvCache, tokens: list[int], start: int) -> torch.Tensor:
    return torch.cat([_run(model, cache, _block(OWN, n, tokens[n : n + 1])) for n in range(start, len(tokens))])


def _in_company(model: Model, cache: KvCache, tokens: list[int], start: int) -> torch.Tensor:
    """The window between two other sessions, at other positions and with other tokens."""
    own = _block(OWN, start, tokens[start:])
    return forward(model, cache, [_block(BEFORE, 0, tokens[:2]), own, _block(AFTER, 0, tokens[:1])]).logits[1]


def _after_rejection(model: Model, cache: KvCache, tokens: list[int], start: int) -> torch.Tensor:
    """Wrong tokens first, then the window in two unequal parts."""
    _run(model, cache, _block(OWN, start, tokens[: len(tokens) - start]))
    cut = start + 2
    first = _run(model, cache, _block(OWN, start, tokens[start:cut]))
    return torch.cat((first, _run(model, cache, _block(OWN, cut, tokens[cut:]))))


def _as_a_tree(model: Model, cache: KvCache, tokens: list[int], start: int) -> torch.Tensor:
    """The window as the younger of two siblings at every depth."""
    rows, parents = tokens[start : start + 1], [-1]
    for depth, token in enumerate(tokens[start + 1 :]):
        rows += [tokens[depth], token]
        parents += [2 * depth, 2 * depth]
    return _run(model, cache, _block(OWN, start, rows, parents=parents))[::2]


def _in_scattered_pages(model: Model, cache: KvCache, tokens: list[int], start: int) -> torch.Tensor:
    return _run(model, cache, _block(SCATTERED, start, tokens[start:]))


PROBES: dict[str, Probe] = {
    "one token at a time": _one_at_a_time,
    "with other sessions in the step": _in_company,
    "after rejected drafts": _after_rejection,
    "as a tree beside its siblings": _as_a_tree,
    "in scattered pages": _in_scattered_pages,
}


def _run(model: Model, cache: KvCache, block: Block) -> torch.Tensor:
    return forward(model, cache, [block]).logits[0]


def _block(pages: Pages, start: int, tokens: Sequence[int], sample_from: int = 0, parents: Sequence[int] = ()) -> Block:
    return Block(pages, start, tuple(tokens), (), sample_from, DrawRule(SamplingParams(), 0, 0), tuple(parents))
