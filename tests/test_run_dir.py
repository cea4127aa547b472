from __future__ import annotations

import ast
from pathlib import Path, PurePosixPath

from platform_sdk.run_dir import Entry, PhaseDir, RunDir

LIBRARY = Path(__file__).parents[1] / "platform_sdk"
NAMES = {
    PurePosixPath(entry.name).name
    for layout in (RunDir, PhaseDir)
    for entry in vars(layout).values()
    if isinstance(entry, Entry) and PurePosixPath(entry.name).suffix and not entry.name.startswith(".")
} - {"digests.json", "run.jsonl"}
"""Names of a run's files that no other file of hopforge has; caches and checkpoints have a digests.json too."""


def test_layout_gives_paths_of_a_run_and_names_of_its_files() -> None:
    files = RunDir(Path("runs/a"))
    assert files.recipe == Path("runs/a/recipe.json")
    assert files.questions("eval") == Path("runs/a/corpus/questions.eval.jsonl")
    assert files.log("train-01") == Path("runs/a/logs/train-01.log")
    assert files.phase("iteration-01").rollouts == Path("runs/a/iteration-01/rollouts.jsonl")
    assert (RunDir.recipe, PhaseDir.rollouts) == ("recipe.json", "rollouts.jsonl")


def test_names_of_a_runs_files_are_spelled_in_one_module() -> None:
    """``training`` writes its own files: its records and digests stay as they are."""
    spelled = {
        f"{path.relative_to(LIBRARY)}:{node.lineno}: {node.value}"
        for path in LIBRARY.rglob("*.py")
        if path != LIBRARY / "run_dir.py" and "training" not in path.relative_to(LIBRARY).parts
        for node in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if PurePosixPath(node.value).name in NAMES
    }
    assert spelled == set()


def _texts(tree: ast.Module) -> list[ast.Constant]:
    """Return the texts of a module, except for docstrings and other texts that stand alone."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]
