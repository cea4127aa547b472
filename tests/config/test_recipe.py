from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from platform_sdk.config.pipeline import load_pipeline
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.schema import pipeline_schema, recipe_schema
from platform_sdk.config.source import ConfigError
from platform_sdk.config.training import TrainSpec
from platform_sdk.studies.study import load_study
from tests.kubeflow.toy import PIPELINE, write_toy
from tests.refusals import refused

HOME = Path(__file__).parents[2]
SHIPPED = sorted(path for path in HOME.glob("pipelines/*/*.yaml") if path.name != "pipeline.yaml")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy(tmp_path)


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_recipe(path, overrides)
    return list(map(str, caught.value.problems))


def test_parameter_values_come_from_pipeline_recipe_and_overrides(recipe: Path) -> None:
    recipe.write_text(recipe.read_text() + "  spec: {epochs: 4, lora: {rank: 2}}\n")
    loaded = load_recipe(recipe, ["spec.lora.alpha=1e1", "seed=5"])
    assert loaded.resolved() == {
        "pipeline": "toy",
        "name": "small",
        "parameters": {
            "iterations": 2,
            "overlap": False,
            "seed": 5,  # --set
            "rate": 0.5,  # the recipe
            "mode": "well",  # the pipeline's default
            # The pipeline's batch_size, the recipe's epochs and lora, --set's alpha; the rest is the model's.
            "spec": TrainSpec(batch_size=3, epochs=4, lora={"rank": 2, "alpha": 10.0}).model_dump(mode="json"),
        },
    }
    assert loaded.settings("spec") == TrainSpec(batch_size=3, epochs=4, lora={"rank": 2, "alpha": 10.0})
    json.dumps(loaded.resolved())


def test_integer_is_accepted_for_a_float_parameter(recipe: Path) -> None:
    rate = load_recipe(recipe, ["rate=1"]).parameters["rate"]
    assert (rate, type(rate)) == (1.0, float)


def test_parameter_without_a_default_is_required(recipe: Path) -> None:
    recipe.write_text("pipeline: toy\nname: small\n")
    (problem,) = problems(recipe)
    assert problem.startswith(f"{recipe}:1: parameters.rate: is required (A rate)")
    assert problem.endswith("[recipe.missing-parameter]")


def test_error_has_the_code_that_all_its_problems_have(recipe: Path) -> None:
    with refused("recipe.unknown-parameter"):
        load_recipe(recipe, ["sede=1", "moode=a"])
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe, ["sede=1", "rate=2"])
    assert caught.value.code is None
    assert [problem.code for problem in caught.value.problems] == ["recipe.unknown-parameter", None]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("iterations=20000", "20000 iterations of 1 steps make more than 1000 tasks"),
        ("rate=.inf", ".inf is not a finite number"),
        ("rate=1e999", "1e999 is not a finite number"),
        ("spec.learning_rate=inf", "spec.learning_rate: should be a valid number"),
        ("spec.learning_rate=nan", "spec.learning_rate: should be a valid number"),
        ("spec.learning_rate=1e9", "spec.learning_rate: should be less than or equal to 10"),
        ("spec.threads=1000000000", "spec.threads: should be less than or equal to 1024"),
        ("spec.lora={targets: []}", "spec.lora.targets: targets names no module"),
        ("seed=" + "9" * 5000, "exceeds 64 bits"),
        ("seed=1e30", "seed: must be of type integer, but is 1e+30"),
        ("mode=" + "x" * 20_000, "(20000 characters) is not one of the choices"),
        ("spec." + "a." * 50_000 + "b=1", "must look like parameter=value"),
        ("spec={" + ", ".join(f"f{n}: 1" for n in range(1000)) + "}", "there is no such field; known are"),
    ],
)
def test_absurd_values_are_refused_with_a_short_message(recipe: Path, override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe, [override])
    lines = str(caught.value).splitlines()
    assert any(says in line for line in lines)
    assert len(lines) <= 103
    assert max(map(len, lines)) < 1800


