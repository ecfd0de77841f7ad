"""Times of single kernels against their floors: products beside cuBLAS, the head and its draws, the small ones."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import partial

import torch
import triton

from acespec.bench.device_figures import Figure
from acespec.bench.device_lab import Lab, Launch, in_words, micro, percent
from acespec.bench.device_model import layer_shapes, random_product
from acespec.bench.device_sizes import KINDS, Kind
from acespec.cloud.cuda_backend.product import Product
from acespec.cloud.draw_rule import DrawRule
from acespec.kernels.accept import accept
from acespec.kernels.add_norm import add_norm
from acespec.kernels.draw_rows import draw_rows, draw_scratch
from acespec.kernels.embed import embed
from acespec.kernels.lm_head import head_argmax
from acespec.kernels.rope_kv import rope_kv
from acespec.kernels.row_params import RowParams, row_params, to_device
from acespec.kernels.silu_mul import silu_mul
from acespec.kernels.tiles import cdiv, gemm_tile
from acespec.proto.sampling_params import SamplingParams

FEW_ROWS = 64
CUBLAS_RATIO = 1.25
"""Times cuBLAS's time that few rows may take: 80 % of its rate."""
SMALL_TARGET = 85.0
"""Percent of the copy rate for kernels that only move rows."""
DRAW_TARGETS_US = {32: 70.0, 128: 134.0}
"""By rows; what others' fused sampling takes (vllm issue 37798)."""
WARM = SamplingParams(temperature=0.8)
FILTERED = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.02)
NUCLEUS = SamplingParams(temperature=0.8, top_p=0.95)


def device_facts(lab: Lab) -> Iterator[Figure]:
    """What runs here, and the copy rate that all others are compared with."""
    facts: dict[str, object] = {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "interpreter": not lab.timed,
    }
    name = "no GPU: Triton's interpreter"
    if lab.timed:
        seen = torch.cuda.get_device_properties(lab.device)
        name = seen.name
        facts |= {
            "device": seen.name,
            "multiprocessors": seen.multi_processor_count,
            "cache_bytes": seen.L2_cache_size,
            "memory_bytes": seen.total_memory,
            "cuda": torch.version.cuda,
        }
    rate = None if lab.copy_rate is None else lab.copy_rate / 1e9
    note = f"{name}, torch {torch.__version__}, triton {triton.__version__}"
    yield Figure("copy rate, read and written", rate, "GB/s", note=note, headline=True, facts=facts)


def product_speed(lab: Lab) -> Iterator[Figure]:
    """Each product of a layer for few and many rows, then the layer's sum: share of the copy rate, ratio to cuBLAS."""
    few: dict[tuple[int, str], list[float | None]] = {}
    for name, shape in layer_shapes(lab.sizes.model).items():
        for kind in KINDS:
            products = _set_of(lab, shape, kind)
            for rows in lab.sizes.timed_rows:
                x, nbytes = lab.normal(rows, shape[1]), products[0].nbytes()
                ours = {
                    tile: _product_seconds(lab, products, x, wide=tile == "wide")
                    for tile in (("narrow", "wide") if rows > FEW_ROWS else ("narrow",))
                }
                theirs = _cublas_seconds(lab, products, x) if kind == "bf16" else None
                best = ours["wide"] if "wide" in ours else ours["narrow"]
                for key, seconds in ((kind, best), (f"{kind} floor", lab.floor(nbytes)), ("cuBLAS", theirs)):
                    if not (key == "cuBLAS" and kind == "w4"):
                        few.setdefault((rows, key), []).append(seconds)
                yield _product_figure(lab, f"{kind} {name}, {rows} rows", rows, shape, nbytes, ours, theirs)
            del products
    for rows in lab.sizes.timed_rows:
        yield from _layer(rows, {key: _sum(values) for (m, key), values in few.items() if m == rows})


def _set_of(lab: Lab, shape: tuple[int, int], kind: Kind) -> list[Product]:
    first = random_product(lab, *shape, kind)
    return [first, *(random_product(lab, *shape, kind) for _ in range(lab.rotation(first.nbytes()) - 1))]


def _product_seconds(lab: Lab, products: list[Product], x: torch.Tensor, *, wide: bool) -> float | None:
    space = lab.poison(products[0].numbers(len(x)))
    return lab.seconds([partial(product, x, space, wide=wide) for product in products])


