"""Ratios that follow what is observed."""

from __future__ import annotations


class FadingRatio:
    """A ratio of two fading sums: a burst weighs what it lasts. `fade` is what a sample leaves of the earlier ones."""

    def __init__(self, fade: float) -> None:
        self._fade = fade
        self._above = self._below = 0.0

    @property
    def value(self) -> float:
        """The ratio; 0 before anything is known."""
        return self._above / self._below if self._below > 0 else 0.0

    def add(self, above: float, below: float) -> None:
        """One sample."""
        self._above = self._above * self._fade + above
        self._below = self._below * self._fade + below
