"""Makes the replay target that `acespec-verifier serve --backend replay` serves."""

from __future__ import annotations

from pathlib import Path

from acespec.cloud.load import Target
from acespec.cloud.replay.runner import MAX_LENGTH, PAGES, ReplayRunner
from acespec.models.replay_tokenizer import replay_model, replay_tokenizer
from acespec.proto.replay_profiles import find_verifier
from acespec.proto.replay_text import replay_text


def load_replay(
    profile: str,
    *,
    vocab_size: int,
    ids: Path | None = None,
    max_length: int | None = None,
    kv_pages: int | None = None,
    background: int = 0,
    never_idle: bool = False,
) -> Target:
    """A target of `vocab_size` ids that says the texts of file `ids`, or a synthetic one, at a profile's speed.

    `profile` is a name or a file that `acespec-verifier bench` saved; `never_idle`: see `ReplayRunner`.

    Raises:
        UsageError: no such profile, a file that cannot be read, or a vocabulary that is too small.
    """
    runner = ReplayRunner(
        replay_text(ids, vocab_size),
        find_verifier(profile),
        vocab_size=vocab_size,
        max_length=max_length or MAX_LENGTH,
        pages=kv_pages or PAGES,
        background=background,
        never_idle=never_idle,
    )
    return Target(replay_model(vocab_size), runner, replay_tokenizer(vocab_size))
