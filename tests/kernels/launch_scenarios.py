"""Every launcher called as an 8B Llama calls it, for any number of rows: what the compiled cases stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch

from acespec.kernels.accept import accept
from acespec.kernels.add_norm import add_norm, norm_rows
from acespec.kernels.attention import AttentionWork, attend
from acespec.kernels.attention_combine import combine
from acespec.kernels.draw_rows import draw_rows
from acespec.kernels.embed import embed
from acespec.kernels.gemm import gemm
from acespec.kernels.gemm_w4 import gemm_w4
from acespec.kernels.lm_head import head_argmax
from acespec.kernels.move_kv import move_kv
from acespec.kernels.noise import gumbel_rows
from acespec.kernels.rope_kv import rope_kv
from acespec.kernels.row_look import DrawScratch, draw_scratch
from acespec.kernels.row_params import RowParams
from acespec.kernels.silu_mul import silu_mul
from acespec.kernels.tiles import cdiv, gemm_tile
from acespec.kernels.w4_weight import W4Weight
from tests.kernels.launch_keys import claiming, on_gpu

ROWS = (1, 2, 7, 8, 16, 17, 64, 128, 256, 4096)
HIDDEN, HEADS, KV_HEADS, DIM, FFN, VOCAB = 4096, 32, 8, 128, 14336, 128256
QKV = (HEADS + 2 * KV_HEADS) * DIM
LONGEST = 8192
PAGE = 64
SLOTS = PAGE * 1000 + 64
DRAFTED = 8
"""D: the rows of a block are D + 1."""

BF16, I32 = torch.bfloat16, torch.int32
Launch = Callable[[int], None]


def _gemm(outputs: int, inputs: int, wide: bool) -> Launch:
    def launch(rows: int) -> None:
        tile = gemm_tile(outputs, inputs, wide=wide)
        out = on_gpu(tile.splits, rows, outputs)
        gemm(on_gpu(rows, inputs, dtype=BF16), on_gpu(outputs, inputs, dtype=BF16), out, tile)

    return launch


def _ints(*shape: int) -> torch.Tensor:
    return on_gpu(*shape, dtype=I32)


def _gemm_w4(outputs: int, inputs: int, wide: bool, group: int = 128) -> Launch:
    def launch(rows: int) -> None:
        tile = gemm_tile(outputs, inputs, "w4", wide=wide)
        weight = W4Weight(_ints(outputs, inputs // 8), _ints(inputs // group, outputs), group)
        gemm_w4(on_gpu(rows, inputs, dtype=BF16), weight, on_gpu(tile.splits, rows, outputs), tile)

    return launch


def _partials(rows: int, outputs: int, inputs: int) -> torch.Tensor:
    return on_gpu(gemm_tile(outputs, inputs).splits, rows, outputs)


def _add_norm(inputs: int | None) -> Launch:
    def launch(rows: int) -> None:
        partials = None if inputs is None else _partials(rows, HIDDEN, inputs)
        add_norm(on_gpu(rows, HIDDEN), partials, on_gpu(HIDDEN), 1e-5, on_gpu(rows, HIDDEN, dtype=BF16))

    return launch


def _norm_rows(rows: int) -> None:
    partials, chosen = _partials(rows, HIDDEN, FFN), _ints(rows)
    norm_rows(on_gpu(rows, HIDDEN), partials, chosen, on_gpu(HIDDEN), 1e-5, on_gpu(rows, HIDDEN, dtype=BF16))


def _rope_kv(bias: bool, norms: bool) -> Launch:
    def launch(rows: int) -> None:
        pool = on_gpu(2, SLOTS, KV_HEADS, DIM, dtype=BF16)
        norm = on_gpu(DIM) if norms else None
        rope_kv(
            _partials(rows, QKV, HIDDEN),
            on_gpu(QKV) if bias else None,
            norm,
            norm,
            1e-6,
            on_gpu(LONGEST, DIM // 2),
            on_gpu(LONGEST, DIM // 2),
            _ints(rows),
            _ints(rows),
            on_gpu(rows, HEADS, DIM, dtype=BF16),
            pool[0],
            pool[1],
        )

    return launch


def _silu_mul(rows: int) -> None:
    silu_mul(_partials(rows, 2 * FFN, HIDDEN), on_gpu(rows, FFN, dtype=BF16))


def _move_kv(rows: int) -> None:
    move_kv(on_gpu(32, 2, SLOTS, KV_HEADS, DIM, dtype=BF16), _ints(rows), _ints(rows))


def _work(rows: int) -> AttentionWork:
    """As many work lists, and as long, as rows in blocks of D + 1 have; widths of no particular number."""
    blocks = rows // (DRAFTED + 1) + 1
    return AttentionWork(
        items=_ints(3 * rows, 4),
        n_items=_ints(1),
        tiles=_ints(2 * blocks, 8),
        tables=_ints(blocks, rows),
        tails=_ints(blocks, rows + 3),
        positions=_ints(rows),
        row_base=_ints(rows),
        row_parts=_ints(rows),
    )


def _attend(dim: int, kv_heads: int, group: int) -> Launch:
    def launch(rows: int) -> None:
        pool = on_gpu(2, SLOTS, kv_heads, dim, dtype=BF16)
        heads = kv_heads * group
        q, parts = on_gpu(rows, heads, dim, dtype=BF16), on_gpu(5 * rows, heads, dim)
        attend(q, pool[0], pool[1], _work(rows), dim**-0.5, PAGE, parts, on_gpu(5 * rows, heads, 2))

    return launch


def _combine(rows: int) -> None:
    parts, stats = on_gpu(5 * rows, HEADS, DIM), on_gpu(5 * rows, HEADS, 2)
    combine(parts, stats, _work(rows), on_gpu(rows, HEADS * DIM, dtype=BF16))


def _embed(rows: int) -> None:
    embed(_ints(rows), on_gpu(VOCAB, HIDDEN, dtype=BF16), on_gpu(rows, HIDDEN))


def _params(rows: int) -> RowParams:
    return RowParams(
        temperature=on_gpu(rows),
        seeds=_ints(rows, 2),
        draw_at=_ints(rows),
        top_k=_ints(rows),
        top_p=on_gpu(rows, dtype=torch.float64),
        min_p_log=on_gpu(rows),
    )


def _head_argmax(wide: bool) -> Launch:
    def launch(rows: int) -> None:
        tile = gemm_tile(VOCAB, HIDDEN, wide=wide)
        tiles = cdiv(VOCAB, tile.block_n)
        head_argmax(
            on_gpu(rows, HIDDEN, dtype=BF16),
            on_gpu(VOCAB, HIDDEN, dtype=BF16),
            VOCAB,
            _params(rows),
            _ints(rows),
            on_gpu(rows, tiles),
            _ints(rows, tiles),
            on_gpu(rows // 4 + 1, VOCAB),
            _ints(rows),
            tile,
        )

    return launch


def _draw_rows(rows: int) -> None:
    made = draw_scratch(rows, VOCAB, "meta")
    scratch = DrawScratch(*(claiming(getattr(made, field.name)) for field in fields(made)))
    draw_rows(on_gpu(rows, VOCAB), _ints(rows), _params(rows), VOCAB, scratch, _ints(rows))


def _gumbel_rows(rows: int) -> None:
    gumbel_rows(_ints(rows, 2), _ints(rows), on_gpu(rows, VOCAB))


def _accept(rows: int) -> None:
    blocks, longest = rows // (DRAFTED + 1) + 1, min(rows, 64)
    accept(
        _ints(blocks, 4),
        _ints(rows),
        _ints(rows),
        _ints(rows),
        _ints(blocks, longest),
        _ints(blocks, longest),
        _ints(blocks),
    )


SCENARIOS: dict[str, Launch] = {
    **{
        f"{kind} {name} {'wide' if wide else 'narrow'}": product(outputs, inputs, wide)
        for kind, product in [("gemm", _gemm), ("gemm w4", _gemm_w4)]
        for name, outputs, inputs in [
            ("qkv", QKV, HIDDEN),
            ("o", HIDDEN, HIDDEN),
            ("gate_up", 2 * FFN, HIDDEN),
            ("down", HIDDEN, FFN),
        ]
        for wide in (False, True)
    },
    "gemm w4, groups of 32": _gemm_w4(2 * FFN, HIDDEN, wide=False, group=32),
    "attention": _attend(DIM, KV_HEADS, HEADS // KV_HEADS),
    "attention, group of 5": _attend(DIM, KV_HEADS, 5),
    "attention, head_dim 64, group of 3": _attend(64, 3, 3),
    "combine": _combine,
    "add_norm first": _add_norm(None),
    "add_norm behind attention": _add_norm(HIDDEN),
    "add_norm behind the feed-forward net": _add_norm(FFN),
    "norm_rows": _norm_rows,
    "rope_kv": _rope_kv(bias=False, norms=False),
    "rope_kv with bias": _rope_kv(bias=True, norms=False),
    "rope_kv with norms": _rope_kv(bias=False, norms=True),
    "silu_mul": _silu_mul,
    "move_kv": _move_kv,
    "embed": _embed,
    "lm head narrow": _head_argmax(wide=False),
    "lm head wide": _head_argmax(wide=True),
    "draw rows": _draw_rows,
    "gumbel rows": _gumbel_rows,
    "accept": _accept,
}
