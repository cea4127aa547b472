"""Plans walked on this machine by a warm worker, disturbed and undisturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.execution.claim import claim
from platform_sdk.execution.local import Listener, StepFailed, walk, warm_worker
from platform_sdk.execution.lock import is_locked, locked, terminable
from platform_sdk.execution.plan import inputs_of
from platform_sdk.execution.worker import Request, Result
from platform_sdk.processes.guard import guarded
from tests.kubeflow.toy import write_toy
from tests.process_watch import alive, wait_for
from tests.refusals import refused

HOME = Path(__file__).parents[2]
RUN = """
import signal, sys
from pathlib import Path
# A process in the background of a script inherits a SIGINT that is ignored. A preexec_fn would set it in a fork of the
# tests' process, which gRPC's threads can abort.
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.execution.test_local import run
run(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
"""


class EventRecorder(Listener):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.lines: list[str] = []

    def started(self, task: str, ago: float = 0.0) -> None:
        self.events.append(f"+{task}")

    def said(self, task: str, line: str) -> None:
        assert line.strip()
        self.lines.append(line)

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
    place = run_dir.resolve()
    with terminable(), locked(run_dir) as lock, warm_worker(run_dir, lock) as worker:
        walk(
            loaded.plan,
            lambda task, outputs: inputs_of(task, loaded.parameters, place, outputs),
            run_dir,
            worker,
            heard,
            {},
        )
    return heard


def begin(recipe: Path, run_dir: Path, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(recipe), str(run_dir), *overrides], cwd=HOME, text=True, stderr=subprocess.PIPE
    )


def test_local_run_executes_its_tasks_in_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    heard = run(write_toy(tmp_path), tmp_path / "run", "overlap=true")
    assert heard.events == ["+make", "-make", "+use-01", "-use-01", "+use-02", "-use-02", "+last", "-last"]
    assert heard.lines == ["making data"]
    used = (tmp_path / "run" / "use.txt").read_text().splitlines()
    assert used == [
        "iteration-01 1 0.5 d1 d1",
        "iteration-02 2 0.5 d1/1 d1/1",
        "last 9 1.0 d1/1/2 ",
    ]
    assert "'batch_size': 3," in (tmp_path / "run" / "make.txt").read_text()
    assert capfd.readouterr().out == ""
    assert "making data" in (tmp_path / "run" / "logs" / "make.log").read_text()


def test_second_run_on_a_directory_repeats_every_task(tmp_path: Path) -> None:
    recipe = write_toy(tmp_path)
    for _ in range(2):
        run(recipe, tmp_path / "run", "iterations=0")
    assert len((tmp_path / "run" / "use.txt").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("user-error", "step make failed: the data are wrong;\nmend them\n(full log: "),
        ("bug", "step make failed: exit status 1; its last lines:\n"),
        ("bug", "ZeroDivisionError: a bug"),
        ("killed", "step make failed: its process was ended by SIGKILL (out of memory?)"),
    ],
)
def test_failed_task_reports_its_cause_and_stops_the_walk(tmp_path: Path, mode: str, message: str) -> None:
    with pytest.raises(StepFailed) as caught:
        run(write_toy(tmp_path), tmp_path / "run", f"mode={mode}")
    assert message in str(caught.value)
    assert not (tmp_path / "run" / "use.txt").exists()
    assert not list((tmp_path / "run" / "logs").glob("*.tmp"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_stopped_run_leaves_no_process_and_resumes(tmp_path: Path, number: signal.Signals) -> None:
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    process = begin(recipe, run_dir, "mode=slow")
    wait_for(lambda: (run_dir / "pid").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    wait_for(lambda: (run_dir / "pid").read_text() != "")
    task = int((run_dir / "pid").read_text())
    assert alive(task)
    log = run_dir / "logs" / "make.log"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    wait_for(lambda: not alive(task))
    wait_for(lambda: not is_locked(run_dir))
    assert "making data" in log.read_text()
    assert run(recipe, run_dir, "iterations=0").events == ["+make", "-make", "+last", "-last"]


def test_killed_worker_ends_its_task_and_the_run(tmp_path: Path) -> None:
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    process = begin(recipe, run_dir, "mode=slow")
    wait_for(lambda: (run_dir / "pid").exists() and (run_dir / "pid").read_text() != "")
    task = int((run_dir / "pid").read_text())
    worker = int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert "the run's worker process ended unexpectedly" in errors
    wait_for(lambda: not alive(task))


def test_worker_that_died_between_two_tasks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = [sys.executable, "-c", "import os, sys; sys.exit(f'Killed {os.getpid()}')"]
    monkeypatch.setattr("platform_sdk.execution.local.guarded", lambda command: dead)
    request = Request(component="corpus", inputs={}, log=tmp_path / "corpus.log")
    request.log.touch()
    with (
        pytest.raises(UserError, match=r"worker process ended unexpectedly .*\nKilled"),
        locked(tmp_path) as lock,
        warm_worker(tmp_path, lock) as worker,
    ):
        log = tmp_path / "logs/worker.txt"
        wait_for(lambda: log.read_text().endswith("\n"))
        wait_for(lambda: not alive(int(log.read_text().split()[1])))
        worker.run(request, print)


def test_two_runs_do_not_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_sdk.execution.lock.LOCK_SECONDS", 0.3)
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    process = begin(recipe, run_dir, "mode=slow")
    try:
        wait_for((run_dir / "pid").exists)
        with refused("run.in-use"):
            run(recipe, run_dir)
    finally:
        process.kill()
        process.communicate()


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


def test_claim_of_moved_files_ignores_the_folders_of_data_and_runs_alone(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    claim(run_dir, {"parameters": {"data_dir": "/a", "model": "run:/a/sft-1", "rate": 0.1}})
    moved = {"parameters": {"data_dir": "/b", "model": "run:/b/sft-1", "rate": 0.1}}
    with pytest.raises(UserError, match="belongs to a run with other parameters"):
        claim(run_dir, moved)
    claim(run_dir, moved, moved=True)
    for other in ({"model": "run:/b/sft-2"}, {"model": "/b/sft-1"}, {"rate": 0.2}):
        with pytest.raises(UserError, match=f"parameters.{next(iter(other))}"):
            claim(run_dir, {"parameters": moved["parameters"] | other}, moved=True)


def test_run_below_a_path_with_spaces_and_umlauts_succeeds(tmp_path: Path) -> None:
    place = tmp_path / "lib python3.11 Übung"
    place.mkdir()
    run(write_toy(place), place / "run", "iterations=0", 'spec.lora={"targets": ["python3"]}')
    assert (place / "run" / "use.txt").exists()
    assert "['python3']" in (place / "run" / "make.txt").read_text()


def test_task_ends_before_the_processes_that_it_forked(tmp_path: Path) -> None:
    """A reward function's module may keep a pool of processes."""
    inputs = {"run_dir": str(tmp_path), "seed": 1, "rate": 0.5, "mode": "leaves-a-process", "spec": {}}
    request = Request(component="tests.kubeflow.toysteps.make", inputs=inputs, log=tmp_path / "make.log")
    done = subprocess.run(
        guarded([sys.executable, "-m", "platform_sdk.execution.worker"]), input=request.model_dump_json() + "\n",
        cwd=HOME, text=True, capture_output=True, timeout=20,
    )  # fmt: skip
    assert Result.model_validate_json(done.stdout).outputs == {"digest": "d1", "level": 0.5}


def test_worker_forks_before_any_thread_has_started() -> None:
    """Forking a process with threads may copy a lock that a thread holds; Arrow's allocator thread holds none.

    OpenBLAS ends its own threads before a fork, so it has none here.
    """
    code = (
        "import importlib\nfrom pathlib import Path\nfrom platform_sdk.execution.worker import COMMON\n"
        "for name in COMMON: importlib.import_module(name)\n"
        "names = [(task / 'comm').read_text().strip() for task in Path('/proc/self/task').iterdir()]\n"
        "print([name for name in names if not name.startswith('jemalloc')])\n"
    )
    own = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=HOME, env=own, capture_output=True, text=True, check=True)
    assert len(done.stdout.split(",")) == 1, done.stdout
