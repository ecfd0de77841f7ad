"""`acespec models`: results on stdout, everything else on stderr, heavy imports only when used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acespec.models.cli import app
from acespec.models.progress import LineReport
from acespec.proto.errors import ModelNotFound
from tests.models.tiny_gguf import write_tiny_gguf


def run(*words: str) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


@pytest.mark.usefixtures("cache")
def test_pull_path_ls_rm(tmp_path: Path) -> None:
    gguf = write_tiny_gguf(tmp_path / "mine.gguf")
    out, err = run("ls")
    assert out == ""
    assert "no models here yet" in err
    assert json.loads(run("ls", "--json")[0]) == []

    folder, progress = run("pull", str(gguf))
    name = Path(folder.strip()).name
    assert "converting:" in progress
    assert run("path", str(gguf))[0] == folder
    assert run("path", name)[0] == folder

    (row,) = json.loads(run("ls", "--json")[0])
    assert row.keys() == {"name", "path", "bytes", "model_type", "source"}
    assert (row["name"], row["path"], row["model_type"]) == (name, folder.strip(), "llama")
    assert row["name"] in run("ls")[0]

    assert f"removed {name}" in run("rm", name)[1]
    with pytest.raises(ModelNotFound):
        run("path", name)


@pytest.mark.usefixtures("cache")
def test_offline_by_flag_and_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFound, match="offline"):
        run("pull", "--offline", "smollm2-135m")
    monkeypatch.setenv("ACESPEC_OFFLINE", "1")
    with pytest.raises(ModelNotFound, match="offline"):
        run("pull", "smollm2-135m")


def test_importing_the_commands_is_light() -> None:
    script = "import sys, acespec.models.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"torch", "mlx", "grpc", "numpy", "transformers", "huggingface_hub", "gguf", "tokenizers", "jinja2"}
    assert not heavy & set(done.stdout.split())


def test_using_a_tokenizer_loads_no_framework(tiny: Path) -> None:
    script = f"""
import sys
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
Tokenizer.load(resolve({str(tiny)!r})).apply_chat([])
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "mlx", "grpc", "transformers", "huggingface_hub", "gguf"} & set(done.stdout.split())


def test_lines_are_few() -> None:
    lines: list[str] = []
    now = [0.0]
    report = LineReport(lines.append, clock=lambda: now[0])
    for done in range(0, 1001):
        report("downloading", done * 10_000, 10_000_000)
        now[0] += 0.01
    report("converting", 0, 0)
    assert lines[0] == "downloading: 0.0 MB of 10.0 MB (0 %)"
    assert lines[-2:] == ["downloading: 10.0 MB of 10.0 MB (100 %)", "converting: started"]
    assert len(lines) == 6
