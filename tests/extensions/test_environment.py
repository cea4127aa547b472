"""An environment is a record: ``tests/extensions/squad.py`` brings one, named by a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.agents.planner_messages import medium_of
from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.environment import ENVIRONMENTS, environment_of
from platform_sdk.config.errors import UserError
from platform_sdk.config.parameter import check_scalar
from platform_sdk.config.pipeline import load_pipeline
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.source import ConfigError
from platform_sdk.data.dataset import prepare
from platform_sdk.retrieval.environments import build_retriever
from platform_sdk.retrieval.index import build_index
from platform_sdk.sampling.rollout import SearchRequest
from tests.extensions.test_squad import FORMAT, RECORDS, spec_of

PIPELINES = Path(__file__).parents[2] / "pipelines"
HOTPOT = PIPELINES / "mygo/hotpotqa-smollm2.yaml"


def recipe_in(folder: Path, environment: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(HOTPOT.read_text().replace("environment: hotpot", f"environment: {environment}"))
    return path


def test_questions_of_an_own_environment_search_by_its_method(tmp_path: Path) -> None:
    spec: DatasetSpec = spec_of(tmp_path, RECORDS)
    prepare(spec, None, tmp_path / "run")
    assert build_index(tmp_path / "run", RetrievalSpec(), FORMAT).method == "lexical"
    with build_retriever(FORMAT, tmp_path / "run", RetrievalSpec()) as retriever:
        [[found]] = retriever.search([SearchRequest("born in Oslo")], 1)
    assert found.text == "She was born in Oslo."


def test_recipe_names_the_module_of_an_own_environment(tmp_path: Path) -> None:
    assert load_recipe(recipe_in(tmp_path, FORMAT)).parameters["environment"] == FORMAT


@pytest.mark.parametrize("path", sorted(PIPELINES.glob("*/pipeline.yaml")), ids=lambda path: path.parent.name)
def test_every_pipeline_that_searches_accepts_own_data_and_the_module_of_an_own_environment(path: Path) -> None:
    parameter = load_pipeline(path).document.parameters["environment"]
    if ENVIRONMENTS.keys() & set(parameter.choices):  # ARENA searches nothing
        assert [check_scalar(parameter, name) for name in ("own-text", FORMAT)] == [None, None]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("hotpott", "'hotpott' is not one of the choices; did you mean hotpot?"),
        ("hotpott", "; or name a package.module"),
        ("tests.extensions.squat", "tests.extensions.squat:ENVIRONMENT cannot be found: no source"),
        ("tests.extensions.glossary", "defines no function, class or value ENVIRONMENT"),
        ("json.decoder", "json.decoder:ENVIRONMENT is refused: json is part of Python"),
    ],
)
def test_environment_that_does_not_exist_is_refused(tmp_path: Path, environment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"own\.yaml:8: parameters\.environment: ") as caught:
        load_recipe(recipe_in(tmp_path, environment))
    assert message in str(caught.value)


def test_module_without_an_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownenvironments").mkdir()
    (tmp_path / "ownenvironments/number.py").write_text("ENVIRONMENT = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"ownenvironments.number: ENVIRONMENT is of type int; make it an Environment"):
        environment_of("ownenvironments.number")


def test_agents_of_knowledge_graphs_are_told_so_by_the_environments_medium() -> None:
    graphs = {"own-kg", "2wiki-kg", "qald-kg", "world-kg"}
    assert {name for name in ENVIRONMENTS if medium_of(name) == "kg"} == graphs
    assert (medium_of("distractor"), medium_of(FORMAT)) == ("text", "text")
