from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from platform_sdk.config.code import find_definition, import_definition
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from tests.kubeflow.toy import write_toy

HOME = Path(__file__).parents[2]
RECIPE = HOME / "pipelines" / "arena" / "world.yaml"
HOSTILE = """
from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
raise SystemExit(0)

def reward(rollout, scale=1.0): return 0.0
def needs_two(rollout, other): return 0.0
def needs_keyword(rollout, *, other): return 0.0
async def later(rollout): return 0.0
class Model: pass
MODEL: type = Model
DECLARED: type
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a recipe's own; importing any of its files leaves a trace."""
    (tmp_path / "ownrewards" / "inner").mkdir(parents=True)  # `inner` has no __init__.py
    for file in ("__init__.py", "sums.py", "inner/deep.py"):
        (tmp_path / "ownrewards" / file).write_text(HOSTILE)
    (tmp_path / "ownrewards" / "broken.py").write_text("def reward(:")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def override(function: str) -> list[str]:
    return [f'agent.rewards.extra={{x: {{function: "{function}"}}}}']


@pytest.mark.parametrize("module", ["ownrewards", "ownrewards.sums", "ownrewards.inner.deep"])
def test_checking_a_recipe_imports_nothing_it_names(package: Path, module: str) -> None:
    load_recipe(RECIPE, override(f"{module}:reward"))
    assert not list(package.rglob("*.ran"))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("os:system", "os:system is refused: os is part of Python"),
        ("builtins:eval", "is refused"),
        ("sys:exit", "is refused"),
        ("ownrewards.sums:absent", "defines no function, class or value absent"),
        ("ownrewards.sums:Path", "defines no function, class or value Path"),
        ("ownrewards.sums:Model", "is not a function"),
        ("ownrewards.sums:later", "is not a function that can be called without await; remove async"),
        ("ownrewards.sums:DECLARED", "defines no function, class or value DECLARED"),
        ("ownrewards.sums:needs_two", "cannot be called with a rollout alone"),
        ("ownrewards.sums:needs_keyword", "cannot be called with a rollout alone"),
        ("ownrewards.none:reward", "no source of ownrewards.none on the Python path"),
        ("ownrewards.broken:reward", "broken.py:1 is not valid Python"),
        (".:reward", "names no module"),
    ],
)
def test_function_that_cannot_be_a_reward_is_refused(package: Path, function: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(RECIPE, override(function))
    assert not list(package.rglob("*.ran"))


def test_program_may_be_an_async_function(package: Path) -> None:
    recipe = load_recipe(HOME / "pipelines/program/world.yaml", ["agent={function: 'ownrewards.sums:later'}"])
    assert getattr(recipe.structs["agent"], "function", None) == "ownrewards.sums:later"


def test_value_with_an_annotation_is_found(package: Path) -> None:
    assert isinstance(find_definition("ownrewards.sums:MODEL"), ast.AnnAssign)


def test_names_too_long_for_a_file_are_not_found() -> None:
    with pytest.raises(ValueError, match="cannot be found: no source of"):
        find_definition(f"platform_sdk.config.{'x' * 300}:Model")


def test_schema_of_a_foreign_package_is_refused_unimported(package: Path) -> None:
    recipe = write_toy(package)
    pipeline = next(package.rglob("pipeline.yaml"))
    pipeline.write_text(pipeline.read_text().replace("platform_sdk.config.training:TrainSpec", "ownrewards:Model"))
    message = "schema ownrewards:Model is refused: it must be a model of hopforge (platform_sdk.…) or of the package"
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_recipe(recipe)
    assert not list(package.rglob("*.ran"))


def test_importing_a_module_that_exits_is_one_clear_error(package: Path) -> None:
    with pytest.raises(UserError, match=r"ownrewards.sums:reward: importing ownrewards.sums failed: SystemExit: 0"):
        import_definition("ownrewards.sums:reward")
    assert (package / "ownrewards" / "__init__.ran").exists()


def test_finding_works_for_installed_packages() -> None:
    assert find_definition("platform_sdk.config.training:TrainSpec").name == "TrainSpec"