def _cublas_seconds(lab: Lab, products: list[Product], x: torch.Tensor) -> float | None:
    out = torch.empty(len(x), products[0].outputs, dtype=torch.bfloat16, device=lab.device)
    dense = [product.weight.T for product in products if isinstance(product.weight, torch.Tensor)]
    return lab.seconds([partial(torch.matmul, x, weight, out=out) for weight in dense])


def _product_figure(
    lab: Lab,
    name: str,
    rows: int,
    shape: tuple[int, int],
    nbytes: int,
    ours: dict[str, float | None],
    theirs: float | None,
) -> Figure:
    floor = lab.floor(nbytes)
    best = ours.get("wide", ours["narrow"])
    return Figure(
        f"product {name}",
        micro(best),
        "us",
        facts={
            **{f"{tile}_us": micro(seconds) for tile, seconds in ours.items()},
            "cublas_us": micro(theirs),
            "floor_us": micro(floor),
            "percent_of_floor": percent(floor, best),
            "tflops": None if best is None else 2e-12 * rows * shape[0] * shape[1] / best,
        },
    )


def _layer(rows: int, sums: dict[str, float | None]) -> Iterator[Figure]:
    ours, packed, theirs = sums["bf16"], sums["w4"], sums["cuBLAS"]
    yield Figure(
        f"bf16 products of a layer, {rows} rows: time against cuBLAS",
        None if ours is None or theirs is None else ours / theirs,
        "times",
        at_most=CUBLAS_RATIO if rows <= FEW_ROWS else None,
        note=f"{in_words(micro(ours), 'us', 1)}, {in_words(percent(sums['bf16 floor'], ours), '% of copy rate', 0)}",
        headline=True,
    )
    yield Figure(
        f"w4 products of a layer, {rows} rows: bf16's time against",
        None if ours is None or packed is None else ours / packed,
        "times",
        note=f"{in_words(micro(packed), 'us', 1)}, {in_words(percent(sums['w4 floor'], packed), '% of copy rate', 0)}",
        headline=True,
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def sampling_speed(lab: Lab) -> Iterator[Figure]:
    """The head with its draw, beside cuBLAS's bare product; draws from stored logits, which lie in the cache."""
    config = lab.sizes.model
    weight = lab.normal(config.vocab_rows, config.hidden, scale=2.5 * config.hidden**-0.5)
    floor = lab.floor(weight.nbytes)
    for rows in lab.sizes.sampled_rows:
        x = lab.normal(rows, config.hidden)
        fused = lab.seconds([_head(lab, x, weight)])
        bare = torch.empty(rows, len(weight), dtype=torch.bfloat16, device=lab.device)
        theirs = lab.seconds([partial(torch.matmul, x, weight.T, out=bare)])
        yield Figure(
            f"head and draw, {rows} rows",
            percent(floor, fused),
            "% of copy rate",
            note=f"{in_words(micro(fused), 'us', 0)}; product alone by cuBLAS {in_words(micro(theirs), 'us', 0)}",
            headline=True,
            facts={"us": micro(fused), "cublas_us": micro(theirs), "floor_us": micro(floor)},
        )
    del weight
    for rows in lab.sizes.draw_rows:
        logits = lab.normal(rows, config.vocab_rows, dtype=torch.float32, scale=2.5)
        for name, rule in (("temperature", WARM), ("top-p", NUCLEUS), ("top-k, top-p, min-p", FILTERED)):
            seconds = lab.seconds([_draw_and_walk(lab, logits, rule)])
            target = DRAW_TARGETS_US.get(rows) if rule is WARM else None
            yield Figure(f"draw and walk, {rows} rows, {name}", micro(seconds), "us", at_most=target, headline=True)


def _params(lab: Lab, rows: int, rule: SamplingParams) -> RowParams:
    places = [(DrawRule(rule, row + 1, 0), 1000 + row) for row in range(rows)]
    return to_device(row_params(places), lab.device)


def _ints(lab: Lab, *shape: int, value: int = 0) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.int32, device=lab.device)


