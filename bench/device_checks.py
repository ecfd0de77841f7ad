"""Bits of single kernels: products in any company and in both tiles, noise and draws against NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.bench.device_figures import Figure
from acespec.bench.device_lab import Lab, differing, relative_error
from acespec.bench.device_model import layer_shapes, random_product
from acespec.bench.device_noise import gumbel_of_words
from acespec.bench.device_sizes import KINDS, Kind
from acespec.cloud.cuda_backend.product import Product
from acespec.cloud.draw_rule import DrawRule
from acespec.kernels.draw_rows import draw_rows, draw_scratch
from acespec.kernels.gemm import gemm
from acespec.kernels.lm_head import head_argmax
from acespec.kernels.noise import gumbel_rows
from acespec.kernels.row_params import row_params, to_device
from acespec.kernels.tiles import cdiv, gemm_tile
from acespec.kernels.w4_weight import W4Weight, dequantize
from acespec.proto import noise
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams

NEAR = 1e-4
"""Relative error of fp32 sums of bf16 products; a wrong index or a missing element is far beyond."""
WIDE = "wide tile against narrow"
CORNER = 4096
"""Words around each corner of the transform to noise that are tried."""

RULES = (
    SamplingParams(),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, top_k=50),
    SamplingParams(temperature=1.0, top_p=0.95),
    SamplingParams(temperature=1.3, top_k=200, top_p=0.9, min_p=0.02),
    SamplingParams(temperature=2.0),
)


def product_bits(lab: Lab) -> Iterator[Figure]:
    """Each product of the 8B shape: a row alone, in company and in the other tile; and near the plain result."""
    found: list[Figure] = []
    for kind in KINDS:
        for name, (outputs, inputs) in layer_shapes(lab.sizes.model).items():
            for figure in _bits_of(lab, f"{kind} {name}", random_product(lab, outputs, inputs, kind), kind):
                found.append(figure)
                yield figure
    for figure in _head_bits(lab):
        found.append(figure)
        yield figure
    apart = {figure.name: figure.value or 0 for figure in found if WIDE in figure.name}
    names = ", ".join(name.partition(":")[0] for name, count in apart.items() if count)
    note = f"in {names}: so the narrow tile has to serve all" if names else ""
    yield Figure(f"all products: {WIDE}", sum(apart.values()), "differ", note=note, headline=True)


def _bits_of(lab: Lab, name: str, product: Product, kind: Kind) -> Iterator[Figure]:
    x = lab.normal(lab.sizes.rows[-1], product.inputs)
    whole = _run(lab, product, x)
    by_rows = {m: differing(_run(lab, product, x[:m]), whole[:, :m]) for m in lab.sizes.rows}
    by_rows |= {-1: differing(_run(lab, product, x.flip(0)).flip(1), whole), -2: _beside_nan(lab, product, x, whole)}
    facts = {"by rows (-1: reversed, -2: beside NaN)": {str(rows): count for rows, count in by_rows.items()}}
    yield Figure(f"{name}: rows in other company", sum(by_rows.values()), "differ", at_most=0, facts=facts)
    wide = differing(_run(lab, product, x, wide=True), whole)
    yield Figure(f"{name}: {WIDE}", wide, "differ")
    dense = dequantize(product.weight) if isinstance(product.weight, W4Weight) else product.weight
    error = relative_error(whole.sum(0), x.float() @ dense.float().T)
    yield Figure(f"{name}: error against a plain product", error, "relative", at_most=NEAR)
    if kind == "w4":
        out = lab.poison(*whole.shape)
        gemm(x, dense, out, product.narrow)
        yield Figure(f"{name}: against bf16 of the same weights", differing(out, whole), "differ", at_most=0)


def _run(lab: Lab, product: Product, x: torch.Tensor, *, wide: bool = False) -> torch.Tensor:
    return product(x, lab.poison(product.numbers(len(x))), wide=wide)


def _beside_nan(lab: Lab, product: Product, x: torch.Tensor, whole: torch.Tensor) -> int:
    row = len(x) // 2
    lonely = torch.full_like(x, torch.nan)
    lonely[row] = x[row]
    return differing(_run(lab, product, lonely)[:, row], whole[:, row])


def _head_bits(lab: Lab) -> Iterator[Figure]:
    """The output head stores its logits: in both tiles, for all numbers of rows."""
    config, most = lab.sizes.model, lab.sizes.rows[-1]
    x, weight = lab.normal(most, config.hidden), lab.normal(config.vocab_rows, config.hidden, scale=config.hidden**-0.5)
    whole = _head(lab, x, weight)
    counts = {m: differing(_head(lab, x[:m], weight), whole[:m]) for m in lab.sizes.rows}
    facts = {"by rows": {str(rows): count for rows, count in counts.items()}}
    yield Figure("bf16 head: rows in other company", sum(counts.values()), "differ", at_most=0, facts=facts)
    wide = differing(_head(lab, x, weight, wide=True), whole)
    yield Figure(f"bf16 head: {WIDE}", wide, "differ")
    error = relative_error(whole, x.float() @ weight.float().T)
    yield Figure("bf16 head: error against a plain product", error, "relative", at_most=NEAR)


def _head(lab: Lab, x: torch.Tensor, weight: torch.Tensor, *, wide: bool = False) -> torch.Tensor:
    """Logits of greedy rows, all stored."""
    return _drawn(lab, x, weight, len(weight), [SamplingParams()] * len(x), wide=wide)[1]


def _drawn(
    lab: Lab, x: torch.Tensor, weight: torch.Tensor, vocab: int, rules: list[SamplingParams], *, wide: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids of unfiltered draws, logits) of the fused head; row r has seed r and stands at 1000 + r."""
    rows, tile = len(x), gemm_tile(len(weight), weight.shape[1], wide=wide)
    tiles = cdiv(len(weight), tile.block_n)
    logits, ids = lab.poison(rows, len(weight)), torch.full((rows,), -1, dtype=torch.int32, device=lab.device)
    keep = torch.arange(rows, dtype=torch.int32, device=lab.device)
    params = to_device(row_params(_places(rules)), lab.device)
    scores, best = lab.poison(rows, tiles), torch.zeros((rows, tiles), dtype=torch.int32, device=lab.device)
    head_argmax(x, weight, vocab, params, keep, scores, best, logits, ids, tile)
    return ids, logits


