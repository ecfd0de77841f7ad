"""Makes the `View` of a session from what it, and the text of its newest turn, are now."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.session import EdgeSession
from acespec.edge.turn_text import TurnText
from acespec.edge.view import View

BITS_PER_KBYTE = 8 / 1000


def view_of(session: EdgeSession, turn: TurnText | None, *, running: bool, waiting_since: float | None) -> View:
    """The view behind what `turn` has yielded; `running`: it may yield more."""
    rate, prices = session.link_rate, session.prices
    rtt = session.newest_rtt
    tells = prices.verify > 0
    wire = session.wire_so_far - (session.wire_so_far if turn is None else turn.wire_before)
    count = 0 if turn is None else len(turn.token_ids)
    guesses, ahead = _ahead(session, turn, count) if turn is not None and running else (0, [])
    return View(
        running=running,
        provisional=tuple(ahead),
        provisional_text=turn.behind(ahead) if turn is not None and running else "",
        waiting_since=waiting_since if running else None,
        alone=session.alone,
        link_kbps=None if rate is None else rate * BITS_PER_KBYTE,
        rtt_ms=None if rtt is None else rtt * 1000,
        draft_length=guesses,
        acceptance_length=None if turn is None else session.tally.acceptance_length,
        bytes_per_token=(wire.up_bytes + wire.down_bytes) / count if count else None,
        up_bytes=wire.up_bytes,
        down_bytes=wire.down_bytes,
        committed=count,
        verifier_load=prices.load if tells else None,
        verify_ms=prices.verify * 1000 if tells else None,
    )


def _ahead(session: EdgeSession, turn: TurnText, count: int) -> tuple[int, Sequence[int]]:
    """How many guesses there are on the main path, and all ids that may follow the `count` that were yielded."""
    guesses = session.guesses()
    known = session.committed_from(session.prompt_len + count)
    return len(guesses), turn.to_end([*known, *guesses])
