"""The hub client against a real server on loopback: what is fetched, what goes on after a cut, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from acespec.models.fetch_hub import cached_repository, fetch_repository
from acespec.models.info import ModelInfo
from acespec.models.inventory import list_models, remove
from acespec.models.progress import silent
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import DownloadError, IntegrityError, ModelNotFound, UnsupportedModel
from tests.models.tiny_hub import COMMIT, TinyHub, serve
from tests.tiny import tiny_model_folder

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[TinyHub]:
    folder = tiny_model_folder(tmp_path / "served", hidden=256, vocab=512)
    (folder / "pytorch_model.bin").write_bytes(b"never fetched")
    with serve(folder) as running:
        yield running


def fetch(hub: TinyHub) -> Path:
    return fetch_repository("owner/tiny", silent, ModelInfo.read, endpoint=hub.endpoint)


def test_what_is_needed_is_fetched_once(hub: TinyHub, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    folder = fetch_repository("owner/tiny", lambda *step: heard.append(step), ModelInfo.read, endpoint=hub.endpoint)
    assert folder.name == COMMIT
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    assert not (folder / "pytorch_model.bin").exists()
    assert heard[-1][1] >= len(hub.files["model.safetensors"])
    assert ModelInfo.read(folder).name == "owner/tiny"
    assert Tokenizer.load(folder).fingerprint == Tokenizer.load(tmp_path / "served").fingerprint
    bodies = [request for request in hub.requests if request.startswith("GET") and "model.safetensors" in request]
    assert len(bodies) == 1
    fetch(hub)
    assert [r for r in hub.requests if r.startswith("GET") and "model.safetensors" in r] == bodies


def test_what_is_here_needs_no_network(hub: TinyHub) -> None:
    folder = fetch(hub)
    before = list(hub.requests)
    assert resolve("owner/tiny", offline=True) == folder
    assert resolve("owner/tiny") == folder
    assert hub.requests == before


def test_a_cut_transfer_goes_on_where_it_was(hub: TinyHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 14)
    hub.cut_after = 100_000
    folder = fetch(hub)
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
    (asked,) = hub.ranges
    assert int(asked.removeprefix("bytes=").rstrip("-")) > 50_000


def test_a_partial_snapshot_does_not_count_as_here(hub: TinyHub) -> None:
    folder = fetch(hub)
    (folder / "model.safetensors").unlink()
    assert cached_repository("owner/tiny") is None
    with pytest.raises(ModelNotFound, match="may not be fetched"):
        resolve("owner/tiny", offline=True)
    fetch(hub)
    assert cached_repository("owner/tiny") == folder


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_wrong_hash_is_found_and_not_kept(hub: TinyHub, name: str) -> None:
    hub.spoil = name
    with pytest.raises(IntegrityError, match=f"{name} arrived broken"):
        fetch(hub)
    assert cached_repository("owner/tiny") is None
    hub.spoil = ""
    assert (fetch(hub) / name).read_bytes() == hub.files[name]


def test_an_unserved_architecture_stops_before_the_weights(hub: TinyHub) -> None:
    config = json.loads(hub.files["config.json"]) | {"model_type": "mamba"}
    hub.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(UnsupportedModel, match="owner/tiny is of architecture 'mamba'; served are llama"):
        fetch(hub)
    assert not [request for request in hub.requests if "safetensors" in request]


def test_a_tokenizer_is_had_without_the_weights(hub: TinyHub) -> None:
    folder = fetch_repository("owner/tiny", silent, ModelInfo.read, weights=False, endpoint=hub.endpoint)
    assert Tokenizer.load(folder).encode("<|im_end|>") == [2]
    assert not [request for request in hub.requests if "model.safetensors" in request]
    assert resolve("owner/tiny", offline=True, weights=False) == folder
    with pytest.raises(ModelNotFound, match="may not be fetched"):
        resolve("owner/tiny", offline=True)
    assert (fetch(hub) / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_repository_without_a_needed_file_says_which(hub: TinyHub, name: str) -> None:
    del hub.files[name]
    with pytest.raises(ModelNotFound, match=f"owner/tiny has no {name}: only safetensors"):
        fetch(hub)


@pytest.mark.parametrize(
    ("status", "code", "error", "words"),
    [
        (404, "RepoNotFound", ModelNotFound, "the hub has no model owner/tiny"),
        (403, "GatedRepo", ModelNotFound, "gated: accept its terms"),
        (418, "", DownloadError, "could not be fetched"),
    ],
)
def test_refusals_of_the_hub_are_one_line(
    hub: TinyHub, status: int, code: str, error: type[Exception], words: str
) -> None:
    hub.error = (status, code)
    with pytest.raises(error, match=words) as caught:
        fetch(hub)
    assert "\n" not in str(caught.value)


def test_nobody_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="could not be fetched") as caught:
        fetch_repository("owner/tiny", silent, ModelInfo.read, endpoint="http://127.0.0.1:9")
    assert "\n" not in str(caught.value)


def test_list_and_remove(hub: TinyHub) -> None:
    folder = fetch(hub)
    assert [(model.name, model.path, model.source) for model in list_models()] == [("owner/tiny", folder, "hub")]
    assert remove("owner/tiny") > len(hub.files["model.safetensors"])
    assert not folder.exists()
    assert list_models() == []


def test_the_command_line_pulls_from_a_hub(hub: TinyHub, tmp_path: Path) -> None:
    script = "from acespec.models.cli import app; app()"
    settings = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HUB_CACHE": constants.HF_HUB_CACHE}
    done = subprocess.run(
        [sys.executable, "-c", script, "pull", "owner/tiny"], capture_output=True, text=True, env=settings, check=True
    )
    folder = Path(done.stdout.strip())
    assert (folder / "model.safetensors").exists()
    assert done.stdout.count("\n") == 1
    assert "downloading:" in done.stderr
    assert "it/s" not in done.stderr
