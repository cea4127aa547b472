"""Model that a run has trained, as a model that others begin with (``run:DIRECTORY``)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.data.terms import Terms
from platform_sdk.files import write_text
from platform_sdk.sampling.models import resolve
from platform_sdk.steps import policy
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.journal import Journal, run_file, step_file
from tests.refusals import refused


def make_run(folder: Path, *trained: str, ended: bool = True, model: str | None = "hopforge:world-base") -> Path:
    run_dir = folder / "run"
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps({"parameters": {"model": model} if model else {}}))
    journal = Journal(run_file(run_dir))
    journal.append("started", manifest_head=manifest.record(run_dir, "run started", {}).hash)
    for name in trained:
        write_text(run_dir / name / "model/config.json", "{}")
        own = Journal(step_file(run_dir, f"train-{name}"))
        own.append("model", path=str(run_dir / name / "model"), digest="d", register=True, tags={})
        files = seals.seal(run_dir, [run_dir / name / "model"])
        manifest.record(run_dir, f"step train-{name}", {"weights": "d"}, files)
    if ended:
        journal.append(
            "ended", status="FINISHED", manifest_head=manifest.record(run_dir, "run ended: FINISHED", {}).hash
        )
    return run_dir


def test_a_runs_model_is_the_one_that_it_trained_last(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, "warmup", "iteration-01")
    times = {"warmup": 1, "iteration-01": 2}
    for name, time in times.items():
        path = step_file(run_dir, f"train-{name}")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"time": time}) + "\n")
    assert resolve(f"run:{run_dir}") == run_dir / "iteration-01/model"
    path = step_file(run_dir, "train-iteration-01")
    path.write_text(path.read_text().replace("iteration-01/model", "tracking/steps"))
    with pytest.raises(UserError, match="which is not the model of step train-iteration-01"):
        resolve(f"run:{run_dir}")
    shutil.rmtree(run_dir / "iteration-01/model")
    with pytest.raises(UserError, match=r"iteration-01/model/config\.json: is missing"):
        resolve(f"run:{run_dir}")


def test_a_clock_that_was_set_back_does_not_change_a_runs_model(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, "warmup", "iteration-01")
    for name, time in {"warmup": 3_600_000, "iteration-01": 1}.items():
        path = step_file(run_dir, f"train-{name}")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"time": time}) + "\n")
    assert resolve(f"run:{run_dir}") == run_dir / "iteration-01/model"


def test_a_run_that_trained_nothing_has_the_model_it_began_with(tmp_path: Path) -> None:
    assert resolve(f"run:{make_run(tmp_path)}") == resolve("hopforge:world-base")


@pytest.mark.parametrize("place", ["{home}", "~"])
def test_model_of_a_run_has_the_licence_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    first = make_run(tmp_path)
    terms = Terms(thing="model own/base", revision="1", licence="MIT", source="its card")
    manifest.record(first, "step policy", {}, licences=(terms,))
    run_dir = tmp_path / "second"
    run_dir.mkdir()
    policy.run(policy.Inputs(run_dir=run_dir, name=f"run:{place.format(home=tmp_path)}/run"))
    assert [one for entry in manifest.read(run_dir) for one in entry.licences] == [terms]


def test_a_run_without_any_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this run trained no model, and its recipe names none"):
        resolve(f"run:{make_run(tmp_path, model=None)}")


def test_a_run_that_has_not_ended_has_no_model_yet(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has not finished"):
        resolve(f"run:{make_run(tmp_path, 'warmup', ended=False)}")
    with refused("run.not-a-run"):
        resolve(f"run:{tmp_path}")
