"""``hopforge verify`` agrees with a verifier that is not ours, on random alterations of finished runs."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_sdk.tracking.verify_files import FileCheck
from tests.chaos.reduced import REDUCED
from tests.e2e.runs import run_here
from tests.tracking import independent_verifier
from tests.tracking.small_run import write_small_run

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
LINES = (".jsonl",)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("small") / "run"
    write_small_run(run_dir)
    return run_dir


def contents(run_dir: Path) -> dict[str, bytes]:
    return {path.relative_to(run_dir).as_posix(): path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


def ours(run_dir: Path) -> set[str]:
    found = {finding.thing for finding in FileCheck(run_dir).findings if finding.kind != "not checkable"}
    return {name for name in found if not name.startswith("/")}


def altered(content: bytes, data: st.DataObject, *, lines: bool) -> bytes:
    """Change a byte, cut the content, or drop, duplicate or exchange lines."""
    kinds = ["byte", "cut", "append", *(("drop", "duplicate", "exchange") if lines else ())]
    kind = data.draw(st.sampled_from(kinds))
    if kind == "append" or not content:
        return content + data.draw(st.sampled_from([b"\n", b"{}\n", b" "]))
    if kind == "cut":
        return content[: data.draw(st.integers(0, len(content) - 1))]
    if kind == "byte":
        at = data.draw(st.integers(0, len(content) - 1))
        return content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    parts = content.splitlines(keepends=True)
    one, two = (data.draw(st.integers(0, len(parts) - 1)) for _ in range(2))
    if kind == "drop":
        del parts[one]
    elif kind == "duplicate":
        parts.insert(two, parts[one])
    else:
        parts[one], parts[two] = parts[two], parts[one]
    return b"".join(parts)


def agree_on_an_alteration(run_dir: Path, data: st.DataObject) -> None:
    """Alter one file of a run, compare both verifiers, and restore the file."""
    before = contents(run_dir)
    checked = sorted(name for name in before if name != "done" and not name.startswith(("logs/", "index/", ".")))
    name = data.draw(st.sampled_from(checked))
    changed = altered(before[name], data, lines=name.endswith(LINES))
    path = run_dir / name
    kept = path.with_name(f".{path.name}.kept")
    shutil.copyfile(path, kept)
    try:
        path.unlink()
        path.write_bytes(changed)
        expected = independent_verifier.verify(contents(run_dir))
        assert ours(run_dir) == expected
        sealed = name.endswith(("scores.json", "rollouts.jsonl", "report.html", "manifest.jsonl"))
        sealed |= name.startswith("tracking/") and name.endswith(".jsonl")
        if sealed and changed != before[name]:
            unnamed_head = name.startswith("tracking/") and expected == {"manifest.jsonl"}  # see docs/manifest.md
            assert name in expected or unnamed_head
    finally:
        kept.replace(path)


def test_the_independent_verifier_imports_hashlib_and_json_only_and_is_short() -> None:
    path = Path(independent_verifier.__file__)
    imported = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imported}
    assert names == {"__future__", "hashlib", "json"}
    assert len(path.read_text().splitlines()) <= 120


def test_both_verifiers_find_an_unaltered_run_whole(small: Path) -> None:
    assert independent_verifier.verify(contents(small)) == ours(small) == set()


@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_both_verifiers_agree_on_alterations_of_a_small_run(small: Path, data: st.DataObject) -> None:
    agree_on_an_alteration(small, data)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mygo", "arena"])
def test_both_verifiers_agree_on_500_alterations_of_a_run(
    method: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reduced = REDUCED[method].shorter()
    run_dir = run_here(f"../{reduced.recipe}", tmp_path_factory.mktemp(method) / "run", reduced.overrides)
    assert independent_verifier.verify(contents(run_dir)) == ours(run_dir) == set()

    @settings(max_examples=500, deadline=None, suppress_health_check=QUIET)
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        agree_on_an_alteration(run_dir, data)

    agree()
