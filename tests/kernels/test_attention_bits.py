"""0 differing bits: a row's attention is a function of its own path, not of company, plan, pages or window."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.attention_lab import ROOT, SPLIT, Lab, Session, Shape, chain, differing, laid, one_at_a_time

TREE = (ROOT, 0, 1, 1, 0, 4, 2)


@pytest.mark.parametrize("start", [0, 62, SPLIT - 2, 2 * SPLIT - 1, 2 * SPLIT])
def test_a_window_equals_one_row_at_a_time(start: int) -> None:
    session = chain(start, 4)
    assert differing(laid(session).run(), one_at_a_time(session)) == 0


@pytest.mark.parametrize("group", [1, 2, 4, 5, 8])
def test_a_window_equals_one_row_at_a_time_in_all_groups(group: int) -> None:
    session, shape = chain(SPLIT - 1, 3), Shape(1, group)
    assert differing(laid(session, shape=shape).run(), one_at_a_time(session, shape=shape)) == 0


def test_rows_in_later_tiles_of_queries_are_no_different() -> None:
    shape = Shape(1, 8)
    wide = laid(chain(120, 11), shape=shape).run()
    for row in (0, 7, 8, 10):
        alone = Lab(shape=shape)
        alone.add(chain(120, row + 1), first=row)
        assert differing(wide[row : row + 1], alone.run()) == 0


def test_alone_equals_batched_with_empty_drafts_beside() -> None:
    sessions = [chain(SPLIT + 3, 1, 1), Session(130, TREE, 2), chain(2, 5, 3), chain(0, 1, 4)]
    together = laid(*sessions).run(pad=2)
    backwards = laid(*reversed(sessions)).run()
    row = 0
    for session in sessions:
        rows = len(session.parents)
        alone = laid(session).run()
        assert differing(together[row : row + rows], alone) == 0
        end = len(backwards) - row
        assert differing(backwards[end - rows : end], alone) == 0
        row += rows


@pytest.mark.parametrize("session", [chain(3 * SPLIT - 2, 4), Session(3 * SPLIT - 2, TREE)])
def test_spread_over_programs_equals_all_splits_in_one_item(session: Session) -> None:
    lab = laid(session)
    spread = lab.run(lead=1, programs=7)
    assert spread.isfinite().all()
    for lead in (2, 3, 99):
        assert differing(spread, lab.run(lead=lead, programs=1)) == 0


def test_what_a_program_merges_at_once_changes_nothing() -> None:
    lab = laid(chain(3 * SPLIT - 1, 2), shape=Shape(1, 5))
    assert differing(lab.run(lead=1), lab.run(lead=1, heads_at_once=1, parts_at_once=8)) == 0
    assert differing(lab.run(lead=1), lab.run(lead=1, heads_at_once=2, parts_at_once=3)) == 0


@pytest.mark.parametrize("page", [16, 32, 128])
def test_page_sizes_and_the_order_of_pages_change_nothing(page: int) -> None:
    sessions = (chain(201, 3, 1), Session(126, TREE, 2))
    expected = laid(*sessions, scattered=False).run()
    assert differing(laid(*sessions, shape=Shape(page=page)).run(), expected) == 0


@pytest.mark.parametrize("stale", [float("inf"), -1e30])
def test_stale_slots_change_nothing(stale: float) -> None:
    sessions = (chain(190, 3, 1), Session(126, TREE, 2))
    assert differing(laid(*sessions, poison=stale).run(), laid(*sessions).run()) == 0


@pytest.mark.parametrize("size", [1e15, -1e15])
def test_hostile_rows_change_no_other(size: float) -> None:
    """Row 2 of a chain and a branch of a tree: those that do not follow them see nothing of them."""
    plain, hostile = laid(chain(126, 3, 1), Session(126, TREE, 2)), Lab()
    hostile.add(chain(126, 3, 1), scale={2: size})
    hostile.add(Session(126, TREE, 2), scale={4: size})
    untouched = [0, 1, 3, 4, 5, 6, 7]
    before, after = plain.run(), hostile.run()
    assert differing(before[untouched], after[untouched]) == 0
    assert differing(before, after) > 0


@pytest.mark.parametrize("hidden", [1.0, -1.0])
@pytest.mark.parametrize("lead", [1, 2])
def test_zeros_have_no_sign(hidden: float, lead: int) -> None:
    """Rescaling turns a tiny negative sum into -0; 0 times a hidden value must not decide whether it stays so."""
    lab = laid(chain(SPLIT + 64, 2), shape=Shape(1, 1))
    own, other = lab.spans[0].segments[0].tail
    lab.pool[0], lab.pool[0, own], lab.queries[0] = 0.0, 8.0, torch.full_like(lab.queries[0], 8.0)
    lab.pool[1], lab.pool[1, own], lab.pool[1, other] = -1e-40, -0.0, hidden
    assert (lab.run(lead=lead)[0].view(torch.int32) == 0).all()
