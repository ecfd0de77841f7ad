"""`acespec init`: a file that holds every option, says nothing while it is as written, and is never lost."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path

import pytest

from acespec.edge.cli import app
from acespec.edge.init_command import settings_text
from acespec.proto import option_names
from acespec.proto.command_line import program_of
from acespec.proto.config_file import load
from acespec.proto.errors import UsageError
from tests.edge.doctor_lab import call

KEY = re.compile(r"^#([a-z]\w*) = ", re.MULTILINE)


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ACESPEC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACESPEC_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def text() -> str:
    return settings_text(program_of(app))


def test_as_written_it_sets_nothing(text: str) -> None:
    assert not any(table for table in tomllib.loads(text).values() if not isinstance(table, dict))
    assert set(KEY.findall(text))
    assert all(line.startswith(("#", "[")) or not line for line in text.splitlines())


def test_every_option_is_in_it_with_its_environment_name(text: str) -> None:
    settings = [s for s in option_names.all_settings(program_of(app)) if s.path != ("init",)]
    assert {s.key for s in settings} == set(KEY.findall(text))
    joined = text.replace("\n# ", " ")
    for setting in settings:
        assert f"[{setting.environment}]" in joined, setting.key


def test_uncommented_it_says_what_holds_anyway(text: str, tmp_path: Path) -> None:
    """Every default in the file is of its option's type and value, wherever the key stands."""
    program = program_of(app)
    file = tmp_path / "s.toml"
    file.write_text(KEY.sub(r"\1 = ", text), encoding="utf-8")
    config = load(file, program, shared=True)
    assert config.faults == ()
    assert config.strange == ()
    compared = 0
    for setting in option_names.all_settings(program):
        table: object = config.defaults
        for name in setting.path:
            assert isinstance(table, dict)
            table = table[name]
        assert isinstance(table, dict)
        if setting.path == ("init",) or setting.name not in table:
            continue
        if setting.option.default is not None:
            default = setting.option.default
            assert table[setting.name] == (list(default) if isinstance(default, tuple) else default), setting
            compared += 1
    assert compared > 40


def test_it_is_written_for_oneself_and_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "deep" / "s.toml"
    assert call("--config", str(file), "init") == 0
    assert str(file) in capsys.readouterr().err
    if os.name != "nt":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("temp = 1.0\n")
    with pytest.raises(UsageError, match="--force"):
        call("--config", str(file), "init")
    assert file.read_text() == "temp = 1.0\n"
    assert call("--config", str(file), "init", "--force") == 0
    assert "#verifier" in file.read_text()


def test_a_broken_file_does_not_keep_from_writing_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[[[")
    assert call("--config", str(file), "init", "--force") == 0
    assert tomllib.loads(file.read_text()) is not None


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--config FILE"):
        call("--config", str(tmp_path / "file" / "s.toml"), "init")


def test_print_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.toml"
    assert call("--config", str(file), "init", "--print") == 0
    assert "#verifier" in capsys.readouterr().out
    assert not file.exists()
