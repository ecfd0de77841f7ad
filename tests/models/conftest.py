"""Every test here has a cache of its own; nothing of the user's is read or written."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.tiny import tiny_model_folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty acespec cache and an empty hub cache; returns the former."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ACESPEC_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tiny llama folder that no test changes."""
    return tiny_model_folder(tmp_path_factory.mktemp("tiny") / "llama")
