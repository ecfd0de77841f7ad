"""Keys and values of all sessions on the device: numbered slots, `PAGE` of which make a page.

Behind the pages lie spare slots for the branches of draft trees: siblings share a position, and only one of them can
have that position's slot. What a slot held before is never read: attention masks by position.
"""

from __future__ import annotations

import torch

from acespec.cloud.runner import PAGE
from acespec.cloud.torch_backend.config import ModelConfig
from acespec.proto.errors import UsageError

BYTES = 2
"""Of a bf16 number."""


def page_bytes(config: ModelConfig) -> int:
    """Bytes of one page over all layers."""
    return config.layers * 2 * config.kv_heads * PAGE * config.head_dim * BYTES


class KvPool:
    """bf16[layers, 2, slots, kv_heads, head_dim]; slot = page * PAGE + offset, spare slots last.

    Attributes:
        keys, values: views of each layer, bf16[slots, kv_heads, head_dim].
        first_spare: number of the first spare slot.
    """

    def __init__(self, config: ModelConfig, pages: int, spare: int, device: torch.device) -> None:
        """Raises `UsageError` if the device has no room for so many pages."""
        self.pages, self.first_spare = pages, pages * PAGE
        shape = (config.layers, 2, pages * PAGE + spare, config.kv_heads, config.head_dim)
        try:
            # Zeros and not what was there: a wrong read should give wrong text on every machine alike.
            self.kv = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        except RuntimeError as error:
            size = pages * page_bytes(config) / 2**30
            raise UsageError(f"no room for {size:.1f} GiB of KV pages ({error}); ask for fewer pages") from error
        self.keys = [layer[0] for layer in self.kv]
        self.values = [layer[1] for layer in self.kv]
