"""``hopforge verify`` agrees with a verifier that is not ours, on random alterations of finished runs."""

from __future__ import annotations

import ast
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_sdk.tracking import manifest
from platform_sdk.tracking.log.chain import FILE_NAME, Log, Statement
from platform_sdk.tracking.manifest import Entry
from platform_sdk.tracking.verify_files import FileCheck
from platform_sdk.tracking.verify_log import LogCheck
from tests.chaos.reduced import REDUCED
from tests.e2e.runs import run_here
from tests.tracking import independent_log_verifier, independent_verifier
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


def agree_on_an_alteration_of_the_log(run_dir: Path, entries: list[Entry], data: st.DataObject) -> str:
    """Alter the log beside a run, compare both verifiers, and restore the log; return their common result."""
    path = run_dir.parent / FILE_NAME
    before = path.read_bytes()
    try:
        path.write_bytes(altered(before, data, lines=True))
        heads = [entry.head for entry in entries]
        expected = independent_log_verifier.verify_run(path.read_bytes(), run_dir.name, entries[0].hash, heads)
        assert result_of_log(run_dir) == expected
        return expected
    finally:
        path.write_bytes(before)


def result_of_log(run_dir: Path) -> str:
    check = LogCheck(run_dir.parent)
    if check.verification() is not None:
        return "log altered"
    findings, _ = check.check_run(FileCheck(run_dir), [])
    kinds = {"altered": "run rewritten", "not checkable": "not checkable"}
    return kinds[findings[0].kind] if findings else "whole"


@pytest.mark.parametrize("verifier", [independent_verifier, independent_log_verifier])
def test_the_independent_verifiers_import_hashlib_and_json_only_and_are_short(verifier: ModuleType) -> None:
    path = Path(str(verifier.__file__))
    imported = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imported}
    assert names == {"__future__", "hashlib", "json"}
    assert len(path.read_text().splitlines()) <= 120


def test_both_verifiers_find_an_unaltered_run_whole(small: Path) -> None:
    assert independent_verifier.verify(contents(small)) == ours(small) == set()


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("note.txt", True), ("eval-final/note.txt", True), ("tracking/note.json", True), (".note", False),
        ("begun.json", True), ("eval-final/begun.json", False), ("drafts.jsonl", True), ("a/b/drafts.jsonl", False),
        ("server.log", True), ("eval-final/server.log", False), ("eval-final/evaluate-server.json", False),
        ("processes/x", True), ("warmup/processes/0/stderr.log", False),
        ("checkpoint-1/x", True), ("warmup/checkpoint-1/x", False), ("extractions/x", True), ("a/extractions/x", False),
        ("outputs/x.json", False), ("outputs/x.txt", True), ("logs/x", False), ("index/new/x", False),
        ("outputs/a/x.json", False), ("graph/extract-1.json", False), ("graph/extract-a/x.json", False),
        ("graph/extract-1.bin", True), ("graph/x.json", True),
        ("tracking/steps/corpus.bak", True), ("tracking/steps/a/corpus.jsonl", True), ("tracking/lock", False),
    ],
)  # fmt: skip
def test_both_verifiers_report_added_files_where_no_step_works(small: Path, name: str, reported: bool) -> None:
    path = small / name
    folders = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    path.write_text("added")
    try:
        assert ours(small) == independent_verifier.verify(contents(small)) == ({name} if reported else set())
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
        for folder in folders:
            folder.rmdir()


@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
@given(data=st.data())
def test_both_verifiers_agree_on_alterations_of_a_small_run(small: Path, data: st.DataObject) -> None:
    agree_on_an_alteration(small, data)


def test_both_verifiers_of_the_log_agree_on_500_alterations(small: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / small.name
    shutil.copytree(small, run_dir)
    entries = manifest.read(run_dir)
    end = Statement(
        event="run ended", run=run_dir.name, start=entries[0].hash, head=entries[-1].head, status="FINISHED"
    )
    other = {"start": "a" * 64, "head": f"3:{'b' * 64}"}
    log = Log(tmp_path / FILE_NAME)
    for statement in (
        Statement(event="run ended", run=run_dir.name, status="KILLED", **other),  # a run that was removed
        Statement(event="run removed", run=run_dir.name, who="Ada", note="Wrong dataset: größer.", **other),
        end.model_copy(update={"head": entries[2].head, "status": "KILLED"}),
        end,
        Statement(event="model approved", run="another", model="m", version="1", who="Ada", note="Read.", **other),
    ):
        log.append(statement)
    assert result_of_log(run_dir) == "whole"
    results = Counter[str]()

    @settings(max_examples=500, deadline=None, suppress_health_check=QUIET)
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        results[agree_on_an_alteration_of_the_log(run_dir, entries, data)] += 1

    agree()
    assert results.keys() >= {"log altered", "not checkable", "whole"}


def test_both_verifiers_find_a_run_rewritten_that_the_log_ended_otherwise(small: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / small.name
    shutil.copytree(small, run_dir)
    entries = manifest.read(run_dir)
    heads = [entry.head for entry in entries]
    for start in (entries[0].hash, "c" * 64):  # a rewritten run may have another first entry
        log = Log(tmp_path / FILE_NAME)
        log.append(Statement(event="run ended", run=run_dir.name, start=start, head=f"5:{'d' * 64}"))
        content = log.path.read_bytes()
        expected = independent_log_verifier.verify_run(content, run_dir.name, entries[0].hash, heads)
        assert result_of_log(run_dir) == expected == "run rewritten"
        log.path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mygo", "arena"])
def test_both_verifiers_agree_on_250_alterations_of_a_run(
    method: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reduced = REDUCED[method].shorter()
    run_dir = run_here(f"../{reduced.recipe}", tmp_path_factory.mktemp(method) / "run", reduced.overrides)
    assert independent_verifier.verify(contents(run_dir)) == ours(run_dir) == set()

    @settings(max_examples=250, deadline=None, suppress_health_check=QUIET)
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        agree_on_an_alteration(run_dir, data)

    agree()
