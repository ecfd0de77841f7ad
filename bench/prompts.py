"""A few prompts of our own, from easy to guess (edits, lists) to hard (stories)."""

from __future__ import annotations

PROMPTS = (
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain in simple steps how a sailing boat can move against the wind.",
    "Write a Python function that counts the words in a text and returns a dictionary.",
    "Repeat this list three times: apples, pears, plums, cherries, quinces, apricots.",
    "Correct the spelling of this text and write it again: The shipp left the harbor at dawn, and the crew "
    "was hapy to see the oppen sea after a long winter in the harbor.",
)
