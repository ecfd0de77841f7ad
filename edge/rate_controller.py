"""The rate rule: the next token must earn its time, its bits and its row.

* Draft while survival > rate x t_d x (what of it is lost): rate is the output rate, t_d the time of one proposal. In
  the optimal stop for tokens per second, [D t_d + C] / E (Dinkelbach's form), all of t_d is lost, since the message
  waits for it. Here messages leave while drafting goes on, and what is lost is half a proposal if a commit comes
  during it, which then has to wait for the drafter: min(1, t_d x commits per second) / 2. While the cloud lets the
  session wait, nothing is lost. Where even a sure token would come later than the cloud makes one by itself
  (rate x t_d >= 1), nothing is drafted: D = 0.
* Ship what gains more than it costs. A node gains a token with its survival. It costs what the output is delayed while
  the link carries its bits, rate x bits / link rate, as far as the link is busy; and a floor for its row, which the
  verifier, who alone knows what rows cost, may still leave out.
* A message of its own must gain more than it costs with its headers; else its drafts wait for more, or for an
  acknowledgement that goes anyway. So useless drafts end up in D = 0 as well.
"""

from __future__ import annotations

from acespec.edge.adaptive import KEEP_FLOOR, AdaptiveController
from acespec.edge.controller import Decision
from acespec.edge.prices import FREE, Prices


class RateController(AdaptiveController):
    """The default."""

    @property
    def threshold(self) -> float:
        """Survival at which a further token just earns its time."""
        lost = min(1.0, self.draft_s * self._commits.value) / 2
        return max(KEEP_FLOOR, self.output_rate * self.draft_s * lost)

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
        price = max(KEEP_FLOOR, self._delay(nbytes, prices))
        value = survival - price
        return Decision(value > 0, value, "survival {:.3f} at depth {} against {:.3f}", (survival, depth, price))

    def send(self, gain: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.send`."""
        price = self._delay(nbytes, prices)
        return Decision(gain > price, gain - price, "a gain of {:.2f} tokens against {:.2f}", (gain, price))

    def _delay(self, nbytes: float, prices: Prices) -> float:
        """Tokens that the output loses while the link carries so many bytes."""
        return 0.0 if prices.waits else self._steady_output.value * prices.send_s(nbytes) * prices.busy

    def _price_of_any(self) -> float:
        """The price of a first token: judged by a steady average, as a wrong D = 0 would last."""
        return self._steady_output.value * self.draft_s