def test_iterations_beyond_the_bound_are_named_at_their_line(tmp_path: Path) -> None:
    text = (HOME / "pipelines/mygo/world.yaml").read_text()
    path = tmp_path / "long.yaml"
    path.write_text(re.sub(r"iterations: \d+", "iterations: 20000", text))
    line = path.read_text().splitlines().index("  iterations: 20000") + 1
    (problem,) = problems(path)
    assert problem == f"{path}:{line}: parameters.iterations: must be at most 130, but is 20000"
    assert len(load_recipe(HOME / "pipelines/mygo/world.yaml", ["iterations=130"]).plan) <= 400


def test_seed_that_training_cannot_use_is_refused() -> None:
    largest = 2**32 - 1  # numpy's
    recipe = HOME / "pipelines/mygo/world.yaml"
    assert load_recipe(recipe, [f"seed={largest}"]).parameters["seed"] == largest
    (problem,) = problems(recipe, f"seed={largest + 1}")
    assert problem.endswith(f"seed: must be at most {largest}, but is {largest + 1}")


@pytest.mark.parametrize("load", [load_recipe, lambda path: load_study(path, Path("runs"))])
def test_path_that_is_too_long_cannot_be_read(load: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigError, match=r"^p{500}… \(5000 characters\): cannot be read: File name too long$"):
        load(Path("p" * 5000))


@pytest.mark.parametrize("name", ["p" * 5000, "p/" * 3000, "p" * 300 + ".yaml", "../x", "a\tb"])
def test_pipeline_name_that_cannot_be_a_path_is_reported_at_its_line(recipe: Path, name: str) -> None:
    recipe.write_text(recipe.read_text().replace("pipeline: toy", f"pipeline: {json.dumps(name)}"))
    (problem,) = problems(recipe)
    assert problem.startswith(f"{recipe}:1: pipeline: ")
    assert len(problem) < 1500


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("rate", "must look like parameter=value"),
        ("=1", "must look like parameter=value"),
        ("sede=1", "--set sede=1: sede: there is no such parameter; did you mean seed?"),
        ("seed.x=1", "seed: is of type integer and has no fields"),
        ("seed=one", "--set seed=one: seed: must be of type integer, but is 'one'"),
        ("seed=true", "must be of type integer, but is True"),
        ("rate=1.5", "must be at most 1, but is 1.5"),
        ("rate=-1", "must be at least 0, but is -1"),
        ("rate=[1", "put it in quotes"),
        ("mode=wel", "'wel' is not one of the choices; did you mean well?"),
        ("spec=3", "must be a mapping of its fields, but is 3"),
        ("spec.epochs=0", "--set spec.epochs=0: spec.epochs: should be greater than or equal to 1, but is 0"),
        ("spec.lora.rnk=3", "spec.lora.rnk: there is no such field; did you mean rank? known are alpha, dropout"),
        ("spec.too_long=cut", "should be 'truncate', 'drop' or 'error', but is 'cut'"),
        ("spec.minimum_learning_rate=1", "minimum_learning_rate 1.0 is above learning_rate 5e-07"),
    ],
)
def test_a_bad_override_names_itself_and_the_remedy(recipe: Path, override: str, says: str) -> None:
    found = problems(recipe, override)
    assert len(found) == 1
    assert says in found[0]
    assert f"--set {override}: " in found[0]


def test_problems_of_structs_have_their_line(recipe: Path) -> None:
    recipe.write_text(recipe.read_text() + "  spec:\n    epochs: 2\n    lora:\n      rank: 0\n    bach_size: 1\n")
    assert problems(recipe) == [
        f"{recipe}:8: parameters.spec.lora.rank: should be greater than or equal to 1, but is 0",
        next(p for p in problems(recipe) if p.startswith(f"{recipe}:9: parameters.spec.bach_size: there is no such")),
    ]


def test_parameter_default_comes_from_its_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = "seed: {type: integer"
    folder = 'folder: {type: string, description: F, default: "", environment: TOY_DIR}'
    pipeline = PIPELINE.replace(seed, f"{folder}\n  {seed}")
    recipe = write_toy(tmp_path, pipeline=pipeline)
    monkeypatch.delenv("TOY_DIR", raising=False)
    assert load_recipe(recipe).parameters["folder"] == ""
    monkeypatch.setenv("TOY_DIR", "/data")
    assert load_recipe(recipe).parameters["folder"] == "/data"
    assert load_recipe(recipe, ["folder=/other"]).parameters["folder"] == "/other"
    # A resolved recipe has the empty default; an empty value that is not the default, or from --set, was meant.
    recipe.write_text(recipe.read_text().replace("parameters:\n", 'parameters:\n  folder: ""\n'))
    assert load_recipe(recipe).parameters["folder"] == "/data"
    assert load_recipe(recipe, ['folder=""']).parameters["folder"] == ""
    write_toy(tmp_path, pipeline=pipeline.replace('default: "", environment', "default: here, environment"))
    recipe.write_text(recipe.read_text().replace("parameters:\n", 'parameters:\n  folder: ""\n'))
    assert load_recipe(recipe).parameters["folder"] == ""


