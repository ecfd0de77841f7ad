"""What comes back from the device after a pass: a few integers for each block, logits only where they are needed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.cloud.cuda_backend.workspace import Workspace
from acespec.cloud.runner import Drawn

Logits = NDArray[np.float32]


class Results:
    """Host copies of a pass's results."""

    def __init__(self, space: Workspace, device: torch.device) -> None:
        self._space, self._device = space, device
        self._staged = [_staging(like, device) for like in (space.out_tokens, space.out_rows, space.counts)]
        self._tokens, self._rows, self._counts = (staged.numpy() for staged in self._staged)

    def fetch(self, blocks: int) -> None:
        """Wait for the pass and copy the walks of its first `blocks` blocks."""
        space = self._space
        for staged, result in zip(self._staged, (space.out_tokens, space.out_rows, space.counts), strict=True):
            staged[:blocks].copy_(result[:blocks], non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def drawn(self, number: int) -> Drawn:
        """What the device drew for block `number`."""
        count = int(self._counts[number])
        return Drawn(tuple(self._tokens[number, :count].tolist()), tuple(self._rows[number, :count].tolist()))

    def logits(self, kept: int, rows: int) -> Logits:
        """float32[rows, vocab_rows] of a block whose stored logits begin at `kept`; valid for as long as it is held."""
        return self._space.logits[kept : kept + rows].cpu().numpy().copy()


def _staging(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, pin_memory=device.type == "cuda")
