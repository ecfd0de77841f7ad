"""How each sampled row is drawn, as numbers that kernels can read: one entry a row in a few tensors.

A row of padding is greedy and has no filter: temperature 0, top_k 0, top_p 1, min_p_log -inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.proto.sampling_params import SamplingParams

_MOST = (1 << 31) - 1
_FAINTEST = -700.0  # nearest to nothing that exp can tell from nothing; a token so faint is never drawn


class Rule(Protocol):
    """What draws a row: parameters and a 64-bit seed."""

    @property
    def params(self) -> SamplingParams: ...

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RowParams:
    """Parameters of R sampled rows, each tensor contiguous and on the kernels' device.

    Attributes:
        temperature: float32[R]; 0 is greedy.
        seeds: int32[R, 2]: the seed's low word, its high word.
        draw_at: int32[R]: absolute position of the token that is drawn.
        top_k: int32[R]; 0 keeps all.
        top_p: float64[R]; 1 keeps all.
        min_p_log: float32[R]: the logarithm of min_p; -inf keeps all.
    """

    temperature: torch.Tensor
    seeds: torch.Tensor
    draw_at: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p_log: torch.Tensor

    def of_row(self, row: int) -> tuple[SamplingParams, int, int]:
        """(parameters, seed, position) of a row, for references. Copies from the device."""
        low, high = (int(word) & 0xFFFFFFFF for word in self.seeds[row])
        log = float(self.min_p_log[row])
        params = SamplingParams(
            temperature=float(self.temperature[row]),
            top_k=int(self.top_k[row]),
            top_p=float(self.top_p[row]),
            min_p=0.0 if log == -math.inf else math.exp(max(log, _FAINTEST)),
        )
        return params, high << 32 | low, int(self.draw_at[row])


def row_params(rules: Sequence[tuple[Rule, int]]) -> dict[str, NDArray[Any]]:
    """NumPy arrays by the names of `RowParams`, from each row's rule and the position of the token that it draws.

    Penalties, bias and bans are not among them: rows that have any are drawn by the host.
    """
    params = [rule.params for rule, _ in rules]
    seeds = np.array([rule.seed & 0xFFFFFFFFFFFFFFFF for rule, _ in rules], "<u8")
    return {
        "temperature": np.array([_temperature(p) for p in params], np.float32),
        "seeds": seeds.view("<i4").reshape(-1, 2),
        "draw_at": np.array([position for _, position in rules], np.int32),
        "top_k": np.array([min(max(p.top_k, 0), _MOST) for p in params], np.int32),
        "top_p": np.array([p.top_p for p in params], np.float64),
        "min_p_log": np.array([_log(p.min_p) for p in params], np.float32),
    }


def to_device(arrays: dict[str, NDArray[Any]], device: torch.device | str = "cpu") -> RowParams:
    """Fresh tensors with the content of `row_params`."""
    return RowParams(**{f.name: torch.from_numpy(arrays[f.name].copy()).to(device) for f in fields(RowParams)})


def _temperature(params: SamplingParams) -> float:
    """A temperature too small for float32 stays one that is not greedy: the smallest that there is."""
    return 0.0 if params.greedy else max(params.temperature, float(np.finfo(np.float32).smallest_subnormal))


def _log(p: float) -> float:
    return math.log(min(p, 1.0)) if p > 0.0 else -math.inf
