"""The examples of docs/python_api.md run as they stand, against a verifier without a model."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import acespec.edge
from acespec.proto.replay_text import SyntheticText
from tests.replay_verifier import VOCAB, replay_verifier

PAGE = Path(__file__).parents[2] / "docs" / "python_api.md"
WRITTEN = "127.0.0.1:7717"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
SAID = [
    r"(?: \d+){20}\nlength: 20 tokens, \d+ B/token",
    r"with drafts (?:[1-9]|1\d|2[0-5]) steps, without 30",
    r"Who are you\? \d+ prompt tokens, \d+ bytes up\nAnd who am I\? \d+ prompt tokens, \d+ bytes up",
    r"enough after 4\d characters; running: False",
    r"' \d.*' and perhaps ' \d.*'\n(?:.*\n)*150 tokens, [1-9]\.\d+ accepted per commit, \d+ bytes up",
    r"\[' \d+.*'\] over 1 connection",
    r"try again later: cannot reach the verifier at 127\.0\.0\.1:1: connection refused.*",
]


@pytest_asyncio.fixture
async def address() -> AsyncIterator[str]:
    async with replay_verifier(SyntheticText(VOCAB), step_s=0.01) as address:
        yield address


@pytest.mark.parametrize("number", range(len(SAID)))
async def test_an_example_runs_as_it_stands(address: str, number: int, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number].replace(WRITTEN, address), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        script,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"ACESPEC_CACHE": str(tmp_path)},
    )
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    assert re.fullmatch(SAID[number], out.decode().rstrip()), out.decode()


def test_every_example_is_run_and_every_name_is_there() -> None:
    assert len(EXAMPLES) == len(SAID)
    for example in EXAMPLES:
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom) and node.module == "acespec.edge":
                assert {alias.name for alias in node.names} <= set(acespec.edge.__all__)
    for name in acespec.edge.__all__:
        assert getattr(acespec.edge, name) is getattr(acespec.edge, name)
        assert not isinstance(getattr(acespec.edge, name), type(acespec.edge)), "a module hides what is named as it"
