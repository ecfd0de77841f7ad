"""Whole steps of the 8B model: how near the weights' stream comes to the memory's rate, and what more rows cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acespec.bench.device_figures import Figure
from acespec.bench.device_lab import Lab, in_words, milli, percent
from acespec.bench.device_model import block, timed_runner
from acespec.bench.device_sizes import Kind
from acespec.cloud.cuda_backend.limits import BUCKETS, PassLimits
from acespec.cloud.cuda_backend.passes import cut
from acespec.cloud.cuda_backend.runner import CudaRunner
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.measure import measure_timing
from acespec.cloud.runner import PAGE, Block, pages_for
from acespec.proto.sampling_params import SamplingParams

ROOFLINE = 75.0
"""Percent of the memory's rate that a bf16 step is to reach."""
WEIGHT_BOUND = 64
"""Rows up to which a step's arithmetic is hidden behind its weights for certain."""
VERIFY_ROWS, VERIFY_RATIO = 8, 1.1
SAMPLED = SamplingParams(temperature=0.8)


def steps(lab: Lab, kind: Kind) -> Iterator[Figure]:
    """Steps of several sessions of several rows each, on the device and as a caller sees them."""
    runner = timed_runner(lab, kind)
    device: dict[tuple[int, int], float | None] = {}
    wall: dict[tuple[int, int], float | None] = {}
    for sessions in lab.sizes.step_sessions:
        for rows in lab.sizes.step_rows:
            blocks = step_blocks(lab, sessions, rows)
            cell = sessions, rows
            device[cell] = device_seconds(lab, runner, blocks)
            wall[cell] = lab.wall_seconds(lambda blocks=blocks: runner.step(blocks))  # type: ignore[misc]
            yield _step(lab, runner, kind, cell, device[cell], wall[cell])
    most = min(VERIFY_ROWS, lab.sizes.step_rows[-1])
    for name, seconds in (("on the device", device), ("as its caller sees it", wall)):
        one, many = seconds[1, 1], seconds[1, most]
        ratio = None if one is None or many is None else many / one
        target = VERIFY_RATIO if seconds is device else None
        yield Figure(f"{kind}: {most} rows verified against 1, {name}", ratio, "times", target, headline=True)


def step_blocks(lab: Lab, sessions: int, rows: int) -> list[Block]:
    """Blocks of as many sessions, each on pages of its own."""
    context, vocab = lab.sizes.step_context, lab.sizes.model.vocab_rows
    each = pages_for(context + rows)
    return [
        block(
            range(number * each, (number + 1) * each),
            context,
            [(number * 131 + row * 7 + 1) % vocab for row in range(rows)],
            rule=DrawRule(SAMPLED, seed=number, prompt_len=0),
        )
        for number in range(sessions)
    ]


def device_seconds(lab: Lab, runner: CudaRunner, blocks: Sequence[Block]) -> float | None:
    """Seconds of a step's passes on the device, without what the host does between them."""
    total = 0.0
    for part in cut(blocks, PassLimits(), runner.vocab_size):
        runner.step(part)
        rows = sum(len(b.tokens) for b in part)
        # The step's inputs are still on the device, and a pass may be repeated.
        seconds = lab.event_seconds(lambda rows=rows: runner._graphs.run(rows, rows))  # type: ignore[misc]
        if seconds is None:
            return None
        total += seconds
    return total


def _step(
    lab: Lab, runner: CudaRunner, kind: Kind, cell: tuple[int, int], device_s: float | None, wall_s: float | None
) -> Figure:
    sessions, rows = cell
    weights = runner._weights.step_bytes()
    keys = sessions * (lab.sizes.step_context + rows) * runner.page_bytes // PAGE
    floor_s = lab.floor(weights + keys)
    passes = len(list(cut(step_blocks(lab, sessions, rows), PassLimits(), runner.vocab_size)))
    bound = kind == "bf16" and sessions * rows <= WEIGHT_BOUND
    return Figure(
        f"{kind} step: {sessions} sessions of {rows} rows",
        percent(floor_s, device_s),
        "% of copy rate",
        at_least=ROOFLINE if bound else None,
        note=f"{in_words(milli(device_s), 'ms')}, wall {in_words(milli(wall_s), 'ms')}",
        headline=True,
        facts={
            "device_ms": milli(device_s),
            "wall_ms": milli(wall_s),
            "floor_ms": milli(floor_s),
            "weights alone, % of copy rate": percent(lab.floor(weights), device_s),
            "weight_bytes": weights,
            "kv_bytes": keys,
            "context": lab.sizes.step_context,
            "passes": passes,
            "wide tiles": runner.wide,
            "tokens_per_s, no drafts accepted": None if wall_s is None else sessions / wall_s,
        },
    )


def timing_profile(lab: Lab) -> Iterator[Figure]:
    """t_v over rows, sessions and contexts, by whole steps; saved if the lab has a place for it."""
    sizes = lab.sizes
    runner = timed_runner(lab, "bf16")
    measured = measure_timing(runner, sizes.curve_rows, sizes.curve_sessions, sizes.curve_contexts, sizes.curve_repeats)
    name = "8B random bf16 weights, one GPU" if lab.timed else "tiny model in the interpreter, no device"
    profile = measured.profile(name)
    if lab.profile_out is not None:
        profile.save(lab.profile_out)
    for rows, seconds in profile.curve:
        yield Figure(f"t_v of {rows} rows, wall", milli(seconds) if lab.timed else None, "ms", headline=True)
    error = measured.fit_error(profile)
    yield Figure(
        "prefill",
        measured.prefill_rate if lab.timed else None,
        "tokens/s",
        note=f"knee {profile.knee()} rows" if lab.timed else "",
        headline=True,
        facts={
            "points": [[p.rows, p.sessions, p.context, p.low, p.median, p.high] for p in measured.points],
            "notes": list(measured.notes),
            "session_s": profile.session_s,
            "position_s": profile.position_s,
            "fit_error_median": error.median,
            "fit_error_worst": error.worst,
            "largest_pass": BUCKETS[-1],
        },
    )
