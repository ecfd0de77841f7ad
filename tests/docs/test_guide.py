"""The user guide: each command line in it parses, each link leads somewhere, each option it names exists."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from acespec.cloud.cli import app as verifier_app
from acespec.edge.cli import app as edge_app
from acespec.proto.errors import AcespecError
from acespec.sim.cli import app as sim_app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
APPS = {"acespec": edge_app, "acespec-verifier": verifier_app, "acespec-sim": sim_app}
FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(acespec(?:-verifier|-sim)? [^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)?(#[^)\s]+)?\)")
ENVIRONMENT = re.compile(r"\bACESPEC_[A-Z][A-Z0-9_]+\b")
NO_OPTIONS = {"ACESPEC_HOME", "ACESPEC_CACHE"}
CUT = ("|", ">", "<", "&&", "&", ";", "#")
"""Words at which what our programs get to see ends."""

WRONG: tuple[type[Exception], ...] = (AssertionError, AcespecError, typer.BadParameter.__bases__[0])
"""What `parse` raises; Typer may bring its own copy of click, so that click's are reached through it."""


def commands(text: str) -> Iterator[list[str]]:
    """Every call of one of our programs in a page, as words."""
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield from _calls(line)
    for span in INLINE.findall(FENCE.sub("", text)):
        yield from _calls(span)


def _calls(line: str) -> Iterator[list[str]]:
    words = shlex.split(line, comments=True)
    while words and (words[0] in ("$", "sudo") or re.fullmatch(r"[A-Z_]+=.*", words[0])):
        words.pop(0)
    if words and words[0] in APPS:
        end = next((i for i, word in enumerate(words) if word in CUT), len(words))
        yield words[:end]


def parse(words: list[str]) -> None:
    """Read a command line as the program would, and do nothing of what it says."""
    if words[1:] == ["--install-completion"]:
        return  # Typer's own; to read it is to do it.
    command = typer.main.get_command(APPS[words[0]])
    context = command.make_context(words[0], words[1:])
    while subcommands := getattr(command, "commands", None):
        rest = [*context._protected_args, *context.args]
        if not rest:
            break
        if rest[0] not in subcommands:
            raise AssertionError(f"there is no command {rest[0]}")
        command = subcommands[rest[0]]
        context = command.make_context(rest[0], rest[1:], parent=context)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands mean what they say, whatever is set on this machine."""
    for name in [name for name in os.environ if name.startswith("ACESPEC_")]:
        monkeypatch.delenv(name)
    empty = tmp_path / "empty.toml"
    empty.touch()
    monkeypatch.setenv("ACESPEC_CONFIG", str(empty))


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_every_command_line_parses(page: Path) -> None:
    calls = list(commands(page.read_text(encoding="utf-8")))
    assert calls, "a page of the guide shows what to type"
    for words in calls:
        try:
            parse(words)
        except WRONG as error:
            pytest.fail(f"{page.name}: {shlex.join(words)}: {getattr(error, 'message', error)}")


@pytest.mark.parametrize("page", [*GUIDE, DOCS / "README.md"], ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in _anchors(file), f"{page.name}: {target}{anchor}"


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")} - {"README.md"}
    listed = {target for target, _ in LINK.findall(index)}
    assert pages <= listed, sorted(pages - listed)


def test_every_environment_name_belongs_to_an_option() -> None:
    known = NO_OPTIONS | {name for app in APPS.values() for name in _environment(typer.main.get_command(app))}
    for page in GUIDE:
        for name in ENVIRONMENT.findall(page.read_text(encoding="utf-8")):
            assert name in known, f"{page.name}: {name}"


@pytest.mark.parametrize(
    "line",
    [
        "acespec generate --no-such-option",
        "acespec no-such-command",
        "acespec generate --max-tokens many",
        "acespec-sim link --listen",
        "acespec models no-such-command",
    ],
)
def test_a_wrong_line_does_not_parse(line: str) -> None:
    with pytest.raises(WRONG):
        parse(shlex.split(line))


def test_commands_are_found_wherever_they_stand() -> None:
    text = (
        "See `acespec version`.\n```sh\nA=1 acespec chat \\\n  --seed 3  # why\nls\nacespec-sim presets | head\n```\n"
    )
    assert list(commands(text)) == [
        ["acespec", "chat", "--seed", "3"],
        ["acespec-sim", "presets"],
        ["acespec", "version"],
    ]


def _anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {"#" + heading.strip().replace(" ", "-") for heading in plain}


def _environment(command: object) -> Iterator[str]:
    for option in getattr(command, "params", ()):
        names = getattr(option, "envvar", None) or ()
        yield from [names] if isinstance(names, str) else names
    for sub in getattr(command, "commands", {}).values():
        yield from _environment(sub)
