"""The rate rule: the next token must earn its time, its bits and its row.

What drafts can lose is what drafts bring: the tokens beyond one a step, or `gained` tokens per second. Whatever delays
the next good draft by s seconds costs gained x s tokens, as far as that draft is there to be delayed. Good drafts arise
when commits come.

* Draft while survival > gained x t_d x min(1, t_d x commits per second) / 2: a commit that comes during a proposal
  waits for half of it. (In the optimal stop for tokens per second, [D t_d + C] / E in Dinkelbach's form, all of t_d is
  lost at the full rate, since the message waits for it. Here messages leave while drafting goes on.) While the cloud
  lets the session wait, nothing is lost. Where even a sure token would come later than the cloud makes one by itself
  (output rate x t_d >= 1), nothing is drafted: D = 0.
* Ship what gains more than it costs. A node gains a token with its survival. A message arrives with its last bit, so a
  node costs gained x bits / link rate, whoever else is on the link; and a floor for its row, which the verifier,
  who alone knows what rows cost, may still leave out.
* A message of its own must gain more than it costs with its headers. A commit that comes while it is on the link
  causes drafts that wait for half of it: gained x s x min(1, s x commits per second) / 2. Below that its drafts wait
  for more, or for an acknowledgement that goes anyway. So useless drafts end up in D = 0 as well.
"""

from __future__ import annotations

from acespec.edge.brain.adaptive import KEEP_FLOOR, AdaptiveController
from acespec.edge.brain.controller import Decision
from acespec.edge.brain.prices import FREE, Prices

MESSAGE_FLOOR = 0.05
"""Tokens that a message must gain in any case: its headers are bytes that somebody may pay for."""


class RateController(AdaptiveController):
    """The default."""

    @property
    def threshold(self) -> float:
        """Survival at which a further token just earns its time."""
        return max(KEEP_FLOOR, self._lost(self.draft_s))

    def extend(self, depth: int, survival: float, prices: Prices = FREE) -> Decision:
        """See `Controller.extend`."""
        price = KEEP_FLOOR if prices.waits else self.threshold if depth else self._price_of_any()
        value = survival - price
        if depth >= self._cap:
            return Decision(False, 0.0, "{} tokens ahead is the cap", (depth,))
        if value <= 0:
            return Decision(False, value, "survival {:.3f} at depth {} is below {:.3f}", (survival, depth, price))
        return Decision(True, value, "survival {:.3f} at depth {} is above {:.3f}", (survival, depth, price))

    def ship(self, depth: int, survival: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.ship`."""
        price = KEEP_FLOOR
        if not prices.waits:
            price = max(price, self.gained * prices.send_s(nbytes))
        value = survival - price
        return Decision(value > 0, value, "survival {:.3f} at depth {} against {:.3f}", (survival, depth, price))

    def send(self, gain: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.send`."""
        price = max(MESSAGE_FLOOR, self._lost(prices.send_s(nbytes)))
        return Decision(gain > price, gain - price, "a gain of {:.2f} tokens against {:.2f}", (gain, price))

    def _lost(self, seconds: float) -> float:
        """Tokens that a good draft loses on average if the drafter, or the link, is busy for so long."""
        return self.gained * seconds * min(1.0, seconds * self._commits.value) / 2

    def _price_of_any(self) -> float:
        """The price of a first token: judged by a steady average, as a wrong D = 0 would last."""
        return self._steady_output.value * self.draft_s
