"""What a turn does while its link is down. Whatever it is, no token is lost, repeated or shown unverified."""

from __future__ import annotations

import enum

from acespec.proto.errors import UsageError

OUTAGE_TIMEOUT_S = 60.0
"""Without the verifier for so long, a turn that had begun is given up."""
LONE_TOKENS = 256
"""How far ahead of the last committed token drafting goes without the verifier."""


class OnOutage(enum.Enum):
    """The choices of `--on-outage`."""

    WAIT = "wait"
    """Wait for the link, and go on where the turn was."""
    DRAFT = "draft"
    """The same, but the drafter goes on alone meanwhile; what it says is provisional."""
    FAIL = "fail"
    """End the turn at once with `Unavailable`."""


def outage_policy(name: str | OnOutage) -> OnOutage:
    """The policy of that name.

    Raises:
        UsageError: there is none.
    """
    try:
        return OnOutage(name)
    except ValueError:
        names = ", ".join(policy.value for policy in OnOutage)
        raise UsageError(f"--on-outage {name}: give one of {names}") from None
