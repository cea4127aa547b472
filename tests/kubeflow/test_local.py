"""Runs of the toy pipeline through kfp.local, each step in a process of its own, disturbed and undisturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.task import RUN_DIR
from platform_sdk.kubeflow.claim import claim
from platform_sdk.kubeflow.compile import compile_recipe
from platform_sdk.kubeflow.local import StepFailed, cause, locked, run_local, terminable, with_interpreter
from tests.kubeflow.toy import write_toy
from tests.process_watch import alive, wait_for

HOME = Path(__file__).parents[2]
RUN = """
import sys
from pathlib import Path
from tests.kubeflow.test_local import EventRecorder, run
run(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
"""


class EventRecorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, task: str) -> None:
        self.events.append(f"+{task}")

    def said(self, task: str, line: str) -> None:
        assert line.strip()

    def stopping(self, task: str) -> None:
        self.events.append(f"?{task}")

    def finished(self, task: str, seconds: float) -> None:
        assert seconds > 0
        self.events.append(f"-{task}")

    def failed(self, task: str, seconds: float) -> None:
        self.events.append(f"!{task}")


def run(recipe: Path, run_dir: Path, *overrides: str) -> EventRecorder:
    loaded = load_recipe(recipe, overrides)
    heard = EventRecorder()
    order = [task.id for task in loaded.plan]
    with terminable(), locked(run_dir) as lock:
        run_local(compile_recipe(loaded), {RUN_DIR: str(run_dir.resolve())}, order, run_dir, lock, heard)
    return heard


def begin(recipe: Path, run_dir: Path, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(recipe), str(run_dir), *overrides],
        cwd=HOME,
        text=True,
        stderr=subprocess.PIPE,
        # What runs in the background of a script inherits a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_local_run_executes_its_steps_in_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    heard = run(write_toy(tmp_path), tmp_path / "run", "overlap=true")
    assert heard.events == ["+make", "-make", "+use-01", "-use-01", "+use-02", "-use-02", "+last", "-last"]
    used = (tmp_path / "run" / "use.txt").read_text().splitlines()
    assert used == [
        "iteration-01 1 0.5 d1 d1",
        "iteration-02 2 0.5 d1/1 d1/1",
        "last 9 1.0 d1/1/2 ",
    ]
    assert "'batch_size': 3.0" in (tmp_path / "run" / "make.txt").read_text()  # component.received mends this
    assert capfd.readouterr().out == ""  # kfp.local's own talk is not shown
    assert "KFP Executor" in (tmp_path / "run" / "logs" / "make.log").read_text()


def test_second_run_on_a_directory_repeats_every_step(tmp_path: Path) -> None:
    """A second run on the directory runs every step again; only the newest of KFP's folders stays."""
    recipe = write_toy(tmp_path)
    for _ in range(2):
        run(recipe, tmp_path / "run", "iterations=0")
    assert len((tmp_path / "run" / "use.txt").read_text().splitlines()) == 2
    assert len(list((tmp_path / "run" / "kfp").glob("toy-*"))) == 1


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("user-error", "step make failed: the data are wrong;\nmend them\n(its whole log: "),
        ("bug", "ZeroDivisionError: a bug"),
    ],
)
def test_a_failed_step(tmp_path: Path, mode: str, says: str) -> None:
    with pytest.raises(StepFailed) as caught:
        run(write_toy(tmp_path), tmp_path / "run", f"mode={mode}")
    assert says in str(caught.value)
    assert not (tmp_path / "run" / "use.txt").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_stopped_run_leaves_no_process_and_resumes(tmp_path: Path, number: signal.Signals) -> None:
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    process = begin(recipe, run_dir, "mode=slow")
    wait_for(lambda: (run_dir / "pid").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    step = int((run_dir / "pid").read_text() or "0")
    assert alive(step)
    log = run_dir / "logs" / "make.log"
    wait_for(lambda: "KFP Executor" in log.read_text())  # what a step said outlives the run
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    wait_for(lambda: not alive(step))
    assert "KFP Executor" in log.read_text()
    assert run(recipe, run_dir, "iterations=0").events == ["+make", "-make", "+last", "-last"]


def test_two_runs_do_not_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_sdk.kubeflow.local.LOCK_SECONDS", 0.3)
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    process = begin(recipe, run_dir, "mode=slow")
    try:
        wait_for((run_dir / "pid").exists)
        with pytest.raises(UserError, match="another run is using this directory"):
            run(recipe, run_dir)
    finally:
        process.kill()
        process.communicate()


def test_cause_of_a_failed_step_comes_from_its_log() -> None:
    assert cause(["a", "platform_sdk.config.errors.UserError: b", "c"], 1) == "b\nc"
    assert cause(["RecordError: f:3: no"], 1) == "f:3: no"
    assert cause(["x", "ValueError: y"], 1) == "exit status 1; its last lines:\n  x\n  ValueError: y"
    assert cause([], 137) == "exit status 137, and it wrote nothing"


def test_run_directory_is_claimed_by_one_recipe(tmp_path: Path) -> None:
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    claim(run_dir, load_recipe(recipe).resolved())
    before = (run_dir / "recipe.json").read_bytes()
    claim(run_dir, load_recipe(recipe).resolved())
    with pytest.raises(UserError) as caught:
        claim(run_dir, load_recipe(recipe, ["seed=2", "spec.lora={rank: 4}"]).resolved())
    assert "parameters.seed: 1 → 2" in str(caught.value)
    assert "parameters.spec.lora: null → " in str(caught.value)
    assert (run_dir / "recipe.json").read_bytes() == before
    assert os.listdir(run_dir) == ["recipe.json"]


def test_step_command_changes_only_its_interpreter(tmp_path: Path) -> None:
    """KFP's own replacement also changes arguments, e.g. a path below ``lib/python3.11``."""
    code = f"def make(): 'python3 -m kfp.dsl.executor_main {tmp_path}'"
    arguments = ["--executor_input", '{"model": "/lib/python3.11/model"}']
    program = '_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main "$@" # python3'
    assert with_interpreter(["sh", "-ec", program, code, *arguments], "/a b/python3") == [
        "sh", "-ec", "_KFP_RUNTIME=true '/a b/python3' -m kfp.dsl.executor_main \"$@\" # python3", code, *arguments
    ]  # fmt: skip
    with pytest.raises(ValueError, match="KFP's version may have changed"):
        with_interpreter(["sh", "-c", "python3 x.py"], "python")


def test_run_below_a_path_with_spaces_and_umlauts_succeeds(tmp_path: Path) -> None:
    place = tmp_path / "lib python3.11 Übung"
    place.mkdir()
    run(write_toy(place), place / "run", "iterations=0", 'spec.lora={"targets": ["python3"]}')
    assert (place / "run" / "use.txt").exists()
    assert "['python3']" in (place / "run" / "make.txt").read_text()
