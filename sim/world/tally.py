"""From what was recorded to figures: edges one by one, and the run as a whole."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from acespec.sim.units import SECOND
from acespec.sim.world.recorder import EdgeRecord, Recorder
from acespec.sim.world.result import EdgeResult, Result, Spread, Traffic
from acespec.sim.world.scenario import Scenario


def edge_result(number: int, record: EdgeRecord, traffic: Traffic) -> EdgeResult:
    """One edge's figures in their final form."""
    return EdgeResult(
        edge=number,
        tokens=record.tokens,
        turns=record.turns,
        tokens_per_s=_over(record.decoded, record.decode_ns / SECOND),
        first_token_s=sum(record.first) / len(record.first) / SECOND if record.first else None,
        gap=Spread.of(_seconds(record.gaps), _together(record)),
        commit_gap=Spread.of(_seconds(record.gaps)),
        drafted=record.drafted,
        verified=record.verified,
        accepted=record.accepted,
        steps=record.steps,
        on_schedule=1.0 - _over(record.reader.late, record.reader.wanted),
        traffic=traffic,
        drafting=record.drafting(),
    )


def make_result(
    scenario: Scenario,
    recorder: Recorder,
    traffic: Sequence[Traffic],
    *,
    version: str,
    digest: str,
    virtual_s: float,
    events: int,
    wall_s: float,
) -> Result:
    """All figures of a run."""
    records = recorder.edges
    edges = tuple(edge_result(n, record, traffic[n]) for n, record in enumerate(records))
    tokens = sum(edge.tokens for edge in edges)
    drafted_steps = sum(record.drafted_steps for record in records)
    gaps = array("d")
    for record in records:
        gaps.extend(_seconds(record.gaps))
    return Result(
        scenario=scenario,
        config_hash=scenario.config_hash(),
        version=version,
        digest=digest,
        virtual_s=virtual_s,
        tokens=tokens,
        tokens_per_s=Spread.of([edge.tokens_per_s for edge in edges if edge.tokens_per_s > 0]),
        total_tokens_per_s=_over(tokens, virtual_s),
        first_token=Spread.of([t for record in records for t in _seconds(record.first)]),
        gap=Spread.of(gaps, sum(_together(record) for record in records)),
        up_bytes_per_token=_over(sum(each.up_bytes for each in traffic), tokens),
        down_bytes_per_token=_over(sum(each.down_bytes for each in traffic), tokens),
        up_payload_per_token=_over(sum(each.up_payload for each in traffic), tokens),
        down_payload_per_token=_over(sum(each.down_payload for each in traffic), tokens),
        acceptance_length=_over(sum(edge.accepted for edge in edges), drafted_steps),
        steps_per_token=_over(sum(edge.steps for edge in edges), tokens),
        verifier_s_per_token=_over(recorder.busy_ns / SECOND, tokens),
        utilisation=min(1.0, _over(recorder.busy_ns / SECOND, virtual_s)),
        on_schedule=_over(sum(edge.on_schedule for edge in edges), len(edges)),
        steps=recorder.steps,
        events=events,
        wall_s=wall_s,
        edges=edges,
    )


def _together(record: EdgeRecord) -> int:
    """Tokens that came with the one before them."""
    return record.tokens - record.commits


def _seconds(times: array[int]) -> list[float]:
    return [time / SECOND for time in times]


def _over(above: float, below: float) -> float:
    return above / below if below > 0 else 0.0
