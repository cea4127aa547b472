"""Pipelines that extend another one: what is merged, what is replaced, and where problems are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from platform_sdk.config.errors import UserError
from platform_sdk.config.pipeline import load_pipeline
from tests.config.schemas import PIPELINES

PROGRAPH = PIPELINES / "prograph/pipeline.yaml"


def pipeline(folder: Path, name: str = "mine", **fields: Any) -> Path:
    path = folder / name / "pipeline.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"extends": "prograph", "name": name, **fields}, sort_keys=False))
    return path


def test_extension_that_changes_nothing_is_the_pipeline_it_extends(tmp_path: Path) -> None:
    own, base = load_pipeline(pipeline(tmp_path)).document, load_pipeline(PROGRAPH).document
    assert own == base.model_copy(update={"name": "mine"})


def test_mappings_are_merged_by_key_and_null_removes_one(tmp_path: Path) -> None:
    base = load_pipeline(PROGRAPH).document
    seed = {"type": "integer", "description": "Mine.", "default": 3}
    limit = {"type": "integer", "description": "Another.", "default": 1}
    own = load_pipeline(
        pipeline(
            tmp_path, parameters={"seed": seed, "limit": limit},
            form={"method": {"maximum_turns": None, "extra": "limit"}, "run": None},
        )
    ).document  # fmt: skip
    assert [*own.parameters] == [*base.parameters, "limit"]
    assert own.parameters["seed"].default == 3
    assert own.parameters["agent"] == base.parameters["agent"]
    assert own.form["method"] == {
        name: setting for name, setting in base.form["method"].items() if name != "maximum_turns"
    } | {"extra": "limit"}
    assert "run" not in own.form
    assert own.steps == base.steps


def test_step_with_an_id_alone_is_taken_from_the_base(tmp_path: Path) -> None:
    base = load_pipeline(PROGRAPH).document
    report = {"id": "report", "component": "report", "inputs": {"start_digest": "a", "final_digest": "b"}}
    own = load_pipeline(pipeline(tmp_path, steps=[{"id": "policy"}, {"id": "corpus"}, report])).document
    assert [step for step, _ in own.placed_steps()][:2] == [base.steps[1], base.steps[0]]
    assert own.placed_steps()[2][0].inputs == {"start_digest": "a", "final_digest": "b"}


def test_extension_of_an_extension_reports_each_problem_with_its_file_and_line(tmp_path: Path) -> None:
    first = pipeline(tmp_path, "first", parameters={"limit": {"type": "integer", "description": "x", "default": "no"}})
    second = pipeline(tmp_path, "second", extends="../first", parameters={"more": {"type": "oops", "description": "y"}})
    with pytest.raises(UserError) as caught:
        load_pipeline(second)
    assert f"{second}:5: parameters.more.type" in str(caught.value)
    second.write_text("extends: ../first\nname: second\n")
    with pytest.raises(UserError) as caught:
        load_pipeline(second)
    assert f"{first.parent.parent}/second/../first/pipeline.yaml:7: parameters.limit.default" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: nothing\nname: a\n", "pipeline.yaml:1: extends: there is no pipeline 'nothing'; "),
        ("name: a\nextends: 3\n", "pipeline.yaml:2: extends: must be the name of a pipeline, or its path"),
        ("extends: ./pipeline.yaml\nname: a\n", "extends this pipeline itself"),
        ("extends: prograph\nname: a\nsteps:\n- id: corpus\n- id: lost\n", "pipeline.yaml:5: steps[1]: "),
        ("extends: prograph\nname: a\ninputs:\n  lost: null\n", "pipeline.yaml:4: inputs.lost: null removes it from"),
        ("extends: prograph\nname: a\nsurplus: 1\n", "pipeline.yaml:3: surplus: "),
        ("extends: prograph\nname: a\nparameters: 3\n", "pipeline.yaml:3: parameters: "),
        ("extends: prograph\nname: a\nsteps:\n- id: {corpus: 1}\n", "pipeline.yaml:4: steps[0].id: "),
        ("extends: " + "x/" * 3000 + "\nname: a\n", "pipeline.yaml:1: extends: "),
    ],
)
def test_wrong_extension_is_one_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own/pipeline.yaml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_pipeline(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("steps", ["null", "3", "[{id: [corpus]}]", "{id: corpus}"])
def test_base_with_malformed_steps_is_one_error(tmp_path: Path, steps: str) -> None:
    base = pipeline(tmp_path, "base")
    base.write_text(f"name: base\nsteps: {steps}\n")
    with pytest.raises(UserError, match=r"pipeline\.yaml:\d+: "):
        load_pipeline(pipeline(tmp_path, extends="../base", steps=[{"id": "corpus"}]))


def test_two_pipelines_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    first = pipeline(tmp_path, "first", extends="../second")
    pipeline(tmp_path, "second", extends="../first")
    with pytest.raises(UserError, match="extends this pipeline itself"):
        load_pipeline(first)
