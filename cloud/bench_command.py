"""What `acespec-verifier bench` does: measure t_v(rows, sessions, context) here, show it, save it as a profile."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from acespec.cloud.device import Device, RunnerOptions
from acespec.cloud.load import Target, load_target
from acespec.cloud.measure import Progress, measure_timing
from acespec.cloud.timing_fit import Measurement, Timed
from acespec.models.replay_tokenizer import DEFAULT_VOCABULARY
from acespec.proto.errors import UsageError
from acespec.proto.timing_profile import KNEE, TimingProfile

log = logging.getLogger(__name__)

ROWS, SESSIONS, CONTEXTS, REPEATS = "1,2,4,8,16,32,64", "1,2,8", "64,512", 5
QUICK_ROWS, QUICK_SESSIONS, QUICK_CONTEXTS, QUICK_REPEATS = "1,4,16,64", "1,4", "64,256", 3
QUIET_S = 2.0
"""Work that takes longer shows its progress."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """The options of `bench`; see its `--help`."""

    model: str
    backend: str
    device: Device
    profile: str
    threads: int
    rows: tuple[int, ...]
    sessions: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int
    out: Path | None
    as_json: bool
    offline: bool

    @property
    def name(self) -> str:
        """What the profile is called."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.model}, {threads}" if self.backend == "torch" else f"replay of {self.profile}"


def numbers(option: str, text: str) -> tuple[int, ...]:
    """The whole numbers of a comma list, from 1 on. Raises UsageError that names the option."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} {text}: give whole numbers from 1 on, with commas between, as in 1,8,64")
    return tuple(int(part) for part in parts)


def bench(settings: BenchSettings) -> None:
    """Measure, print the result on stdout, and save the profile if asked.

    Raises:
        AcespecError: the model cannot be loaded, nothing of the grid fits, or the file cannot be written.
    """
    if settings.out is not None and not settings.out.resolve().parent.is_dir():
        raise UsageError(f"cannot write {settings.out}: there is no such folder; make it first")
    runner = _target(settings).runner
    with _progress() as progress:
        measurement = measure_timing(
            runner, settings.rows, settings.sessions, settings.contexts, settings.repeats, progress
        )
    profile = measurement.profile(settings.name)
    if settings.out is not None:
        profile.save(settings.out)
    sys.stdout.write(_json(measurement, profile) if settings.as_json else report(measurement, profile, settings.out))


def report(measurement: Measurement, profile: TimingProfile, saved: Path | None) -> str:
    """The tables and what follows from them, for a person."""
    error = measurement.fit_error(profile)
    lines = [f"{profile.name}: milliseconds of a step, median of {measurement.repeats}"]
    for context in sorted({p.context for p in measurement.points}):
        lines += ["", *_table([p for p in measurement.points if p.context == context], context)]
    lines += [
        "",
        f"plain decoding, one session: {measurement.plain_rate:.1f} tokens/s",
        f"prefill: {measurement.prefill_rate:,.0f} tokens/s in chunks of {measurement.chunk_rows}",
        f"each further session adds {1e3 * profile.session_s:.3f} ms to a step, "
        f"1,000 positions that a row looks back on {1e6 * profile.position_s:.3f} ms",
        f"knee: {profile.knee()} rows, the most that take at most {KNEE} times as long as one",
        f"the profile is off by {error.median:.1%} (median), {error.worst:.1%} (worst)",
        *(f"note: {note}" for note in measurement.notes),
        "",
        *_usage(profile, saved),
    ]
    return "\n".join(lines) + "\n"


def _table(points: Sequence[Timed], context: int) -> list[str]:
    at = {(p.rows, p.sessions): p for p in points}
    sessions, rows = sorted({s for _, s in at}), sorted({r for r, _ in at})
    heads = "".join(f"{f'{s} session' + 's' * (s > 1):>26}" for s in sessions)
    lines = [f"context {context} (quartiles in brackets)", f"{'rows':>6}{heads}"]
    lines += [f"{r:>6}" + "".join(_cell(at.get((r, s))) for s in sessions) for r in rows]
    return lines


def _cell(point: Timed | None) -> str:
    if point is None:
        return " " * 26
    low, median, high = (_milliseconds(s) for s in (point.low, point.median, point.high))
    return f"{f'{median} ({low} .. {high})':>26}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.{1 if seconds >= 0.01 else 3}f}"


def _usage(profile: TimingProfile, saved: Path | None) -> list[str]:
    if saved is None:
        return ["--out FILE saves this as a profile, to be replayed without the model or this machine."]
    return [
        f"saved as {saved}; use it with",
        f"  acespec-verifier serve --backend replay --profile {saved}    (these times, no model)",
        f"  acespec-verifier serve --timing {saved}    (plan by it; --max-rows auto is then {profile.knee()})",
    ]


def _json(measurement: Measurement, profile: TimingProfile) -> str:
    data = {
        "profile": asdict(profile),
        "knee": profile.knee(),
        "plain_tokens_per_s": measurement.plain_rate,
        "prefill_tokens_per_s": measurement.prefill_rate,
        "fit_error": asdict(measurement.fit_error(profile)),
        **asdict(measurement),
    }
    return json.dumps(data, indent=1) + "\n"


def _target(settings: BenchSettings) -> Target:
    if settings.backend == "replay":
        from acespec.cloud.replay.load import load_replay

        return load_replay(settings.profile, vocab_size=DEFAULT_VOCABULARY)
    return load_target(
        settings.model,
        RunnerOptions(device=settings.device, threads=settings.threads),
        offline=settings.offline,
        say=log.info,
    )


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr once the work has taken a while; a terminal sees it move, a log gets a line now and then."""
    from tqdm import tqdm

    often = 0.1 if sys.stderr.isatty() else QUIET_S
    with tqdm(desc="measuring", unit=" steps", delay=QUIET_S, mininterval=often, leave=False, file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
