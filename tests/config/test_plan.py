from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.plan import carried_from
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from platform_sdk.config.task import Constant, FromParameter, FromTask
from tests.kubeflow.toy import PIPELINE, write_toy


def plan_of(folder: Path, *overrides: str, pipeline: str = PIPELINE) -> dict[str, dict[str, object]]:
    recipe = load_recipe(write_toy(folder, pipeline=pipeline), overrides)
    return {task.id: dict(task.inputs) for task in recipe.plan}


def problems_of(folder: Path, old: str, new: str) -> list[str]:
    assert old in PIPELINE
    with pytest.raises(ConfigError) as caught:
        plan_of(folder, pipeline=PIPELINE.replace(old, new))
    return [f"{Path(p.place).name} {p.field} {p.message}" for p in caught.value.problems]


def test_unrolled(tmp_path: Path) -> None:
    tasks = plan_of(tmp_path)
    assert list(tasks) == ["make", "use-01", "use-02", "last"]
    assert tasks["make"] == {name: FromParameter(name) for name in ("run_dir", "seed", "rate", "mode", "spec")}
    assert tasks["use-02"] == {
        "run_dir": FromParameter("run_dir"),
        "phase": Constant("iteration-02"),
        "iteration": Constant(2),
        "level": FromTask("make", "level"),
        "digest": FromTask("use-01", "Output"),
        "old": FromTask("use-01", "Output"),
    }
    assert tasks["last"]["digest"] == FromTask("use-02", "Output")


def test_no_iteration_hands_the_initial_value_on(tmp_path: Path) -> None:
    assert plan_of(tmp_path, "iterations=0")["last"]["digest"] == FromTask("make", "digest")


def test_lag(tmp_path: Path) -> None:
    """Iteration 1 has the start, 2 waits for 1 (overlap begins at 2), then each takes the one before the last."""
    tasks = plan_of(tmp_path, "iterations=5", "overlap=true")
    old = [tasks[f"use-0{t}"]["old"] for t in range(1, 6)]
    assert old == [FromTask("make", "digest"), *(FromTask(f"use-0{t}", "Output") for t in (1, 1, 2, 3))]
    newest = [tasks[f"use-0{t}"]["digest"] for t in range(1, 6)]
    assert newest == [FromTask("make", "digest"), *(FromTask(f"use-0{t}", "Output") for t in (1, 2, 3, 4))]


def test_carried_from() -> None:
    assert [carried_from(t, 0) for t in range(1, 6)] == [0, 1, 2, 3, 4]
    assert [carried_from(t, 1) for t in range(1, 6)] == [0, 1, 1, 2, 3]


