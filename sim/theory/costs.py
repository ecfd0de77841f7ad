"""What a session's parts cost in time: the symbols that all closed forms share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from acespec.proto.errors import UsageError


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in milliseconds; all are finite and not negative, else UsageError.

    `t_d` one draft at the edge, `t_v` one verify step, `t_ar` one plain step of the target, `R` the round trip without
    the time the cloud held the message, `tau` serialisation up and down with framing (T_tx in arXiv 2606.25091),
    `t_dc` one draft in the cloud; None: as long as at the edge.
    """

    t_d: float
    t_v: float
    t_ar: float
    R: float = 0.0
    tau: float = 0.0
    t_dc: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"cost {field.name} is {value}: it must be a finite number of ms, 0 or more")

    @property
    def C(self) -> float:  # noqa: N802
        """From the last draft sent to the verdict received: R + tau + t_v (definition)."""
        return self.R + self.tau + self.t_v

    @property
    def rho(self) -> float:
        """A draft's cost in plain steps, where co-located decoding pays it: t_dc / t_ar (definition)."""
        return self.cloud_draft / self.t_ar

    @property
    def cloud_draft(self) -> float:
        """t_dc, or t_d where none is given (definition)."""
        return self.t_d if self.t_dc is None else self.t_dc

    def over(self, R: float, tau: float | None = None) -> Costs:
        """The same machines over another link (definition)."""
        return replace(self, R=R, tau=self.tau if tau is None else tau)


def tokens_per_second(ms_per_token: float) -> float:
    """Definition: the rate of a form that gives `ms_per_token`, which is above 0."""
    return 1000.0 / ms_per_token


def serialisation_ms(up_bytes: float, down_bytes: float, kbps: float) -> float:
    """Definition: tau of one exchange on a link of `kbps` (1000 bit/s) each way; bytes include all headers."""
    return (up_bytes + down_bytes) * 8.0 / kbps
