"""Form of a pipeline: the names that people see, the fields of a recipe, and the errors of filled-in values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.form import MAX_FIELDS, FormField, check_form
from platform_sdk.config.pipeline import Pipeline, load_pipeline
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.config.source import ConfigError
from tests.kubeflow.toy import PIPELINE, write_toy

HOME = Path(__file__).parents[2]
FORM = PIPELINE[PIPELINE.index("form:") : PIPELINE.index("steps:")]
SHIPPED = sorted(path for path in HOME.glob("pipelines/*/*.yaml") if path.name != "pipeline.yaml")


def load(folder: Path, form: str) -> Pipeline:
    recipe = write_toy(folder, pipeline=PIPELINE.replace(FORM, f"form: {form}\n"))
    return load_pipeline(recipe.with_name("pipeline.yaml"))


def shown(recipe: str) -> dict[str, object]:
    """Return the fields of a shipped recipe in the order of the Kubeflow UI, which is alphabetical."""
    found = load_recipe(HOME / "pipelines" / recipe)
    return {field.name: field.value_in(found.parameters) for field in sorted(found.form, key=lambda field: field.name)}


def test_names_sort_by_group_and_carry_group_and_bounds() -> None:
    assert shown("mygo/world.yaml") == {
        "b1_model_start": "hopforge:world-base",
        "c1_method_iterations_0_to_130": 3,
        "c2_method_questions_per_iteration": 140,
        "c3_method_maximum_attempts_per_question": 6,
        "c4_method_stop_after_accepted_attempts": 1,
        "c5_method_sampling_temperature": 0.7,
        "d1_training_learning_rate": 0.001,
        "f1_run_random_seed": 0,
    }


def test_recipe_with_question_files_has_fields_for_them() -> None:
    assert list(shown("evipath/hotpot-llama3.1-8b.yaml").items())[:2] == [
        ("a1_data_training_files", "hotpotqa/hotpot_train.json"),
        ("a2_data_evaluation_files", "hotpotqa/hotpot_dev.json"),
    ]


def test_fields_of_steps_that_a_recipe_leaves_out_are_left_out() -> None:
    """ARENA's direct baseline trains nothing, so it has no learning rate; the tuned one does."""
    training = {"d1_training_learning_rate", "d2_training_epochs"}
    assert not training & set(shown("arena-baselines/direct-rag-qwen2.5-7b.yaml"))
    assert training <= set(shown("arena-baselines/sft-reasoning-smollm2.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_forms_have_few_filled_and_described_fields(path: Path) -> None:
    recipe = load_recipe(path)
    assert 3 <= len(recipe.form) <= MAX_FIELDS
    assert {"model", "seed"} <= {field.setting for field in recipe.form}
    for field in recipe.form:
        assert re.fullmatch(r"[a-f][1-9]_[a-z]+_[a-z0-9_]+", field.name)
        assert len(field.name) < 64
        assert field.value_in(recipe.parameters) not in ("", None), field.name
        assert field.text.endswith(f". Setting: {field.setting}")
        assert "\n" not in field.text


def test_struct_field_in_a_form_has_the_type_and_bounds_of_its_model(tmp_path: Path) -> None:
    form = load(
        tmp_path, "{training: {rate: spec.learning_rate, precision: spec.precision, threads: spec.threads}}"
    ).form
    assert [(field.name, field.type) for field in form] == [
        ("d1_training_rate", "number"), ("d2_training_precision", "string"), ("d3_training_threads", "integer"),
    ]  # fmt: skip
    assert form[0].bounds == "at least 1e-12, at most 10"
    assert form[1].choices == ("auto", "float32", "bfloat16")
    assert form[2].bounds == "at least 1, at most 1,024"
    assert FormField.model_validate_json(form[0].model_dump_json()) == form[0]


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("{run: {x: sead}}", "sead is not a parameter; did you mean seed?"),
        ("{run: {x: spec}}", "spec is not a single value"),
        ("{run: {x: spec.max_length}}", "spec.max_length may be null"),
        ("{run: {x: spec.batchsize}}", "did you mean batch_size?"),
        ("{run: {x: seed.x}}", "seed is of type integer and has no fields"),
        ("{data: {x: seed}, run: {y: seed}}", "seed is in the form twice, also as x; leave one out"),
        ("{sampling: {x: seed}}", "Input should be 'data', 'model', 'method', 'training', 'evaluation' or 'run'"),
        ("{run: {Seed: seed}}", "String should match pattern"),
        (
            "{training: {a: spec.epochs, b: spec.batch_size, c: spec.precision, d: spec.threads}, "
            "model: {e: spec.normalization, f: spec.learning_rate}, "
            "run: {a: seed, b: rate, c: mode, d: iterations, e: overlap}}",
            "has 11 fields; leave at most 10",
        ),
        ("{run: {" + ", ".join(f"x{n}: seed" for n in range(10)) + "}}", "at most 9 items"),
    ],
)
def test_form_fields_that_cannot_be_filled_in_are_refused(tmp_path: Path, form: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, form)
    line = PIPELINE[: PIPELINE.index(FORM)].count("\n") + 1
    assert says in str(caught.value)
    assert f"pipeline.yaml:{line}: form" in str(caught.value)


def filled(recipe: Recipe, **values: object) -> dict[str, object]:
    form = {field.name: field.setting for field in recipe.form}
    return check_form(form, recipe.parameters, recipe.run_time, values)


def test_wrong_values_are_reported_together_by_field_and_setting(tmp_path: Path) -> None:
    recipe = load_recipe(write_toy(tmp_path))
    with pytest.raises(UserError) as caught:
        filled(recipe, f2_run_rate=2.0, f3_run_mode="wel", d2_training_normalization="both", d1_training_batch=0)
    lines = str(caught.value).splitlines()
    assert lines[0] == "the run cannot be started with these values:"
    assert len(lines) == 5
    for expected in (
        "  f2_run_rate (rate): must be at most 1, but is 2.0",
        "  f3_run_mode (mode): 'wel' is not one of the choices; did you mean well?",
        "  d1_training_batch (spec.batch_size): Input should be greater than or equal to 1 (it is 0)",
    ):
        assert any(line.startswith(expected) for line in lines), lines
    assert any("d2_training_normalization (spec.normalization): Input should be 'token' or" in line for line in lines)


def test_problem_of_a_whole_struct_names_its_fields() -> None:
    """No question files at all: a rule over both fields."""
    recipe = load_recipe(HOME / "pipelines/mygo/hotpotqa-smollm2.yaml")
    with pytest.raises(
        UserError, match=r"a1_data_training_files \(dataset.train\), a2_data_evaluation_files .*: name q"
    ):
        filled(recipe, a1_data_training_files="", a2_data_evaluation_files="")


def test_filled_in_values_are_laid_over_the_recipes() -> None:
    recipe = load_recipe(HOME / "pipelines/mygo/hotpotqa-smollm2.yaml")
    changed = filled(recipe, a1_data_training_files="a.json, b.json", f1_run_random_seed=9)
    assert changed["dataset"] == {**recipe.parameters["dataset"], "train": ["a.json", "b.json"]}
    assert changed["seed"] == 9
    assert {name for name in changed if changed[name] != recipe.parameters[name]} == {"dataset", "seed"}
