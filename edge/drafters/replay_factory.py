"""Makes a replayed drafter from what the command line says of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acespec.edge.drafters.replay import REPLAY_KINDS, ReplayDrafter
from acespec.edge.drafters.replay_accuracy import read_accuracy
from acespec.proto.errors import UsageError
from acespec.proto.replay_profiles import find_drafter
from acespec.proto.replay_text import replay_text


@dataclass(frozen=True, slots=True)
class ReplayDrafting:
    """How a replayed drafter behaves.

    Attributes:
        kind: one of `REPLAY_KINDS`.
        profile: name of the drafter profile whose speed it has.
        acceptance: numbers or a trace file, as `read_accuracy` takes them; `replay` only.
        ids: the verifier's replay file. A trace holds its ids itself.
    """

    kind: str = "replay"
    profile: str = "m3-0.6b-4bit"
    acceptance: str = "0.8"
    ids: Path | None = None


def make_replay_drafter(how: ReplayDrafting, vocab_size: int) -> ReplayDrafter:
    """The drafter for a target of `vocab_size` ids.

    Raises:
        UsageError: an unknown kind or profile, or a file that cannot be read.
    """
    if how.kind not in REPLAY_KINDS:
        raise UsageError(f"unknown replayed drafter {how.kind!r}: choose one of {', '.join(REPLAY_KINDS)}")
    accuracy, trace = read_accuracy(how.acceptance)
    text = replay_text(how.ids or trace, vocab_size)
    return REPLAY_KINDS[how.kind](text, accuracy, find_drafter(how.profile).token_s)
