"""What a person may be shown of a session at this moment: pure data.

What `Client.stream` has yielded is final. Everything behind it that is known or guessed is here, as provisional: it may
be wrong, and it is never yielded before the verifier has said so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """A session now. Times are of `time.monotonic`; bytes are IP bytes as `wire_stats.py` counts them.

    Attributes:
        running: a turn is under way.
        provisional: ids behind those that were yielded: guesses of the main path, preceded by what is final already but
            was not taken out of the stream yet.
        provisional_text: what to show dimmed behind the yielded text: text that is held back because a stop string may
            begin in it, then that of `provisional`, up to the first end id, stop string or unfinished character.
        waiting_since: the link is down, or nothing has been heard of the verifier for too long, since then; else None.
        alone: drafting goes on without the verifier (`on_outage="draft"`).
        link_kbps: estimated rate of the uplink. It is seen from below: a link that is used little seems slow.
        rtt_ms: the newest round trip, without the time that the verifier held the message.
        draft_length: unverified tokens of the main path.
        acceptance_length: this turn: tokens that commits named as drafts instead of spelling them, per commit that
            brought tokens; None before the first. `Completion.acceptance_length` has the verifier's own account.
        bytes_per_token: this turn: both directions, prompt included, per committed token; None before the first.
        up_bytes: this turn.
        down_bytes: this turn.
        committed: tokens of this turn that were yielded.
        verifier_load: 0 to 1; None before the verifier has told.
        verify_ms: what a verify step takes there; None before the verifier has told.
    """

    running: bool = False
    provisional: tuple[int, ...] = ()
    provisional_text: str = ""
    waiting_since: float | None = None
    alone: bool = False
    link_kbps: float | None = None
    rtt_ms: float | None = None
    draft_length: int = 0
    acceptance_length: float | None = None
    bytes_per_token: float | None = None
    up_bytes: int = 0
    down_bytes: int = 0
    committed: int = 0
    verifier_load: float | None = None
    verify_ms: float | None = None
