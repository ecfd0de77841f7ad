"""Schedules at random: for each seed another world, other wishes, other misfortunes."""

from __future__ import annotations

import random

from acespec.sim.schedule import FAULTS, Ask, Fault, Schedule, Setup

POLICIES = ("always", "idle", "never")
TREES = ("off", "off", "siblings:3", "on", "on")
CONTROLLERS = ("rate", "rate", "confidence", "ucb")
BROKEN_LINK = ("cut", "leave_half", "lose_half", "stall", "deafen", "mute", "move")
SECONDS = (0.0, 0.02, 0.1, 0.3, 1.2, 3.0)


def random_schedule(seed: int, *, most_asks: int = 3, most_faults: int = 5) -> Schedule:
    """The schedule of this seed."""
    dice = random.Random(seed)
    setup = _setup(dice, seed)
    edges = 2 if dice.random() < 0.2 else 1
    asks = [_ask(dice, dice.randrange(edges), first=n == 0) for n in range(dice.randint(edges, most_asks))]
    span = sum(ask.tokens for ask in asks) * max(setup.step, 0.3 * (setup.up + setup.down)) + 0.5
    faults = [_fault(dice, edges, span) for _ in range(dice.randint(0, most_faults))]
    return Schedule(setup, tuple(asks), tuple(sorted(faults, key=lambda f: f.at)))


def _setup(dice: random.Random, seed: int) -> Setup:
    return Setup(
        policy=dice.choice(POLICIES),
        rate=dice.choice((0.0, 20.0)),
        up=dice.choice((0.0, 0.005, 0.05, 0.3)),
        down=dice.choice((0.0, 0.005, 0.05, 0.3)),
        step=dice.choice((0.002, 0.02, 0.05)),
        draft=dice.choice((0.001, 0.01, 0.04)),
        accuracy=dice.choice((0.0, 0.3, 0.7, 0.9, 1.0)),
        ahead=dice.choice((-1, 0, 1, 4, 8)),
        window=dice.choice((2, 8, 64)),
        grace=dice.choice((0.5, 2.0, 30.0)),
        run_ahead=dice.choice((4, 16, 64)),
        pages=dice.choice((1, 2, 10, 10)),
        salt=seed,
        tree=random.Random(f"tree {seed}").choice(TREES),
        controller=random.Random(f"controller {seed}").choice(CONTROLLERS),
    )


def _ask(dice: random.Random, edge: int, first: bool) -> Ask:
    kind = "new" if first else dice.choice(("new", "next", "next", "again", "same", "edit", "shared"))
    return Ask(edge, kind, dice.choice((1, 2, 6, 12, 20, 30)), dice.randrange(1 << 16))


def _fault(dice: random.Random, edges: int, span: float) -> Fault:
    kinds = BROKEN_LINK if dice.random() < 0.7 else tuple(FAULTS)
    return Fault(round(dice.uniform(0, span), 4), dice.choice(kinds), dice.randrange(edges), dice.choice(SECONDS))
