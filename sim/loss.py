"""Which packets are lost under way: independently, or in bursts (Gilbert 1960, Elliott 1963)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from acespec.proto.errors import UsageError


@dataclass(frozen=True, slots=True)
class GilbertElliott:
    """A channel that is good or bad, and may change between any two packets. All numbers are probabilities, 0 to 1.

    `p` leads from good to bad, `r` from bad to good; a packet is lost with `loss_good` or `loss_bad`. With the default
    losses, bursts are geometric with mean 1/r packets. The first packet finds the long-run distribution. Raises
    UsageError.
    """

    p: float
    r: float
    loss_bad: float = 1.0
    loss_good: float = 0.0

    def __post_init__(self) -> None:
        for field in ("p", "r", "loss_bad", "loss_good"):
            value = getattr(self, field)
            if not 0 <= value <= 1:
                raise UsageError(f"burst_loss {field} is {value}: it must be a probability, 0 to 1")
        if self.p + self.r == 0:
            raise UsageError("burst_loss p and r are both 0: such a channel never changes; use loss_percent")

    @property
    def bad_share(self) -> float:
        """Share of packets that meet the bad state."""
        return self.p / (self.p + self.r)

    @property
    def mean_percent(self) -> float:
        """Packets lost in the long run, in percent."""
        return 100 * (self.bad_share * self.loss_bad + (1 - self.bad_share) * self.loss_good)


LossSpec = float | GilbertElliott
"""Percent, independent per packet; or a channel with memory."""


def parse_loss(text: str) -> LossSpec:
    """Reads `iid:PERCENT` or `ge:P:R[:LOSS_BAD[:LOSS_GOOD]]` (probabilities). Raises UsageError."""
    kind, *numbers = text.split(":")
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        values = []
    if kind == "iid" and len(values) == 1:
        return values[0]
    if kind == "ge" and 2 <= len(values) <= 4:
        return GilbertElliott(*values)
    raise UsageError(
        f"cannot read loss model {text!r}: write iid:PERCENT, such as iid:1.5, or ge:P:R[:LOSS_BAD[:LOSS_GOOD]] with "
        "probabilities, such as ge:0.01:0.25"
    )


class LossProcess:
    """Decides packet after packet. The luck of a packet and the state of the channel come from streams of their own."""

    __slots__ = ("_bad", "_channel", "_luck", "_percent", "_states")

    def __init__(self, loss: LossSpec, stream_name: str) -> None:
        self._luck = Random(f"{stream_name}:loss")
        self._channel = loss if isinstance(loss, GilbertElliott) else None
        self._percent = 0.0 if isinstance(loss, GilbertElliott) else loss
        if self._channel is not None:
            self._states = Random(f"{stream_name}:loss-state")
            self._bad = self._states.random() < self._channel.bad_share

    def takes_next(self) -> bool:
        """Whether the next packet is lost."""
        if self._channel is None:
            return self._luck.random() < self._percent / 100
        lost = self._luck.random() < (self._channel.loss_bad if self._bad else self._channel.loss_good)
        if self._states.random() < (self._channel.r if self._bad else self._channel.p):
            self._bad = not self._bad
        return lost
