"""The body of `acespec-sim tc`: what it prints, and what it carries out."""

from __future__ import annotations

from acespec.proto.errors import UsageError
from acespec.sim import tc
from acespec.sim.tc import Shaping


def run_tc(shaping: Shaping, *, apply: bool, remove: bool) -> str:
    """The commands, one a line; with `apply` or `remove` they have been carried out. Raises UsageError."""
    if apply and remove:
        raise UsageError("--apply and --remove exclude each other")
    if remove:
        tc.remove(shaping)
        return "\n".join(shaping.removal())
    if apply:
        tc.apply(shaping)
    return "\n".join(shaping.commands())


def tc_notes(shaping: Shaping) -> list[str]:
    """What to know of them, and whether this kernel could carry them out."""
    try:
        missing = tc.missing_features(shaping.spec)
    except UsageError as error:
        return [*tc.notes(shaping), f"not tried on this kernel: {error}"]
    return [*tc.notes(shaping), *([tc.explain(missing)] if missing else [])]
