"""Every finding of the attack has tests, and they exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.findings import FINDINGS

ROOT = Path(__file__).parents[2]
NUMBERED = {"H": 5, "M": 4, "L": 11}


def test_list_covers_every_finding() -> None:
    assert list(FINDINGS) == [f"{letter}{number}" for letter, last in NUMBERED.items() for number in range(1, last + 1)]
    assert all(FINDINGS.values())


@pytest.mark.parametrize("finding", FINDINGS)
def test_tests_of_a_finding_exist(finding: str) -> None:
    for name in FINDINGS[finding]:
        file, _, function = name.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function in functions, name
