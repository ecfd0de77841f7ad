"""Makes a drafter by its name, importing only what that one needs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.proto.errors import UsageError

if TYPE_CHECKING:
    from acespec.models.tokenizer import Tokenizer

KINDS = ("none", "ngram", "mlx", "gguf", "torch", "hybrid")
HYBRID_RUNTIME = "mlx"

log = logging.getLogger(__name__)


def make_drafter(
    kind: str,
    *,
    draft_model: str | None,
    model_key: str,
    vocab_size: int,
    cache_dir: Path | None,
    max_kv: int = 4096,
    threads: int = 1,
    tokenizer: Tokenizer | None = None,
    offline: bool = False,
) -> Drafter:
    """A drafter of one of `KINDS`.

    Args:
        kind: `hybrid` runs its language model in MLX; `hybrid:gguf` and `hybrid:torch` in another runtime.
        draft_model: name or place of the model of a language-model drafter; fetched if needed.
        model_key: identifies the target (name and tokenizer fingerprint): counts are kept apart by it.
        vocab_size: ids that the target can sample.
        cache_dir: where learned counts live, in `ngram/`; None keeps them in memory only.
        max_kv: longest window, in ids, that a draft model sees.
        threads: CPU threads of a draft model in llama.cpp or torch.
        tokenizer: the target's; a draft model with another one then drafts text, which is tokenised again for the
            target. None takes the draft model's ids as they are.
        offline: never fetch.

    Raises:
        UsageError: unknown kind, missing package or missing `draft_model`.
        ModelError: the draft model cannot be had.
    """
    base, _, runtime = kind.partition(":")
    if base not in KINDS or (runtime and base != "hybrid"):
        raise UsageError(f"unknown drafter {kind!r}: choose one of {', '.join(KINDS)}")
    if base == "none":
        return QuietDrafter()
    if base == "ngram":
        return _ngram(model_key, vocab_size, cache_dir)
    if base != "hybrid":
        return _model_drafter(kind, base, draft_model, max_kv, threads, tokenizer, offline)
    from acespec.edge.drafters.hybrid import HybridDrafter

    model = _model_drafter(kind, runtime or HYBRID_RUNTIME, draft_model, max_kv, threads, tokenizer, offline)
    return HybridDrafter(_ngram(model_key, vocab_size, cache_dir), model)


def _ngram(model_key: str, vocab_size: int, cache_dir: Path | None) -> Drafter:
    from acespec.edge.drafters.ngram import NgramDrafter
    from acespec.edge.drafters.table_file import TableFile

    store = TableFile(cache_dir / "ngram", model_key, vocab_size) if cache_dir is not None else None
    return NgramDrafter(store)


def _model_drafter(
    kind: str,
    runtime: str,
    name: str | None,
    max_kv: int,
    threads: int,
    target: Tokenizer | None,
    offline: bool,
) -> Drafter:
    from acespec.edge.drafters.lm_models import find_language_model, require_runtime

    require_runtime(runtime)
    if name is None:
        raise UsageError(f"drafter {kind!r} needs a model: add --draft-model NAME (a small one of the target's family)")
    model = find_language_model(runtime, name, max_kv=max_kv, threads=threads, offline=offline)
    if target is None or (own := model.tokenizer()).fingerprint == target.fingerprint:
        return model.drafter()
    from acespec.edge.drafters.cross_drafter import CrossVocabularyDrafter

    log.warning(
        "draft model %s has tokenizer %s, the target has %s: it drafts text, which is tokenised again; "
        "a draft model of the target's family would do better",
        name,
        own.fingerprint.hex(),
        target.fingerprint.hex(),
    )
    return CrossVocabularyDrafter(model.drafter(), own, target)
