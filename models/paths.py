"""Where models live on this machine.

Own conversions go below one cache folder; models from a Hugging Face hub stay in the hub's own cache, so that other
tools share them. Nothing is created here: a path is only computed.
"""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_dir


def cache_root() -> Path:
    """`$ACESPEC_CACHE`, else `$ACESPEC_HOME/cache`, else the user's cache folder."""
    if chosen := os.environ.get("ACESPEC_CACHE"):
        return Path(chosen).expanduser()
    if home := os.environ.get("ACESPEC_HOME"):
        return Path(home).expanduser() / "cache"
    return Path(user_cache_dir("acespec"))


def models_root() -> Path:
    """The folder whose subfolders are converted models, one each."""
    return cache_root() / "models"


def locks_root() -> Path:
    """The folder of lock files; kept apart, so that a model folder holds nothing but the model."""
    return cache_root() / "locks"
