"""What a verifier serves, what it refuses by name, and what becomes of a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from acespec.cloud.admission import FORMATS, SERVED, Admission
from acespec.proto import prompt
from acespec.proto.errors import InvalidRequest
from acespec.proto.messages import ModelCard, Open, OutputFormat, Unserved

VOCAB = 64
KEY = ("somebody", b"s" * 16)
CARD = ModelCard(
    "toy", VOCAB, bytes(16), (2, 3), 512, 1, b"", "toy", 16, 64, 400, (*SERVED, *FORMATS), "test", 1, True, "idle"
)
REQUEST = Open(KEY[1], 0, bytes(16), 3, 7, 50, append=prompt.pack_ids([9, 8, 7], VOCAB))


class Anything:
    """A constraint that allows all; remembers what it was made from."""

    def __init__(self, wanted: OutputFormat, ends: Sequence[int]) -> None:
        self.wanted, self.ends = wanted, tuple(ends)

    def allowed(self, generated: Sequence[int]) -> NDArray[np.bool_]:
        return np.ones(VOCAB, np.bool_)


def served(**changes: object) -> object:
    admission = Admission(CARD, lambda text: [], compile_format=Anything)
    request = dataclasses.replace(REQUEST, **changes)  # type: ignore[arg-type]
    admission.check(request)
    return admission.turn(KEY, request, ())


def test_a_request_becomes_a_turn() -> None:
    spec = served(min_tokens=4, top_logprobs=5, stop_ids=(9,), stop_strings=("x",))
    assert (spec.min_tokens, spec.top_logprobs, spec.stop_ids, spec.stop_strings) == (4, 5, (2, 3, 9), ("x",))  # type: ignore[attr-defined]
    assert spec.constraint is None  # type: ignore[attr-defined]


def test_ignored_ends_leave_the_edges_own_stops() -> None:
    assert served(ignore_eos=True, stop_ids=(9,)).stop_ids == (9,)  # type: ignore[attr-defined]


def test_a_format_becomes_a_constraint_that_knows_all_ends() -> None:
    spec = served(format=OutputFormat(regex="a+"), stop_ids=(9,))
    assert isinstance(spec.constraint, Anything)  # type: ignore[attr-defined]
    assert (spec.constraint.wanted, spec.constraint.ends) == (OutputFormat(regex="a+"), (2, 3, 9))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extra": Unserved(n=3)}, r"^n: .*open 3 sessions"),
        ({"extra": Unserved(best_of=2)}, r"^best_of: "),
        ({"extra": Unserved(prompt_logprobs=True, suffix="x")}, r"^prompt_logprobs, suffix: "),
        ({"min_tokens": 51}, r"^min_tokens 51 .*max_tokens 50"),
        ({"top_logprobs": 21}, r"^top_logprobs 21: .*20"),
        ({"format": OutputFormat(regex="a", grammar="b")}, r"^regex, grammar: "),
        ({"format": OutputFormat(json_object=True), "ignore_eos": True}, r"^ignore_eos: json_object"),
    ],
)
def test_what_is_not_served_is_refused_by_name(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        served(**changes)


@pytest.mark.parametrize(
    "wanted",
    [
        OutputFormat(json_schema="{}"),
        OutputFormat(json_object=True),
        OutputFormat(regex="a"),
        OutputFormat(grammar="a"),
    ],
)
def test_a_target_without_a_compiler_refuses_formats_by_name(wanted: OutputFormat) -> None:
    request = dataclasses.replace(REQUEST, format=wanted)
    with pytest.raises(InvalidRequest, match=rf"^{wanted.asked()[0]}: not served"):
        Admission(CARD, lambda text: []).check(request)
    with pytest.raises(InvalidRequest, match=r"pip install"):
        Admission(CARD, lambda text: [], no_formats="pip install it").check(request)


def test_every_served_name_is_a_field_of_the_request() -> None:
    names = {*Open.__slots__, *REQUEST.params.__slots__, *OutputFormat.__slots__, "logprobs"}
    assert {*SERVED, *FORMATS} <= names
    assert not {*SERVED, *FORMATS} & {*Unserved.__slots__}
