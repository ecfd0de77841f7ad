"""The models: the target's tokenizer, which must be here, and the draft model with its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from acespec.edge.doctor.finding import Finding, fault, ok, skipped, warning
from acespec.edge.doctor.packages import runtime_of
from acespec.edge.doctor.weights import require_whole
from acespec.edge.drafters.factory import KINDS
from acespec.models.gguf_file import GgufFile
from acespec.models.gguf_models import gguf_file, gguf_tokenizer
from acespec.models.progress import megabytes
from acespec.models.reference import HubRepository, Named, parse_reference
from acespec.models.replay_tokenizer import replay_tokenizer, replay_vocabulary
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import AcespecError, ModelError, ModelNotFound

TOKENIZER, DRAFT_MODEL = "tokenizer", "draft model"
REPLAYED = ("replay", "useless", "hostile")


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, and the tokenizer if it could be read."""

    finding: Finding
    tokenizer: Tokenizer | None = None


def target_tokenizer(model: str, *, offline: bool) -> Found:
    """Look for the target's tokenizer on this machine; nothing is fetched."""
    try:
        size = replay_vocabulary(model)
        tokenizer = replay_tokenizer(size) if size else Tokenizer.load(resolve(model, fetch=False, weights=False))
    except ModelNotFound as error:
        return Found(_absent(TOKENIZER, model, error, offline))
    except AcespecError as error:
        return Found(fault(TOKENIZER, str(error), f"fetch it anew: {_pull(model)}"))
    about = f"{model}: {tokenizer.vocab_size} ids, fingerprint {tokenizer.fingerprint.hex()}"
    return Found(ok(TOKENIZER, about), tokenizer)


def draft_model_findings(
    drafter: str, name: str | None, target: Tokenizer | None, *, offline: bool
) -> Iterator[Finding]:
    """Look at the draft model's files; nothing is fetched or loaded."""
    base, _, _ = drafter.partition(":")
    if base not in (*KINDS, *REPLAYED):
        yield fault("drafter", f"there is no drafter {drafter!r}", f"take one of {', '.join(KINDS)}")
        return
    runtime = runtime_of(drafter)
    if runtime is None:
        yield ok(DRAFT_MODEL, f"none is needed for --drafter {drafter}")
    elif name is None:
        yield fault(
            DRAFT_MODEL,
            f"--drafter {drafter} needs a model, and none is named",
            "--draft-model NAME, a small one of the target's family (docs/drafters.md), or --drafter ngram",
        )
    else:
        yield from _named_model(runtime, name, target, offline)


def _named_model(runtime: str, name: str, target: Tokenizer | None, offline: bool) -> Iterator[Finding]:
    try:
        place = (
            gguf_file(name, offline=True) if runtime == "gguf" else resolve(name, fetch=False, any_architecture=True)
        )
        size = _whole(place)
        own = gguf_tokenizer(place) if place.is_file() else Tokenizer.load(place)
    except ModelNotFound as error:
        yield _absent(DRAFT_MODEL, name, error, offline)
        return
    except ModelError as error:
        yield fault(DRAFT_MODEL, str(error), f"fetch it anew: {_pull(name)}")
        return
    yield ok(DRAFT_MODEL, f"{name}: {megabytes(size)}, whole")
    if target is None:
        yield skipped(DRAFT_MODEL, "its tokenizer is not compared: the target's is not here")
    elif own.fingerprint != target.fingerprint:
        yield warning(
            DRAFT_MODEL,
            f"{name} has another tokenizer than the target ({own.fingerprint.hex()}): its text is tokenised again",
            "a draft model of the target's family guesses more",
        )


def _whole(place: Path) -> int:
    """Bytes of the weights. Raises IntegrityError if they are not all there."""
    if place.is_dir():
        return require_whole(place)
    GgufFile(place)
    return place.stat().st_size


def _absent(check: str, name: str, error: ModelNotFound, offline: bool) -> Finding:
    """A model that is not here: no fault where it would be fetched."""
    if not _can_be_fetched(name):
        return fault(check, str(error), "check the name or path; `acespec models ls` shows what is here")
    if offline:
        return fault(check, f"{name} is not here, and --offline forbids fetching it", f"while online: {_pull(name)}")
    return warning(check, f"{name} is not here yet; the first run fetches it", f"fetch it now: {_pull(name)}")


def _can_be_fetched(name: str) -> bool:
    try:
        return isinstance(parse_reference(name), Named | HubRepository)
    except ModelNotFound:
        return False


def _pull(name: str) -> str:
    return f"acespec models pull {name}"
