"""What the doctor finds: one fact of one check, how grave it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but worse than it could, or not for long."""
    FAULT = "fault"
    """With these settings nothing is generated."""
    SKIPPED = "skipped"
    """It could not be looked into because of another fault."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is the fact in words that need no context; `fix` is empty where nothing is to be done."""

    check: str
    level: Level
    what: str
    fix: str = ""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, what)


def warning(check: str, what: str, fix: str) -> Finding:
    """It will do, but could be better."""
    return Finding(check, Level.WARNING, what, fix)


def fault(check: str, what: str, fix: str) -> Finding:
    """It will not do."""
    return Finding(check, Level.FAULT, what, fix)


def skipped(check: str, because: str) -> Finding:
    """Not looked into."""
    return Finding(check, Level.SKIPPED, because)


def is_fault(finding: Finding) -> bool:
    """True for what keeps acespec from working."""
    return finding.level is Level.FAULT