def test_a_step_may_be_left_out(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("id: last\n", "id: last\n    when: ${parameters.overlap}\n")
    assert list(plan_of(tmp_path, pipeline=pipeline)) == ["make", "use-01", "use-02"]
    assert list(plan_of(tmp_path, "overlap=true", pipeline=pipeline)) == ["make", "use-01", "use-02", "last"]


def test_many_iterations_keep_their_order(tmp_path: Path) -> None:
    assert list(plan_of(tmp_path, "iterations=101"))[-2:] == ["use-101", "last"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seed: ${parameters.seed}", "seed: ${parameters.sede}", "pipeline.yaml:21 steps[0].inputs.seed there is no parameter 'sede'; did you mean seed?"),
        ("level: ${steps.make.outputs.level}", "level: ${steps.make.outputs.leevl}", "no output 'leevl'; did you mean level?"),
        ("level: ${steps.make.outputs.level}", "level: ${steps.mke.outputs.level}", "no step 'mke' to refer to here; did you mean make?"),
        ("level: 1,", "level: '${steps.use.outputs.Output}',", "it is inside a repeat: carry its output"),
        ("level: 1,", "level: one,", "must be of type number, but is 'one'"),
        ("level: 1,", "", "pipeline.yaml:45 steps[2].inputs component use needs the input 'level' (number)"),
        ("level: 1,", "level: 1, levle: 2,", "component use has no input 'levle'; did you mean level?"),
        ("rate: ${parameters.rate}\n      mode", "rate: ${parameters.mode}\n      mode", "must be of type number, but parameter mode is of type string"),
        ("digest: ${carry.digest}", "digest: ${steps.make.outputs.data}", "must be of type string, but output data of make is of type Dataset"),
        ("digest: ${carry.digest}", "digest: ${carry.digset}", "nothing is carried as 'digset' here; did you mean digest?"),
        ("component: use\n          inputs", "component: uze\n          inputs", "no such component; did you mean use?"),
        ("spec: ${parameters.spec}", "spec: ${parameters.spec.lora}", "take spec out of the form"),
        ("count: ${parameters.iterations}", "count: ${parameters.seed}", "shapes the pipeline"),
        ("count: ${parameters.iterations}", "count: -1", "must be 0 or more"),
        ("lag: ${parameters.overlap}", "lag: 2", "must be 0 or 1"),
        ("component: use\n          inputs", "component: use\n          when: false\n          inputs", "needs the step use-02, which its `when` leaves out"),
        ("component: use\n          inputs", "component: use\n          when: ${parameters.iterations}\n          inputs", "when must be of type boolean, but is 2"),
        ("iteration: ${iteration}", "iteration: ${step}", "${step} is not the number of an iteration here; here it is ${iteration}"),
        ("phase: last", "phase: '${iteration}'", "it is for steps of a repeat"),
        ("phase: last", "phase: 'a${parameters.seed}'", "parameters outside the form can be in a text"),
        ("phase: last", "phase: '${a.b}'", "${a.b} is not a reference; references are"),
        ("phase: last", "phase: '${a'", "no closing brace"),
        ("id: last", "id: use", "there is a step 'use' already (pipeline.yaml"),
        ("  - id: last", "  - ID: last", "steps[2].ID is not known here"),
        ("type: integer, description: How many", "type: int, description: How many", "parameters.iterations.type"),
        ("minimum: 0, maximum: 1", "minimum: 0, default: 2, maximum: 1", "parameters.rate.default must be at most 1, but is 2"),
        ("training:TrainSpec", "training:NoSpec", "parameters.spec.schema schema platform_sdk.config.training:NoSpec cannot be found"),
    ],
)  # fmt: skip
def test_wiring_is_checked(tmp_path: Path, old: str, new: str, says: str) -> None:
    found = problems_of(tmp_path, old, new)
    text = says.replace("(pipeline.yaml", f"({tmp_path}/pipelines/toy/pipeline.yaml")
    assert any(text in problem for problem in found), found


def test_cycle(tmp_path: Path) -> None:
    inputs = "{{run_dir: a, phase: a, iteration: 1, level: 1, digest: '${{steps.{1}.outputs.Output}}'}}"
    step = "  - {{id: {0}, component: use, inputs: " + inputs + "}}\n"
    pipeline = PIPELINE + step.format("one", "two") + step.format("two", "one") + step.format("behind", "two")
    with pytest.raises(ConfigError) as caught:
        plan_of(tmp_path, pipeline=pipeline)
    assert [problem.message for problem in caught.value.problems] == ["the steps wait for each other: one, two"]


def test_all_problems_at_once(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("seed: ${parameters.seed}", "seed: ${parameters.sede}").replace("level: 1,", "")
    values = "pipeline: toy\nname: small\nparameters:\n  rate: 2\n  mood: a\n"
    recipe = write_toy(tmp_path, pipeline=pipeline, recipe=values)
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe, ["spec.batch_sise=3"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 problems"
    home = recipe.parent
    for part in (
        f"{home}/small.yaml:4: parameters.rate: must be at most 1, but is 2",
        f"{home}/small.yaml:5: parameters.mood: there is no such parameter; did you mean mode?",
        "--set spec.batch_sise=3: spec.batch_sise: there is no such field; did you mean batch_size?",
        f"{home}/pipeline.yaml:21: steps[0].inputs.seed: there is no parameter 'sede'",
        "component use needs the input 'level'",
    ):
        assert any(part in line for line in lines), (part, lines)
