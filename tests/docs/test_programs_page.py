"""The recipes of the page about programs are valid as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.methods.faults import errors

PAGE = (Path(__file__).parents[2] / "docs/programs.md").read_text(encoding="utf-8")
RECIPES = [text for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S) if text.startswith("pipeline:")]


def test_page_has_recipes_of_both_pipelines() -> None:
    assert [text.splitlines()[0] for text in RECIPES] == ["pipeline: program", "pipeline: program-mygo"]


@pytest.mark.parametrize("text", RECIPES, ids=["program", "program-mygo"])
def test_recipe_of_the_page_is_valid(text: str, tmp_path: Path) -> None:
    (tmp_path / "my-agent.yaml").write_text(text, encoding="utf-8")
    assert errors(load_recipe(tmp_path / "my-agent.yaml")) == []