def _head(lab: Lab, x: torch.Tensor, weight: torch.Tensor) -> Launch:
    rows, tile = len(x), gemm_tile(len(weight), weight.shape[1], wide=len(x) > FEW_ROWS)
    tiles = cdiv(len(weight), tile.block_n)
    return partial(
        head_argmax,
        x,
        weight,
        len(weight),
        _params(lab, rows, WARM),
        _ints(lab, rows, value=-1),
        lab.poison(rows, tiles),
        _ints(lab, rows, tiles),
        lab.poison(1, len(weight)),
        _ints(lab, rows),
        tile,
    )


def _draw_and_walk(lab: Lab, logits: torch.Tensor, rule: SamplingParams) -> Launch:
    """Draw all rows, then walk as many chains of up to eight drafts as they make."""
    rows, vocab = logits.shape
    width = min(8, rows)
    count = rows // width
    which = torch.arange(rows, dtype=torch.int32, device=lab.device)
    params, scratch, ids = _params(lab, rows, rule), draw_scratch(rows, vocab, lab.device), _ints(lab, rows)
    walks = [[n * width, width, 0, n * width] for n in range(count)]
    blocks = torch.tensor(walks, dtype=torch.int32, device=lab.device)
    parents = torch.arange(-1, width - 1, dtype=torch.int32, device=lab.device).repeat(count)
    tokens = _ints(lab, count * width)
    outs = _ints(lab, count, width), _ints(lab, count, width), _ints(lab, count)

    def launch() -> None:
        draw_rows(logits, which, params, vocab, scratch, ids)
        accept(blocks, parents, tokens, ids, *outs)

    return launch


def small_kernel_speed(lab: Lab) -> Iterator[Figure]:
    """What stands between the products: for 8 rows out of the cache, for many from memory."""
    for rows in (8, lab.sizes.many_rows):
        many = rows == lab.sizes.many_rows
        for name, (launch, nbytes) in _small_kernels(lab, rows).items():
            seconds = lab.seconds([launch])
            share = percent(lab.floor(nbytes), seconds)
            target = SMALL_TARGET if many and name != "embed" else None
            facts = {"us": micro(seconds), "bytes": nbytes}
            if many:
                note = in_words(micro(seconds), "us", 1)
                yield Figure(
                    f"{name}, {rows} rows", share, "% of copy rate", None, target, note, headline=True, facts=facts
                )
            else:
                yield Figure(f"{name}, {rows} rows", micro(seconds), "us", headline=True, facts=facts)


def _small_kernels(lab: Lab, rows: int) -> dict[str, tuple[Launch, int]]:
    """Launches with the bytes that they move."""
    config = lab.sizes.model
    f32, shapes = torch.float32, layer_shapes(config)
    hidden, heads, kv_heads, width = config.hidden, config.heads, config.kv_heads, config.head_dim
    splits = {name: gemm_tile(*shape).splits for name, shape in shapes.items()}
    down, qkv = (
        lab.normal(splits["down"], rows, hidden, dtype=f32),
        lab.normal(splits["qkv"], rows, shapes["qkv"][0], dtype=f32),
    )
    gate_up = lab.normal(splits["gate_up"], rows, 2 * config.ffn, dtype=f32)
    residual, normed = lab.normal(rows, hidden, dtype=f32), lab.normal(rows, hidden)
    angles = lab.normal(rows, width // 2, dtype=f32), lab.normal(rows, width // 2, dtype=f32)
    places = torch.arange(rows, dtype=torch.int32, device=lab.device)
    q, pool, active = lab.normal(rows, heads, width), lab.normal(2, rows, kv_heads, width), lab.normal(rows, config.ffn)
    embedding, gains = lab.normal(config.vocab_rows, hidden), lab.normal(hidden, dtype=f32)
    eps = config.norm_eps
    tokens = places * 17 % config.vocab_rows
    launches: dict[str, tuple[Launch, int]] = {
        "add_norm": (
            partial(add_norm, residual, down, gains, eps, normed),
            2 * residual.nbytes + down.nbytes + normed.nbytes,
        ),
        "rope_kv": (
            partial(rope_kv, qkv, None, None, None, eps, *angles, places, places, q, pool[0], pool[1]),
            qkv.nbytes + q.nbytes + pool.nbytes + angles[0].nbytes + angles[1].nbytes,
        ),
        "silu_mul": (partial(silu_mul, gate_up, active), gate_up.nbytes + active.nbytes),
        "embed": (partial(embed, tokens, embedding, residual), rows * hidden * 6),
    }
    return launches
