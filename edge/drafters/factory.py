"""Makes a drafter by its name, importing only what that one needs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.proto.errors import Mismatch, UsageError

KINDS = ("none", "ngram", "mlx", "hybrid")


def make_drafter(
    kind: str,
    *,
    draft_model: str | None,
    model_key: str,
    vocab_size: int,
    cache_dir: Path | None,
    max_kv: int = 4096,
    fingerprint: bytes | None = None,
    offline: bool = False,
) -> Drafter:
    """A drafter of one of `KINDS`.

    Args:
        draft_model: name or folder of the model for `mlx` and `hybrid`; fetched if needed.
        model_key: identifies the target (name and tokenizer fingerprint): counts are kept apart by it.
        vocab_size: ids that the target can sample.
        cache_dir: where learned counts live, in `ngram/`; None keeps them in memory only.
        max_kv: longest window, in ids, that a draft model sees.
        fingerprint: the target's tokenizer fingerprint; if given, the draft model's must be the same.
        offline: never fetch.

    Raises:
        UsageError: unknown kind, missing package or missing `draft_model`.
        ModelError: the draft model cannot be had.
        Mismatch: the draft model has another tokenizer.
    """
    if kind == "none":
        return QuietDrafter()
    if kind == "ngram":
        return _ngram(model_key, vocab_size, cache_dir)
    if kind == "mlx":
        return _mlx(kind, draft_model, max_kv, fingerprint, offline)
    if kind == "hybrid":
        from acespec.edge.drafters.hybrid import HybridDrafter

        model = _mlx(kind, draft_model, max_kv, fingerprint, offline)
        return HybridDrafter(_ngram(model_key, vocab_size, cache_dir), model)
    raise UsageError(f"unknown drafter {kind!r}: choose one of {', '.join(KINDS)}")


def _ngram(model_key: str, vocab_size: int, cache_dir: Path | None) -> Drafter:
    from acespec.edge.drafters.ngram import NgramDrafter
    from acespec.edge.drafters.table_file import TableFile

    store = TableFile(cache_dir / "ngram", model_key, vocab_size) if cache_dir is not None else None
    return NgramDrafter(store)


def _mlx(kind: str, name: str | None, max_kv: int, fingerprint: bytes | None, offline: bool) -> Drafter:
    _require_mlx(kind)
    if name is None:
        raise UsageError(f"drafter {kind!r} needs a model: add --draft-model NAME (a small one of the target's family)")
    from acespec.edge.drafters.mlx_drafter import MlxDrafter
    from acespec.models.store import resolve

    folder = resolve(name, offline=offline, any_architecture=True)
    if fingerprint is not None:
        _check_tokenizer(name, folder, fingerprint)
    return MlxDrafter(folder, max_kv)


def _require_mlx(kind: str) -> None:
    missing = [package for package in ("mlx", "mlx_lm") if find_spec(package) is None]
    if missing:
        packages = " and ".join(missing).replace("_", "-")
        raise UsageError(f"drafter {kind!r} needs {packages}: run pip install 'acespec[mlx]'")


def _check_tokenizer(name: str, folder: Path, fingerprint: bytes) -> None:
    from acespec.models.tokenizer import Tokenizer

    own = Tokenizer.load(folder).fingerprint
    if own != fingerprint:
        raise Mismatch(
            f"draft model {name} has tokenizer {own.hex()}, the target has {fingerprint.hex()}: "
            "choose a draft model of the target's family, or --drafter ngram"
        )
