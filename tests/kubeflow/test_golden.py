"""Compiled pipelines are as they were when somebody last looked at them."""

from __future__ import annotations

import difflib

import pytest

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")

from tests.kubeflow.golden import FOLDER, HOME, RECIPES, text_of


@pytest.mark.parametrize("name", RECIPES)
def test_a_compiled_pipeline_is_the_one_that_was_looked_at(name: str) -> None:
    was, now = (FOLDER / f"{name}.yaml").read_text(), text_of(HOME / "pipelines" / RECIPES[name])
    changed = "\n".join(difflib.unified_diff(was.splitlines(), now.splitlines(), "was", "now", lineterm=""))
    assert not changed, f"if this is meant, `make golden` and commit the files:\n{changed}"


def test_every_pipeline_has_one() -> None:
    assert set(RECIPES) == {path.parent.name for path in HOME.glob("pipelines/*/pipeline.yaml")}
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(RECIPES)