def _places(rules: list[SamplingParams]) -> list[tuple[DrawRule, int]]:
    return [(DrawRule(rule, _seed(row), 0), 1000 + row) for row, rule in enumerate(rules)]


def _seed(row: int) -> int:
    return row * 0x9E3779B97F4A7C15 % (1 << 64)


def noise_and_sampling_bits(lab: Lab) -> Iterator[Figure]:
    """Noise of whole vocabularies and of hard words; ids of draws with and without filters."""
    yield Figure("noise of whole vocabularies, against NumPy", _noise_rows(lab), "differ", at_most=0)
    words = _hard_words(lab)
    found = gumbel_of_words(torch.from_numpy(words.view(np.int32)).to(lab.device)).cpu().numpy()
    wrong = int((found.view(np.uint32) != noise.gumbel_from_bits(words).view(np.uint32)).sum())
    yield Figure(f"noise of {len(words)} hard words, against NumPy", wrong, "differ", at_most=0)
    yield from _draws(lab)


def _noise_rows(lab: Lab) -> int:
    count, vocab = lab.sizes.noise_rows, lab.sizes.noise_vocab
    seeds = [0, (1 << 64) - 1, *(_seed(row + 1) for row in range(count))][:count]
    positions = [0, (1 << 31) - 1, *(37**row % 100_003 for row in range(count))][:count]
    words = torch.from_numpy(np.array(seeds, "<u8").view("<i4").reshape(-1, 2).copy()).to(lab.device)
    out = lab.poison(count, vocab)
    gumbel_rows(words, torch.tensor(positions, dtype=torch.int32, device=lab.device), out)
    expected = np.stack([noise.gumbel(seed, at, vocab) for seed, at in zip(seeds, positions, strict=True)])
    return differing(out.cpu(), torch.from_numpy(expected))


def _hard_words(lab: Lab) -> NDArray[np.uint32]:
    """Both ends, where the transform changes over, powers of two, and many others."""
    corner, others = (CORNER, 1 << 22) if lab.timed else (16, 512)
    near = np.arange(-corner, corner)
    places = [0, 3 << 30, *(1 << n for n in range(32)), *(3 << n for n in range(30))]
    random = np.random.default_rng(5).integers(0, 1 << 32, others)
    return np.concatenate([*((place + near) % (1 << 32) for place in places), random]).astype(np.uint32)


def _draws(lab: Lab) -> Iterator[Figure]:
    """The fused head's draws, and draws from its stored logits with filters, against `proto.sampling`."""
    rows, width, vocab = lab.sizes.drawn_rows, lab.sizes.head_inputs, lab.sizes.model.vocab_rows
    rules = [RULES[row % len(RULES)] for row in range(rows)]
    weight = lab.normal(vocab, width, scale=2.5 * width**-0.5)
    known = vocab - 7  # ids beyond are padding
    fused, logits = _drawn(lab, lab.normal(rows, width), weight, known, rules)
    host, places = logits.cpu().numpy(), _places(rules)
    plain = [SamplingParams(temperature=rule.temperature) for rule in rules]
    right = [sample(host[r], plain[r], _seed(r), 1000 + r, vocab_size=known) for r in range(rows)]
    wrong = int((fused.cpu().numpy() != np.array(right)).sum())
    yield Figure("ids drawn by the fused head, against NumPy", wrong, "differ", at_most=0)
    which = torch.arange(rows, dtype=torch.int32, device=lab.device)
    ids = torch.full_like(which, -1)
    params = to_device(row_params(places), lab.device)
    draw_rows(logits, which, params, known, draw_scratch(rows, vocab, lab.device), ids)
    right = [sample(host[r], rules[r], _seed(r), 1000 + r, vocab_size=known) for r in range(rows)]
    wrong = int((ids.cpu().numpy() != np.array(right)).sum())
    yield Figure("ids drawn with top-k, top-p, min-p, against NumPy", wrong, "differ", at_most=0)
