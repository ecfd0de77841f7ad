"""Names of options, and where values come from: line, environment, file, default."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from typer.core import TyperGroup, TyperOption

from acespec.cloud.cli import app as cloud_app
from acespec.edge.cli import app
from acespec.proto import option_names
from acespec.proto.command_line import program_of
from acespec.proto.config_file import load
from acespec.proto.errors import UsageError
from tests.edge.doctor_lab import call

Capture = pytest.CaptureFixture[str]
PLACES = {"ACESPEC_HOME", "ACESPEC_CACHE"}
"""Variables that no option has."""


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ACESPEC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACESPEC_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("program", [app, cloud_app], ids=["acespec", "acespec-verifier"])
def test_every_option_of_every_command_has_an_environment_name(program: object) -> None:
    named = 0
    for path, command in option_names.walk(program_of(program)):  # type: ignore[arg-type]
        for option in command.params:
            if isinstance(option, TyperOption) and option.name not in option_names.ACTIONS:
                assert isinstance(option.envvar, str), (path, option.name)
                assert option.envvar.startswith("ACESPEC_"), (path, option.name)
                assert option.envvar not in PLACES, (path, option.name)
                named += 1
    assert named > 25


def test_the_environment_name_follows_from_the_flag() -> None:
    """One rule, so that nobody has to look it up; a name that says more may begin with its command."""
    program = program_of(app)
    assert isinstance(program, TyperGroup)
    for setting in option_names.all_settings(program):
        first = [option_names.aliased(program, setting.path[0])] if setting.path else []
        plain = option_names.environment_name(setting.flag)
        longer = option_names.PREFIX + "_".join([*first, *setting.path[1:], setting.key]).upper()
        assert setting.environment in (plain, longer), (setting.path, setting.flag)


def test_every_command_can_be_asked_for_its_settings() -> None:
    for path, command in option_names.walk(program_of(app)):
        if option_names.is_command(command):
            assert "print_settings" in [option.name for option in command.params], path


def settings(capsys: Capture, *arguments: str) -> dict[str, tuple[object, str]]:
    """Key -> value (None if not set) and where it came from, as `--print-settings` shows them."""
    capsys.readouterr()
    assert call(*arguments, "--print-settings") == 0
    shown: dict[str, tuple[object, str]] = {}
    for line in capsys.readouterr().out.splitlines():
        text, source = re.fullmatch(r"(.*?\S) +# (.*)", line).groups()  # type: ignore[union-attr]
        if text.startswith("# "):
            shown[text[2:]] = (None, source)
        else:
            shown |= {key: (value, source) for key, value in tomllib.loads(text).items()}
    return shown


def test_print_settings_says_where_each_value_comes_from(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.toml"
    file.write_text('verifier = "a:1"\ntemp = 0.1\n[chat]\ntemperature = 0.2\nstop = ["a b", "é"]\n')
    monkeypatch.setenv("ACESPEC_TOP_P", "0.5")
    monkeypatch.setenv("ACESPEC_CONFIG", str(file))
    shown = settings(capsys, "chat", "--top-k", "7")
    assert shown["verifier"] == ("a:1", f"{file}, the top")
    assert shown["temp"] == (0.2, f"{file}, [chat]")
    assert shown["stop"] == (["a b", "é"], f"{file}, [chat]")
    assert shown["top_p"] == (0.5, "environment ACESPEC_TOP_P")
    assert shown["top_k"] == (7, "command line")
    assert shown["min_p"] == (0.0, "default")
    assert shown["seed"] == (None, "default")
    assert shown["log_level"] == ("warning", "default")
    assert settings(capsys, "generate")["temp"] == (0.1, f"{file}, the top")


def test_secrets_are_never_shown(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.toml"
    file.write_text('api_key = "hush-file"\n')
    for arguments in (("--config", str(file), "chat"), ("chat", "--api-key", "hush-line")):
        value, _ = settings(capsys, *arguments)["api_key"]
        assert value
        assert "hush" not in str(value)
    monkeypatch.setenv("ACESPEC_API_KEY", "hush-environment")
    value, source = settings(capsys, "generate")["api_key"]
    assert "hush" not in str(value)
    assert source == "environment ACESPEC_API_KEY"
    assert settings(capsys, "chat", "--api-key-file", "/a/key")["api_key_file"][0] == "/a/key"


def test_nested_commands_have_nested_tables(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "s.toml"
    file.write_text("offline = true\n[trace.show]\nrow = 2.5\n[models.ls]\njson = true\n")
    shown = settings(capsys, "--config", str(file), "trace", "show", "any-file")
    assert shown["row"] == (2.5, f"{file}, [trace.show]")
    assert settings(capsys, "--config", str(file), "models", "pull", "x")["offline"][0] is True
    assert settings(capsys, "--config", str(file), "models", "ls")["json"] == (True, f"{file}, [models.ls]")


def test_the_doctor_reads_the_tables_of_those_it_looks_after(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "s.toml"
    file.write_text('verifier = "top:1"\n[chat]\nverifier = "chat:1"\nmax_tokens = 9\n[generate]\nmodel = "m"\n')
    shown = settings(capsys, "--config", str(file), "doctor")
    assert shown["verifier"] == ("chat:1", f"{file}, [chat]")
    assert shown["model"] == ("m", f"{file}, [generate]")
    file.write_text('[chat]\nverifier = "chat:1"\n[doctor]\nverifier = "own:1"\n')
    assert settings(capsys, "--config", str(file), "doctor")["verifier"][0] == "own:1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[chat]\nverifer = 'a:1'", ("'verifer'", "[chat]", "write `verifier`")),
        ("max_tokns = 1", ("'max_tokns'", "write `max_tokens`")),
        ("[chat]\nfrobnicate = 1\n[generate]\nfrobnicate = 1", ("'frobnicate'", "init --print", "1 more")),
        ("verifier = ", ("is not TOML", "init --force")),
    ],
)
def test_a_file_that_means_nothing_is_refused(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        call("--config", str(file), "chat")
    assert all(word in str(caught.value) for word in (*words, str(file)))


def test_a_table_of_another_program_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[bench]\nrepeats = 3\n[sweep]\nout = 'x'\n")
    assert settings(capsys, "--config", str(file), "chat")["temp"] == (0.0, "default")
    config = load(file, program_of(app), shared=True)
    assert config.strange == ("bench", "sweep")
    assert not config.faults


def test_the_file_in_the_docs_is_sound(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "s.toml"
    file.write_text(block, encoding="utf-8")
    config = load(file, program_of(app), shared=True)
    assert (config.faults, config.strange) == ((), ())
    assert config.origins[("chat",), "temp"] == "[chat]"
    assert config.origins[("proxy",), "verifier"] == "the top"


def test_an_alias_reads_the_table_of_what_it_stands_for(tmp_path: Path, capsys: Capture) -> None:
    """`[serve]` is the verifier's."""
    file = tmp_path / "s.toml"
    file.write_text("[proxy]\nport = 9\n[serve]\nport = 10\n")
    for name in ("proxy", "serve"):
        assert settings(capsys, "--config", str(file), name)["port"] == (9, f"{file}, [proxy]")


def test_only_the_edge_shares_what_stands_in_front(tmp_path: Path) -> None:
    """`api_key_file` means another thing to a verifier: what it lets in, not what it shows."""
    file = tmp_path / "s.toml"
    file.write_text("api_key_file = 'mine'\nverifier = 'a:1'\nlog_level = 'error'\n[serve]\nmodel = 'm'\n")
    config = load(file, program_of(cloud_app))
    assert config.defaults["log_level"] == "error"
    assert config.defaults["serve"] == {"model": "m"}
    assert not config.faults


def test_an_empty_variable_sets_nothing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACESPEC_TEMP", "")
    assert settings(capsys, "chat")["temp"] == (0.0, "default")