def test_pipeline_is_found_by_path_and_an_unknown_name_refused(recipe: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mine.yaml"
    elsewhere.write_text(recipe.read_text().replace("pipeline: toy", "pipeline: ./pipelines/toy"))
    assert load_recipe(elsewhere).parameters == load_recipe(recipe).parameters
    elsewhere.write_text(recipe.read_text().replace("pipeline: toy", "pipeline: mygoo"))
    (problem,) = problems(elsewhere)
    assert problem.startswith(f"{elsewhere}:1: pipeline: there is no pipeline 'mygoo'; did you mean mygo? known are ")


@pytest.mark.parametrize("name", ["a" * 51, "Upper", "ends-", "9"])
def test_recipe_name_that_is_not_a_valid_label_is_refused(recipe: Path, name: str) -> None:
    text = recipe.read_text()
    recipe.write_text(re.sub("^name: .*$", f"name: {name}", text, flags=re.MULTILINE))
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe)
    assert [problem.field for problem in caught.value.problems] == ["name"]


def test_unknown_keys_of_a_recipe(recipe: Path) -> None:
    recipe.write_text(recipe.read_text() + "stages: 2\n")
    assert problems(recipe) == [f"{recipe}:5: stages: is not known here; remove it"]


def test_recipe_schema_describes_parameters(recipe: Path) -> None:
    schema = recipe_schema(load_pipeline(recipe.parent / "pipeline.yaml"))
    parameters = schema["properties"]["parameters"]
    assert parameters["required"] == ["rate"]
    assert parameters["properties"]["rate"] == {
        "type": "number", "description": "A rate", "minimum": 0, "maximum": 1,
    }  # fmt: skip
    assert parameters["properties"]["mode"]["enum"] == ["well", "slow", "user-error", "bug", "killed"]
    assert parameters["properties"]["seed"]["description"] == "General: Of everything"
    assert parameters["properties"]["spec"]["properties"]["epochs"]["minimum"] == 1
    assert "LoraSpec" in schema["$defs"]
    assert set(pipeline_schema()["else"]["required"]) == {"name", "description", "method", "parameters", "steps"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_recipes_are_valid(path: Path) -> None:
    assert load_recipe(path).plan


def test_shipped_recipes_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_recipe(Path("pipelines/mygo/world.yaml")).name == "mygo-world"
    with pytest.raises(ConfigError, match=r"^pipelines/mygo/other\.yaml: no such file; check the path$"):
        load_recipe(Path("pipelines/mygo/other.yaml"))


def test_file_of_another_kind_is_named_as_such(tmp_path: Path) -> None:
    recipe, pipeline = HOME / "pipelines/mygo/world.yaml", HOME / "pipelines/mygo/pipeline.yaml"
    study = HOME / "studies/world-mygo.yaml"
    with pytest.raises(ConfigError, match=rf"^{study}:1: is a study; use it with hopforge study$"):
        load_recipe(study)
    for given in (pipeline, HOME / "pipelines/mygo-grpo/pipeline.yaml"):
        with pytest.raises(ConfigError, match=rf"^{given}:1: is a pipeline; give a recipe"):
            load_recipe(given)
    with pytest.raises(ConfigError, match=rf"^{recipe}:1: is a recipe; use it with hopforge run"):
        load_study(recipe, tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nmethod: mygo\nparameters: {}\n", "pipeline: is required"),
        ("name: a\npipeline: mygo\nmethod: mygo\n", "method: is not known here"),
    ],
)
def test_faulty_recipe_is_not_taken_for_another_kind(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert [problem for problem in problems(tmp_path / "a.yaml") if says in problem]
