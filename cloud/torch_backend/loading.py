"""What every engine asks of a model folder and of itself before it serves."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from acespec.cloud.torch_backend.config import ModelConfig
from acespec.proto.errors import NumericsError, UnsupportedModel, UsageError

_log = logging.getLogger(__name__)


def fitting_length(config: ModelConfig, vocab_size: int, max_length: int | None) -> int:
    """Most positions of a sequence: `max_length` within the model's own limit.

    Raises `UnsupportedModel` if the tokenizer has ids that the model lacks.
    """
    if vocab_size > config.vocab_rows:
        raise UnsupportedModel(
            f"the tokenizer has {vocab_size} ids but the model only {config.vocab_rows}; "
            "use the tokenizer that came with the model"
        )
    return min(max_length or config.max_length, config.max_length)


def enough_pages(pages: int) -> int:
    """`pages`, if that holds anything. Raises `UsageError`."""
    if pages < 1:
        raise UsageError(f"{pages} KV pages hold nothing; ask for at least 1")
    return pages


def verdict(faults: Sequence[str], advice: str, allow_inexact: bool) -> bool:
    """Whether the self-check found no faults. Raises `NumericsError` if it did and that is not allowed."""
    if not faults:
        return True
    message = f"bits do not hold here ({'; '.join(faults)}); {advice}"
    if not allow_inexact:
        raise NumericsError(message)
    _log.warning("%s; going on inexact, as asked", message)
    return False
