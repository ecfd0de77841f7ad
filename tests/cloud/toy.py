"""The toy target, under the name that tests know."""

from acespec.sim.toy_target import TIMING as TOY_TIMING
from acespec.sim.toy_target import ToyRunner, toy_text, toy_token

__all__ = ["TOY_TIMING", "ToyRunner", "toy_text", "toy_token"]
