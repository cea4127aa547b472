from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from platform_sdk.config.components import read_interface
from platform_sdk.config.plan import carried_from
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from platform_sdk.config.task import Constant, FromParameter, FromTask, Group
from tests.kubeflow.toy import PIPELINE, write_toy

HOME = Path(__file__).parents[2]
RECIPES = sorted(path for path in HOME.glob("pipelines/*/*.yaml") if path.name != "pipeline.yaml")


def plan_of(folder: Path, *overrides: str, pipeline: str = PIPELINE) -> dict[str, dict[str, object]]:
    recipe = load_recipe(write_toy(folder, pipeline=pipeline), overrides)
    return {task.id: dict(task.inputs) for task in recipe.plan}


def assert_problem(folder: Path, pipeline: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(folder, pipeline=pipeline)
    problems = [f"{Path(p.place).name} {p.field} {p.message}" for p in caught.value.problems]
    assert any(says in problem for problem in problems), problems


def test_plan_unrolls_iterations(tmp_path: Path) -> None:
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


def test_overlapped_iterations_use_the_output_before_the_last(tmp_path: Path) -> None:
    """Iteration 1 has the start, 2 waits for 1 (overlap begins at 2), then each takes the one before the last."""
    tasks = plan_of(tmp_path, "iterations=5", "overlap=true")
    old = [tasks[f"use-0{t}"]["old"] for t in range(1, 6)]
    assert old == [FromTask("make", "digest"), *(FromTask(f"use-0{t}", "Output") for t in (1, 1, 2, 3))]
    newest = [tasks[f"use-0{t}"]["digest"] for t in range(1, 6)]
    assert newest == [FromTask("make", "digest"), *(FromTask(f"use-0{t}", "Output") for t in (1, 2, 3, 4))]


def test_carried_value_comes_from_the_iteration_before_the_overlap() -> None:
    assert [carried_from(t, 0) for t in range(1, 6)] == [0, 1, 2, 3, 4]
    assert [carried_from(t, 1) for t in range(1, 6)] == [0, 1, 1, 2, 3]


def test_a_step_may_be_left_out(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("id: last\n", "id: last\n    when: ${parameters.overlap}\n")
    assert list(plan_of(tmp_path, pipeline=pipeline)) == ["make", "use-01", "use-02"]
    assert list(plan_of(tmp_path, "overlap=true", pipeline=pipeline)) == ["make", "use-01", "use-02", "last"]


SHARED = """\
inputs:
  run_dir: ${run.dir}
  level: ${steps.make.outputs.level}
  seed: ${parameters.seed}
steps:
"""


def shared(text: str = SHARED) -> str:
    """The toy with what its steps have in common declared once, except `level: 1` of the last."""
    pipeline = PIPELINE.replace("steps:\n  - id: make", f"{text}  - id: make", 1)
    for line in ("run_dir: ${run.dir}", "seed: ${parameters.seed}", "level: ${steps.make.outputs.level}"):
        head, steps = pipeline.split("\nsteps:\n")
        pipeline = f"{head}\nsteps:\n" + re.sub(rf"\n +{re.escape(line)}(?=\n)", "", steps)
    return pipeline.replace('{run_dir: "${run.dir}", phase', "{phase")


@pytest.mark.parametrize("overrides", [[], ["iterations=0"], ["iterations=4", "overlap=true"]])
def test_inputs_declared_once_equal_inputs_written_out(tmp_path: Path, overrides: list[str]) -> None:
    assert shared().count("run_dir") == shared().count("${run.dir}") == 1
    assert plan_of(tmp_path, *overrides, pipeline=shared()) == plan_of(tmp_path, *overrides)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_pipelines_equal_themselves_written_out(path: Path, tmp_path: Path) -> None:
    """Declare each shared input at every step whose component has it; the plan is the same."""
    recipe = load_recipe(path)
    data = recipe.pipeline.source.data
    once = data.pop("inputs")
    for block in data["steps"]:
        for step in block["repeat"]["steps"] if "repeat" in block else [block]:
            known = read_interface(step["component"]).inputs
            step["inputs"] = {name: once[name] for name in once if name in known} | step["inputs"]
    (tmp_path / "pipeline.yaml").write_text(json.dumps(data))
    (tmp_path / "recipe.yaml").write_text(re.sub("^pipeline: .*", "pipeline: ./pipeline.yaml", path.read_text()))
    assert load_recipe(tmp_path / "recipe.yaml").plan == recipe.plan


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("level: $", "levle: $", "pipeline.yaml:18 inputs.levle no step's component has this input; did you mean level?"),
        ("outputs.level", "outputs.leevl", "pipeline.yaml:18 inputs.level component tests.kubeflow.toysteps.make has no output 'leevl'; did you mean level?"),
        ("steps.make", "steps.mke", "pipeline.yaml:18 inputs.level there is no step 'mke' to refer to here; did you mean make?"),
        ("steps.make", "steps.use", "inputs.level there is no step 'use' to refer to here; it is inside a repeat: carry its output"),
        ("steps.make.outputs.level", "iteration", "inputs.level ${iteration} is not the number of an iteration here; it is for steps of a repeat"),
        ("steps.make.outputs.level", "carry.digest", "inputs.level nothing is carried as 'digest' here"),
        ("${steps.make.outputs.level}", "one", "inputs.level must be of type number for component tests.kubeflow.toysteps.use, but is 'one'"),
        ("${run.dir}", "${parameters.seed}", "inputs.run_dir must be of type string for component tests.kubeflow.toysteps.make, but parameter seed is of type integer"),
        (
            "${parameters.seed}", "${steps.make.outputs.digest}",
            "pipeline.yaml:19 inputs.seed step make gets this input, but does not come after step make, whose output it is; "
            "give step make a seed of its own",
        ),
        ("${run.dir}", "${steps.last.outputs.Output}", "step use gets this input, but does not come after step last, whose output it is"),
        ("steps:\n", "  rate: ${parameters.rats}\nsteps:\n", "pipeline.yaml:20 inputs.rate there is no parameter 'rats'; did you mean rate?"),
    ],
)  # fmt: skip
def test_shared_inputs_are_checked(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in SHARED
    assert_problem(tmp_path, shared(SHARED.replace(old, new)), says)


def left_out(switch: str, instead: str = "instead: {Output: other}") -> str:
    """The toy whose step in the repeat is left out where the switch is false."""
    return PIPELINE.replace(
        "component: tests.kubeflow.toysteps.use\n    ",
        f"component: tests.kubeflow.toysteps.use\n          when: {switch}\n          {instead}\n    ",
        1,
    )


def test_a_stand_in_is_carried_and_handed_on(tmp_path: Path) -> None:
    tasks = plan_of(tmp_path, pipeline=left_out("false"))
    assert list(tasks) == ["make", "last"]
    assert tasks["last"]["digest"] == Constant("other")
    assert plan_of(tmp_path, pipeline=left_out("true")) == plan_of(tmp_path)
    assert plan_of(tmp_path, "overlap=true", pipeline=left_out("${parameters.overlap}")) == plan_of(
        tmp_path, "overlap=true"
    )


def test_a_stand_in_in_a_repeat_is_of_its_iteration(tmp_path: Path) -> None:
    """The second step of an iteration gets the first's output, or what that was given if it is left out."""
    second = """\
        - id: refine
          component: tests.kubeflow.toysteps.use
          inputs: {run_dir: a, phase: b, iteration: 1, level: 1, digest: "${steps.use.outputs.Output}"}
"""
    carried = left_out("${parameters.overlap}", "instead: {Output: '${carry.digest}'}")
    pipeline = carried.replace("  - id: last", f"{second}  - id: last").replace(
        'next: "${steps.use', 'next: "${steps.refine'
    )
    tasks = plan_of(tmp_path, pipeline=pipeline)
    assert list(tasks) == ["make", "refine-01", "refine-02", "last"]
    assert [tasks[f"refine-0{t}"]["digest"] for t in (1, 2)] == [
        FromTask("make", "digest"), FromTask("refine-01", "Output"),
    ]  # fmt: skip
    assert tasks["last"]["digest"] == FromTask("refine-02", "Output")
    assert plan_of(tmp_path, "overlap=true", pipeline=pipeline)["refine-02"]["digest"] == FromTask("use-02", "Output")


def test_stand_ins_reach_shared_inputs_and_each_other(tmp_path: Path) -> None:
    step = "  - {{id: {0}, component: tests.kubeflow.toysteps.use, when: false, instead: {{Output: '{1}'}}, inputs: {{}}}}\n"
    pipeline = shared().replace("level: 1,", "level: 1, old: '${steps.two.outputs.Output}',")
    steps = step.format("two", "${steps.one.outputs.Output}") + step.format("one", "${steps.make.outputs.digest}")
    assert plan_of(tmp_path, pipeline=pipeline + steps)["last"]["old"] == FromTask("make", "digest")
    entry = shared(SHARED.replace("steps:\n", "  old: ${steps.zero.outputs.Output}\nsteps:\n"))
    first = entry.replace("  - repeat:", step.format("zero", "text") + "  - repeat:")
    assert plan_of(tmp_path, pipeline=first)["last"]["old"] == Constant("text")


@pytest.mark.parametrize("switch", ["true", "false"])
@pytest.mark.parametrize(
    ("instead", "says"),
    [
        ("{Output: 3}", "pipeline.yaml:37 steps[1].repeat.steps[0].instead.Output must be of type string, but is 3"),
        ("{Output: '${parameters.rate}'}", "must be of type string, but parameter rate is of type number"),
        ("{Output: '${steps.make.outputs.level}'}", "must be of type string, but output level of make is of type number"),
        ("{Output: '${steps.mke.outputs.digest}'}", "instead.Output there is no step 'mke' to refer to here; did you mean make?"),
        ("{Output: a, Outptu: b}", "instead.Outptu component tests.kubeflow.toysteps.use has no output 'Outptu'; did you mean Output?"),
        ("{Output: '${steps.use.outputs.Output}'}", "instead.Output refers to step use, which it stands in for; name an output of another step"),
    ],
)  # fmt: skip
def test_stand_in_is_checked_whether_its_step_is_on_or_off(
    tmp_path: Path, switch: str, instead: str, says: str
) -> None:
    assert_problem(tmp_path, left_out(switch, f"instead: {instead}"), says)


def test_stand_in_inside_a_text_is_refused(tmp_path: Path) -> None:
    """Refuse a stand-in in a text: it would be accepted only while the step is left out."""
    step = "  - {id: more, component: tests.kubeflow.toysteps.use, when: false, instead: {Output: a}, inputs: {}}\n"
    pipeline = PIPELINE.replace("phase: last", "phase: 'p-${steps.more.outputs.Output}'") + step
    assert_problem(
        tmp_path, pipeline, "only the iteration, ${run.method} and parameters outside the form can be in a text"
    )


def test_stand_ins_for_each_other_are_refused(tmp_path: Path) -> None:
    step = "  - {{id: {0}, component: tests.kubeflow.toysteps.use, when: false, instead: {{Output: '${{steps.{1}.outputs.Output}}'}}, inputs: {{}}}}\n"
    says = "instead.Output refers to step one, which it stands in for"
    assert_problem(tmp_path, PIPELINE + step.format("one", "two") + step.format("two", "one"), says)


def test_a_long_chain_of_stand_ins_is_refused(tmp_path: Path) -> None:
    step = "  - {{id: s{0}, component: tests.kubeflow.toysteps.use, when: false, instead: {{Output: '${{steps.s{1}.outputs.Output}}'}}}}\n"
    pipeline = PIPELINE + "".join(step.format(n, n + 1) for n in range(400))
    assert_problem(tmp_path, pipeline, "instead.Output is a chain of more than 40 stand-ins; name an output of a step")


def test_a_count_in_the_form_is_the_recipes(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("{seed: seed,", "{iterations: iterations,")
    assert list(plan_of(tmp_path, "iterations=1", pipeline=pipeline)) == ["make", "use-01", "last"]


def test_iterations_belong_to_a_loop_that_hands_on_what_it_carries(tmp_path: Path) -> None:
    recipe = load_recipe(write_toy(tmp_path))
    assert {task.id: task.group for task in recipe.plan} == {
        "make": "", "use-01": "iterations", "use-02": "iterations", "last": "",
    }  # fmt: skip
    newest = FromTask("use-02", "Output")
    assert recipe.groups == (Group("iterations", {"digest": newest, "old": newest}),)
    start = FromTask("make", "digest")
    assert load_recipe(recipe.path, ["iterations=0"]).groups == (Group("iterations", {"digest": start, "old": start}),)


def test_group_of_steps_hands_on_what_others_take(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("id: make\n", "id: make\n    group: start\n")
    recipe = load_recipe(write_toy(tmp_path, pipeline=pipeline), ["iterations=0"])
    assert {task.id: task.group for task in recipe.plan} == {"make": "start", "last": ""}
    assert recipe.groups[1] == Group("start", {"make_digest": FromTask("make", "digest")})


def test_group_that_waits_for_a_step_that_waits_for_it_is_refused(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("id: make\n", "id: make\n    group: both\n").replace(
        "id: last\n", "id: last\n    group: both\n"
    )
    assert_problem(tmp_path, pipeline, "the steps wait for each other: both, iterations")


def test_setting_that_recipes_leave_out_at_its_default_has_it_in_steps_and_is_in_no_form(tmp_path: Path) -> None:
    world = "  world: {type: struct, description: A, schema: 'platform_sdk.config.world:WorldSpec', default: {}}\n"
    pipeline = PIPELINE.replace("  spec:\n", f"{world}  spec:\n").replace(
        "rate: ${parameters.rate}", "rate: ${parameters.world.years}"
    )
    path = write_toy(tmp_path, pipeline=pipeline)
    for overrides, years in (([], 0), (["world.years=0.5"], 0.5)):
        assert load_recipe(path, overrides).plan[0].inputs["rate"] == Constant(years)
    form = pipeline.replace("run: {seed: seed", "run: {years: world.years, seed: seed")
    assert_problem(tmp_path, form, "world.years is left out of recipes at its default")


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
        ("level: 1,", "", "pipeline.yaml:45 steps[2].inputs component tests.kubeflow.toysteps.use needs the input 'level' (number)"),
        ("level: 1,", "level: 1, levle: 2,", "component tests.kubeflow.toysteps.use has no input 'levle'; did you mean level?"),
        ("rate: ${parameters.rate}\n      mode", "rate: ${parameters.mode}\n      mode", "must be of type number, but parameter mode is of type string"),
        ("digest: ${carry.digest}", "digest: ${steps.make.outputs.level}", "must be of type string, but output level of make is of type number"),
        ("digest: ${carry.digest}", "digest: ${carry.digset}", "nothing is carried as 'digset' here; did you mean digest?"),
        ("component: tests.kubeflow.toysteps.use\n          inputs", "component: samle\n          inputs", "there is no component samle; did you mean sample?"),
        ("spec: ${parameters.spec}", "spec: ${parameters.spec.lora}", "take spec out of the form"),
        ("count: ${parameters.iterations}", "count: ${parameters.rate}", "must be of type integer, but is 0.5"),
        ("count: ${parameters.iterations}", "count: ${run.dir}", "must be a value or a parameter"),
        ("count: ${parameters.iterations}", "count: -1", "must be 0 or more"),
        ("lag: ${parameters.overlap}", "lag: 2", "must be 0 or 1"),
        ("component: tests.kubeflow.toysteps.use\n          inputs", "component: tests.kubeflow.toysteps.use\n          when: false\n          inputs", "steps[2].inputs.digest needs the step use-02, which its `when` leaves out; give that step a stand-in for the output: instead: {Output: …}"),
        ("component: tests.kubeflow.toysteps.use\n          inputs", "component: tests.kubeflow.toysteps.use\n          when: ${parameters.iterations}\n          inputs", "when must be of type boolean, but is 2"),
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
    assert old in PIPELINE
    says = says.replace("(pipeline.yaml", f"({tmp_path}/pipelines/toy/pipeline.yaml")
    assert_problem(tmp_path, PIPELINE.replace(old, new), says)


def test_many_iterations_without_a_step_are_refused_at_once(tmp_path: Path) -> None:
    component = "component: tests.kubeflow.toysteps.use\n          "
    left_out = PIPELINE.replace(component, f"{component}when: false\n          instead: {{Output: a}}\n          ")
    assert_problem(tmp_path, left_out.replace("${parameters.iterations}", "1000000000"), "count 1000000000 iterations")


def test_steps_in_a_cycle_are_refused(tmp_path: Path) -> None:
    inputs = "{{run_dir: a, phase: a, iteration: 1, level: 1, digest: '${{steps.{1}.outputs.Output}}'}}"
    step = "  - {{id: {0}, component: tests.kubeflow.toysteps.use, inputs: " + inputs + "}}\n"
    pipeline = PIPELINE + step.format("one", "two") + step.format("two", "one") + step.format("behind", "two")
    with pytest.raises(ConfigError) as caught:
        plan_of(tmp_path, pipeline=pipeline)
    assert [problem.message for problem in caught.value.problems] == ["the steps wait for each other: one, two"]


def test_recipe_problems_are_reported_together(tmp_path: Path) -> None:
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
        "component tests.kubeflow.toysteps.use needs the input 'level'",
    ):
        assert any(part in line for line in lines), (part, lines)
