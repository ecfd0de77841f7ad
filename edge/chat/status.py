"""The status line of an answer in the making: what the link and the drafts do, in one row."""

from __future__ import annotations

from datetime import datetime, timedelta

from acespec.edge.chat.screen import Status
from acespec.edge.view import View

DOT = " · "


def status_of(view: View, now: float, clock: datetime, *, asked: float, first: float | None, width: int) -> Status:
    """The line for a terminal of `width` columns: what does not fit is left out, the least important first.

    Args:
        now: of time.monotonic, as the times of `view`.
        clock: the same moment on the wall.
        asked: when the question went off.
        first: when the first text came, if it has.
    """
    if view.waiting_since is not None:
        return Status(_in_one_row(_waiting(view, now, clock, view.waiting_since), width), alarm=True)
    lead = [f"waiting for the first token {now - asked:.0f} s"] if first is None else _progress(view, now - first)
    return Status(_in_one_row(lead + link_figures(view), width))


def link_figures(view: View) -> list[str]:
    """What is known of link, drafts and verifier, the most important first."""
    figures = [f"D {view.draft_length}"]
    if view.rtt_ms is not None:
        figures.insert(0, f"RTT {view.rtt_ms:.0f} ms")
    if view.link_kbps is not None:
        figures.insert(0, f"{view.link_kbps:.0f} Kbps")
    if view.acceptance_length is not None:
        figures.append(f"AL {view.acceptance_length:.1f}")
    if view.bytes_per_token is not None:
        figures.append(f"{view.bytes_per_token:.0f} B/token")
    if view.verifier_load is not None:
        figures.append(f"load {100 * view.verifier_load:.0f} %")
    return figures


def _progress(view: View, seconds: float) -> list[str]:
    pace = f" {view.committed / seconds:.0f}/s" if seconds >= 1 else ""
    return [f"{view.committed} tokens{pace}"]


def _waiting(view: View, now: float, clock: datetime, since: float) -> list[str]:
    down = max(0.0, now - since)
    at = clock - timedelta(seconds=down)
    lines = [f"waiting for the link since {at:%H:%M:%S} ({down:.0f} s)"]
    if view.alone:
        lines.append(f"drafting alone: {view.draft_length} tokens ahead")
    return lines


def _in_one_row(parts: list[str], width: int) -> str:
    row = parts[0]
    for part in parts[1:]:
        if len(row) + len(DOT) + len(part) >= width:
            break
        row += DOT + part
    return row
