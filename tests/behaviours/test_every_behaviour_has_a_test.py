"""The list of behaviours is complete: each number from 1 to 38 has a test that says what it shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

LAST = 38


def numbered_tests() -> dict[int, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    found: dict[int, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_b"):
                match = re.match(r"test_b(\d\d)_", node.name)
                assert match is not None, node.name
                found.setdefault(int(match[1]), []).append(node)
    return found


def test_every_number_has_a_test() -> None:
    assert sorted(numbered_tests()) == list(range(1, LAST + 1))


def test_every_test_restates_its_behaviour() -> None:
    for nodes in numbered_tests().values():
        for node in nodes:
            assert (ast.get_docstring(node) or "").endswith("."), node.name
