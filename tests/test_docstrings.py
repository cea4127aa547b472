"""Docstrings begin with a verb phrase or a noun phrase, and names of tests with the subject of the test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

HOME = Path(__file__).parents[1]
FOLDERS = ("platform_sdk", "components", "tests", "benchmarks", "manifests", "images", "docs", "examples")
CLAUSES = {
    "How", "If", "That", "What", "Whatever", "When", "Where", "Wherever", "Whether", "Which", "While", "Who", "Whoever",
    "Whom", "Whose", "Why",
}  # fmt: skip
FRAGMENTS = {
    "Also", "As", "At", "By", "Else", "For", "From", "In", "It", "Its", "Not", "Of", "There", "These", "This", "Those",
    "To", "Under", "Until", "With", "Within", "Without",
}  # fmt: skip

SUBJECTLESS = {
    "he", "how", "if", "it", "its", "nobody", "nothing", "one", "she", "that", "they", "what", "whatever", "when",
    "where", "whether", "which", "who", "whoever", "whose", "why",
}  # fmt: skip


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module, its classes and functions, and the strings behind their assignments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for before, statement in pairwise([None, *node.body]):
                documents = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
                text = statement.value if isinstance(statement, ast.Expr) and documents else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text


def faults(path: Path) -> list[str]:
    """Return the docstrings and tests of a file whose first word breaks the rule, each with its line and a remedy."""
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            word = node.name.split("_")[1]
            if word in SUBJECTLESS:
                found.append(f'{path}:{node.lineno}: {node.name} begins with "{word}"; begin with what is tested')
    for docstring in docstrings(tree):
        first = docstring.value.split()[:1]
        word = first[0].strip(",:") if first else ""
        if word in CLAUSES | FRAGMENTS:
            found.append(f'{path}:{docstring.lineno}: begins with "{word}"; begin with a verb ("Return …") or a noun')
    return found


def test_docstrings_begin_with_a_verb_or_a_noun_and_test_names_with_a_subject() -> None:
    files = [*HOME.glob("*.py"), *(path for folder in FOLDERS for path in sorted((HOME / folder).rglob("*.py")))]
    built = HOME / "docs/_build"
    found = [fault for path in files if built not in path.parents for fault in faults(path)]
    assert not found, "\n".join(found)


def test_clauses_are_found_in_every_kind_of_docstring(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""What a module holds."""\nclass A:\n    """Whether it holds."""\n    b = 1\n    """Of b."""\n'
        '    def c(self):\n        """How to."""\n    async def d(self):\n        """Return it."""\n        "Who"\n'
    )
    assert [fault.split(":")[1:3] for fault in faults(path)] == [
        ["1", ' begins with "What"; begin with a verb ("Return …") or a noun'],
        ["3", ' begins with "Whether"; begin with a verb ("Return …") or a noun'],
        ["5", ' begins with "Of"; begin with a verb ("Return …") or a noun'],
        ["7", ' begins with "How"; begin with a verb ("Return …") or a noun'],
    ]


def test_test_names_without_a_subject_are_found(tmp_path: Path) -> None:
    path = tmp_path / "test_module.py"
    path.write_text(
        "def test_what_is_lost(): ...\nclass A:\n    async def test_it_ends(self): ...\n"
        "def test_italics(): ...\ndef whose_end(): ...\ndef test_index_that_is_lost(): ...\n"
    )
    assert faults(path) == [
        f'{path}:1: test_what_is_lost begins with "what"; begin with what is tested',
        f'{path}:3: test_it_ends begins with "it"; begin with what is tested',
    ]
