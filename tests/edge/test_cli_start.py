"""The program's start: light, complete in the shell, and of use on a machine without torch and MLX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.edge.doctor_lab import VOCAB, python_without, replaying

LEAST_OF = 3
MOST_OF_TORCH = 0.3


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ACESPEC_")}
    return clean | {"ACESPEC_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}


def acespec(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "acespec.edge.cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.skipif(find_spec("torch") is None, reason="there is nothing to compare with")
def test_the_help_is_there_in_a_fraction_of_what_torch_takes_to_import(environment: dict[str, str]) -> None:
    """In processor time of the children, by turns, the least of each: other work on the machine hardly counts."""
    started = min(_seconds(lambda: acespec("--help", env=environment)) for _ in range(LEAST_OF))
    torch = _seconds(lambda: subprocess.run([sys.executable, "-c", "import torch"], env=environment, check=True))
    assert started < MOST_OF_TORCH * torch, (started, torch)


def _seconds(work: Callable[[], object]) -> float:
    before = os.times()
    work()
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent if os.name != "nt" else time.perf_counter()


def test_chat_and_generate_work_without_torch_and_mlx(tmp_path: Path) -> None:
    bare = python_without(tmp_path, "torch", "mlx", "transformers", "ik_llama", "functorch", "triton")
    with replaying(tmp_path, "--insecure") as (port, _):
        options = ("--verifier", f"127.0.0.1:{port}", "--insecure", "--model", f"replay:{VOCAB}", "--drafter", "ngram")
        absent = json.loads(bare.run("version", "--json").stdout)
        assert absent["torch"] == absent["mlx"] == "not installed"
        answer = bare.run("generate", *options, "-m", "12", "--seed", "9", "-p", "hi")
        assert answer.returncode == 0, answer.stderr
        assert len(answer.stdout.split()) == 12
        talk = bare.run("chat", *options, "-m", "12", "--seed", "9", stdin="hi\n/quit\n")
    assert talk.returncode == 0, talk.stderr
    assert answer.stdout.strip() in talk.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("acespec ge", {"generate"}),
        ("acespec do", {"doctor"}),
        ("acespec models ", {"pull", "path", "ls", "rm"}),
        ("acespec chat --verif", {"--verifier"}),
        ("acespec chat --drafter n", {"none", "ngram"}),
        ("acespec chat --on-outage ", {"wait", "draft", "fail"}),
        ("acespec chat --model smol", {"smollm2-135m"}),
        ("acespec doctor --print", {"--print-settings"}),
    ],
)
def test_the_shell_completes(words: str, expected: set[str], environment: dict[str, str]) -> None:
    asked = {"_ACESPEC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    done = acespec(env=environment | asked)
    assert set(done.stdout.split()) == expected, done.stderr


def test_completion_can_be_had_for_a_shell(environment: dict[str, str]) -> None:
    done = acespec("--show-completion", "bash", env=environment | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.returncode == 0, done.stderr
    assert "_ACESPEC_COMPLETE=complete_bash" in done.stdout


def test_completion_survives_a_broken_settings_file(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[[[")
    asked = {"_ACESPEC_COMPLETE": "complete_bash", "COMP_WORDS": "acespec ge", "COMP_CWORD": "1"}
    done = acespec(env=environment | asked | {"ACESPEC_CONFIG": str(tmp_path / "bad.toml")})
    assert done.stdout.split() == ["generate"]


def test_version_says_what_a_bug_report_needs_and_no_secret(environment: dict[str, str]) -> None:
    env = environment | {"ACESPEC_API_KEY": "hush", "ACESPEC_CONFIG": "/no/such"}
    lines = {line.split()[0]: line for line in acespec("--version", env=env).stdout.splitlines()}
    assert {"acespec", "python", "system", "machine", "grpcio", "tokenizers", "mlx", "torch", "settings"} <= set(lines)
    assert sys.version.split()[0] in lines["python"]
    assert "ACESPEC_API_KEY" in lines["settings"]
    as_object = acespec("version", "--json", env=env)
    assert as_object.returncode == 0, as_object.stderr
    assert json.loads(as_object.stdout)["python"].endswith(sys.version.split()[0])
    assert "hush" not in as_object.stdout + str(lines)


def test_a_bad_value_names_where_it_was_set(environment: dict[str, str], tmp_path: Path) -> None:
    named = acespec("chat", env=environment | {"ACESPEC_TEMP": "hot"})
    assert named.returncode == 2
    assert "ACESPEC_TEMP" in named.stderr
    file = tmp_path / "s.toml"
    file.write_text("[chat]\ntemp = 'hot'\n")
    in_file = acespec("--config", str(file), "chat", env=environment)
    assert in_file.returncode == 2
    assert str(file) in in_file.stderr
