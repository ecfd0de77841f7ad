"""Named timings of hardware that is not here: verifiers as t_v(rows, sessions) with a prefill rate, drafters as t_d.

All figures are approximate, and none was measured by this project on the hardware named; each profile says where its
figures come from and how they were made. Times are for short contexts. A verifier may also be named by a file that
`acespec-verifier bench` has saved on the machine in question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.proto.timing_profile import TimingProfile

ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class DrafterProfile:
    """A drafter on its machine: `token_s` is the time of one proposal, `source` where it comes from."""

    name: str
    token_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """A step as the larger of two times, reading all weights and computing all rows, plus a fixed overhead.

    Attributes:
        weight_gb: bytes of weights, 10^9.
        gb_per_s: reached memory bandwidth.
        gflop_per_row: two operations a parameter.
        tflop_per_s: reached arithmetic rate at small row counts.
        overhead_s: launches, sampling, communication.
    """

    weight_gb: float
    gb_per_s: float
    gflop_per_row: float
    tflop_per_s: float
    overhead_s: float

    def step_s(self, rows: int) -> float:
        """Seconds of a step of `rows` rows."""
        reading = self.weight_gb / self.gb_per_s
        return self.overhead_s + max(reading, rows * self.gflop_per_row / self.tflop_per_s / 1000)

    def profile(self, name: str, *, session_s: float, source: str) -> TimingProfile:
        """A verifier with this curve; it prefills at the arithmetic rate."""
        knee = int(1000 * self.tflop_per_s * self.weight_gb / self.gb_per_s / self.gflop_per_row)
        curve = tuple((rows, self.step_s(rows)) for rows in sorted({*ROW_COUNTS, knee}))
        return TimingProfile(name, curve, session_s, 1000 * self.tflop_per_s / self.gflop_per_row, source)


THEORY_CURVE = ((1, 0.025), (256, 0.025), (512, 0.050))

_VERIFIERS = (
    Roofline(16.4, 0.75 * 3350, 16.4, 0.6 * 989, 0.0010).profile(
        "h100-8b",
        session_s=0.00006,
        source="Qwen3-8B, bf16, one H100 SXM: ceilings of 3.35 TB/s and 989 TFLOP/s (data sheet), of which 75 % and "
        "60 % are assumed reached, 1 ms of overhead assumed; a session's KV: 144 KB a token, 1 K tokens, at that rate",
    ),
    Roofline(70.6, 0.85 * 3350, 141.0, 0.5 * 1979, 0.0002).profile(
        "h100-70b-fp8",
        session_s=0.00012,
        source="Llama-3-70B, fp8, one H100 SXM's bandwidth: 3.35 TB/s and 1979 TFLOP/s (data sheet), of which 85 % and "
        "50 % are assumed reached; gives the 25 ms that the closed forms' table uses. Tuned AR on 4 H100 in bf16 was "
        "54.7 tokens/s, 18 ms (arXiv 2603.03251)",
    ),
    TimingProfile(
        "a100-70b",
        ((1, 0.1455), (16, 0.1460), (64, 0.1480), (128, 0.1560), (256, 0.2100)),
        session_s=0.0005,
        prefill_rate=2000.0,
        source="Llama-70B, bf16, 4 A100-40GB, PyTorch: plain decoding at 6.87 tokens/s (arXiv 2609.02514, table I); "
        "how rows and prefill cost there is assumed",
    ),
    TimingProfile(
        "cpu-135m",
        ((1, 0.061), (2, 0.115), (4, 0.116), (8, 0.142), (16, 0.179), (32, 0.277), (64, 0.475)),
        session_s=0.0,
        prefill_rate=264.0,
        source="SmolLM2-135M, float32, torch on one Zen 3 thread, measured at a 256-token context by this project; the "
        "point at 64 rows is extrapolated. The one curve here on which a second row is dear",
    ),
    TimingProfile(
        "theory-25ms",
        THEORY_CURVE,
        session_s=0.0,
        prefill_rate=10_240.0,
        source="the closed forms' t_v: 25 ms whatever rows and sessions, no machine's. That rows beyond 256 cost what "
        "256 do in proportion, and prompt rows likewise, is assumed",
    ),
    TimingProfile(
        "theory-25ms-serial",
        THEORY_CURVE,
        session_s=0.025,
        prefill_rate=10_240.0,
        source="the closed forms' t_v, 25 ms, as if sessions shared nothing: each adds a whole step, as where reading "
        "their KV is all that takes time. The worst that batching can be, no machine's",
    ),
)

_DRAFTERS = (
    DrafterProfile(
        "m3-0.6b-4bit",
        0.0032,
        "0.5-0.6B in 4 bit on an M3-class Mac with MLX: 250-400 tokens/s is an estimate from published speeds of "
        "larger models; the middle",
    ),
    DrafterProfile(
        "laptop-0.5b-q4",
        0.046,
        "Qwen2.5-0.5B Q4_K_M in llama.cpp (ik-llama-cpp-python) on one Zen 3 thread, measured by this project at a "
        "256-token context",
    ),
    DrafterProfile("theory-5ms", 0.005, "t_d of the closed forms' table"),
    DrafterProfile("instant", 0.0, "no time at all: a table of n-grams, or a drafter that only pretends"),
)

VERIFIERS: Mapping[str, TimingProfile] = {profile.name: profile for profile in _VERIFIERS}
DRAFTERS: Mapping[str, DrafterProfile] = {profile.name: profile for profile in _DRAFTERS}


def find_verifier(name: str) -> TimingProfile:
    """The verifier profile of that name, or the one in the file of that name.

    Raises UsageError: no such profile (the message lists the names), or not a profile's file.
    """
    if name in VERIFIERS:
        return VERIFIERS[name]
    path = Path(name)
    if path.suffix == ".json" or path.is_file():
        return TimingProfile.load(path)
    raise UsageError(
        f"no verifier profile {name!r}: choose one of {', '.join(VERIFIERS)}, or a file of acespec-verifier bench"
    )


def find_drafter(name: str) -> DrafterProfile:
    """The drafter profile of that name. Raises UsageError that lists the names."""
    try:
        return DRAFTERS[name]
    except KeyError:
        raise UsageError(f"no drafter profile {name!r}: choose one of {', '.join(DRAFTERS)}") from None
