"""Makes a controller from what the command line says."""

from __future__ import annotations

from acespec.edge.brain.controller import AUTO_CAP, Controller, FixedController
from acespec.edge.brain.rate_controller import RateController
from acespec.proto.errors import UsageError

NAMES = ("rate", "auto", "confidence", "ucb", "fixed:N")


def make_controller(num_draft_tokens: int | str = "auto", name: str | None = None) -> Controller:
    """The controller for `--num-draft-tokens` (a number, `auto`, or a controller's name) and `--controller`.

    A number alone is a fixed length; beside a controller's name it is the most that it may draft.

    Raises:
        UsageError: one of them makes no sense, or `fixed:N` is given with another number.
    """
    length = str(num_draft_tokens)
    if name is None:
        name, length = (f"fixed:{length}", "auto") if _is_number(length) else (length, "auto")
    if length != "auto" and not _is_number(length):
        raise UsageError(f"--num-draft-tokens {length}: give a number from 0 on, or auto")
    kind, _, number = name.partition(":")
    if kind == "fixed" and _is_number(number) and length in ("auto", number):
        return FixedController(int(number))
    return _adaptive(name, AUTO_CAP if length == "auto" else int(length))


def _adaptive(name: str, cap: int) -> Controller:
    from acespec.edge.brain.confidence_controller import ConfidenceController
    from acespec.edge.brain.ucb_controller import UcbController

    match name:
        case "rate" | "auto":
            return RateController(cap)
        case "confidence":
            return ConfidenceController(cap)
        case "ucb":
            return UcbController(cap)
    raise UsageError(
        f"no draft of {name!r} is known: --controller is one of {', '.join(NAMES)}, --num-draft-tokens a number from 0 "
        "on or auto"
    )


def _is_number(text: str) -> bool:
    return text.isdecimal()
