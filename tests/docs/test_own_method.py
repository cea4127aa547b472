"""Examples of docs/own-method.md, written to files, validated, run and asked."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.sampling.models import weights_digest
from tests.docs.pages import blocks
from tests.e2e.runs import rollouts, run_here

PAGE = "own-method.md"


def test_the_page_s_method_is_validated_run_and_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search, method = blocks(PAGE, "python")
    pipeline, recipe = blocks(PAGE, "yaml")
    (tmp_path / "searcher").mkdir()
    for name, content in {
        "searcher/search.py": search, "searcher/method.py": method, "pipeline.yaml": pipeline, "world.yaml": recipe,
    }.items():  # fmt: skip
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    validate, run, ask, evaluate = (shlex.split(line)[1:] for line in blocks(PAGE, "sh")[0].splitlines())

    valid = CliRunner().invoke(app, validate)
    assert (valid.exit_code, valid.stdout) == (0, "world.yaml: ok (one-search, 7 tasks)\n"), valid.exception

    searched = CliRunner().invoke(app, ["search", "--recipe", run[1], "Ann", "--workdir", "looked-up", "--json"])
    assert searched.exit_code == 0, searched.exception

    run_dir = run_here(str(tmp_path / run[1]), tmp_path / "runs" / ask[1], {})
    answers = rollouts(run_dir, "eval-final")
    assert len(answers) == 4
    assert all(rollout.main.turns[1].queries for rollout in answers)

    without = subprocess.run(
        [sys.executable, "-P", "-m", "platform_sdk.cli", *ask], capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert (without.returncode, without.stderr.count("\n")) == (2, 1), without.stderr
    assert without.stderr.startswith("error: searcher.method:METHOD"), without.stderr

    done = CliRunner().invoke(app, [*ask, "--json"])
    assert done.exit_code == 0, done.exception
    answer = json.loads(done.stdout)
    assert len(answer["evidence"]) == 2
    assert [turn["speaker"] for turn in answer["turns"]] == ["environment", "agent", "environment", "agent"]

    planned = CliRunner().invoke(app, [*evaluate, "--dry-run", "--json"])
    assert planned.exit_code == 0, planned.exception
    steps = {step["step"] for step in json.loads(planned.stdout)["steps"]}
    assert {"eval-start", "report"} <= steps

    written = CliRunner().invoke(app, ["export", ask[1], "-o", "model"])
    assert written.exit_code == 0, written.exception
    assert weights_digest(tmp_path / "model") == answers[0].weights
    assert "| | eval-start | eval-final |" in (tmp_path / "model/README.md").read_text().splitlines()
