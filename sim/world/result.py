"""What came of a run, as figures; written to JSON and read back.

Bytes are those of the IP layer unless they are called payload: headers of packets, bare ACKs, retransmissions and the
set-up of the connection are in them. Payload is protobuf (or its modelled equivalent) alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.world.scenario import Scenario, scenario_from


@dataclass(frozen=True, slots=True)
class Spread:
    """How a figure is spread; all 0 if there is none."""

    mean: float = 0.0
    p5: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], zeros: int = 0) -> Spread:
        """Of `values`, none negative, and so many zeros."""
        ordered = sorted(values)
        count = len(ordered) + zeros
        if not count:
            return cls()

        def at(share: float) -> float:
            rank = min(count - 1, int(share * count)) - zeros
            return ordered[rank] if rank >= 0 else 0.0

        return cls(sum(ordered) / count, at(0.05), at(0.5), at(0.95), at(0.99))


@dataclass(frozen=True, slots=True)
class Traffic:
    """One edge's link, `up` being edge to cloud. Payload counts messages as sent, bytes what went onto the line."""

    up_bytes: int = 0
    down_bytes: int = 0
    up_packets: int = 0
    down_packets: int = 0
    up_payload: int = 0
    down_payload: int = 0
    up_messages: int = 0
    down_messages: int = 0


@dataclass(frozen=True, slots=True)
class Drafting:
    """What an edge's drafter and its estimates did; all 0 for strategies that have neither.

    Attributes:
        proposals: forward passes of the drafter, `seconds` the time that they took.
        surprises: first guesses that commits contradicted; of these `covered` had the right token beside them in the
            draft tree, `shipped` had sent it, too; `saved` tokens behind those needed no redraft.
        judged: guesses that commits decided.
        calibration_error: expected calibration error of the chances given to them, in [0, 1].
    """

    proposals: int = 0
    seconds: float = 0.0
    surprises: int = 0
    covered: int = 0
    shipped: int = 0
    saved: int = 0
    judged: int = 0
    calibration_error: float = 0.0


@dataclass(frozen=True, slots=True)
class EdgeResult:
    """One edge.

    Attributes:
        tokens: that reached the user.
        turns: that came to their end.
        tokens_per_s: tokens behind a turn's first commit over the time since it, all turns together; 0 if there are
            none.
        first_token_s: mean time from question to first token; None if none came.
        gap: seconds between consecutive tokens of a turn; those that come together are 0 apart.
        commit_gap: seconds between arrivals.
        drafted: draft tokens that were sent; `verified` of them had a row in a step, `accepted` were right.
        steps: verify steps, plain ones included.
        on_schedule: share of tokens that were there when a reader at the wanted rate, who starts 0.5 s after the first,
            wanted them; 1 if no rate is wanted.
        drafting: of the real edge.
    """

    edge: int
    tokens: int
    turns: int
    tokens_per_s: float
    first_token_s: float | None
    gap: Spread
    commit_gap: Spread
    drafted: int
    verified: int
    accepted: int
    steps: int
    on_schedule: float
    traffic: Traffic
    drafting: Drafting = Drafting()


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        digest: of all events in their order, hexadecimal.
        virtual_s: when the run ended.
        tokens_per_s: over edges, see `EdgeResult.tokens_per_s`; edges without a second token are left out.
        total_tokens_per_s: all tokens over the virtual time.
        first_token: seconds, over turns.
        gap: seconds between consecutive tokens, over all tokens of all edges.
        up_bytes_per_token, down_bytes_per_token: IP bytes over tokens.
        acceptance_length: accepted drafts per step that verified any; the bonus token is not counted.
        steps_per_token: verify steps of sessions, plain ones included, over tokens.
        verifier_s_per_token: the verifier's time over tokens.
        utilisation: share of the virtual time that the verifier worked.
        on_schedule: mean over edges.
        events: that virtual time consisted of; `wall_s` what they took here, not part of the result proper.
    """

    scenario: Scenario
    config_hash: str
    version: str
    digest: str
    virtual_s: float
    tokens: int
    tokens_per_s: Spread
    total_tokens_per_s: float
    first_token: Spread
    gap: Spread
    up_bytes_per_token: float
    down_bytes_per_token: float
    up_payload_per_token: float
    down_payload_per_token: float
    acceptance_length: float
    steps_per_token: float
    verifier_s_per_token: float
    utilisation: float
    on_schedule: float
    steps: int
    events: int
    wall_s: float
    edges: tuple[EdgeResult, ...]

    def as_json(self) -> dict[str, object]:
        """Plain data; `result_from` reads it back."""
        data = asdict(self)
        data["edges"] = [asdict(edge) for edge in self.edges]
        return data

    def save(self, path: Path) -> None:
        """Write JSON. Raises UsageError if `path` cannot be written."""
        try:
            path.write_text(json.dumps(self.as_json()) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error


def load_result(path: Path) -> Result:
    """Read what `Result.save` wrote. Raises UsageError for anything else."""
    try:
        return result_from(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} is no result of acespec-sim run ({error})") from error


def result_from(data: Mapping[str, object]) -> Result:
    """The result that `Result.as_json` gave. Raises KeyError, TypeError or ValueError for anything else."""
    values = dict(data)
    if unknown := set(values) - {part.name for part in fields(Result)}:
        raise ValueError(f"unknown field {min(unknown)}")
    values["scenario"] = scenario_from(_table(values["scenario"]))
    for name in ("tokens_per_s", "first_token", "gap"):
        values[name] = _spread(values[name])
    edges = values["edges"]
    if not isinstance(edges, list):
        raise TypeError("edges must be a list")
    values["edges"] = tuple(_edge_from(_table(edge)) for edge in edges)
    return Result(**values)  # type: ignore[arg-type] # read from what as_json wrote


def _edge_from(data: dict[str, object]) -> EdgeResult:
    values = data | {name: _spread(data[name]) for name in ("gap", "commit_gap")}
    values["traffic"] = Traffic(**_table(data["traffic"]))  # type: ignore[arg-type] # likewise
    values["drafting"] = Drafting(**_table(data.get("drafting", {})))  # type: ignore[arg-type] # likewise
    return EdgeResult(**values)  # type: ignore[arg-type] # likewise


def _spread(value: object) -> Spread:
    return Spread(**_table(value))  # type: ignore[arg-type] # likewise


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"a table is wanted where {value!r} stands")
    return value
