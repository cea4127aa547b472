"""Fields that a pipeline's form may list; every shipped pipeline's form can be filled in by people."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.form import MAX_FIELDS
from platform_sdk.config.pipeline import load_pipeline
from platform_sdk.config.source import ConfigError
from tests.kubeflow.toy import PIPELINE, write_toy

HOME = Path(__file__).parents[2]
FORM = "form: [seed, rate, mode, spec.batch_size, spec.normalization]"


def load(folder: Path, form: str):  # type: ignore[no-untyped-def]
    assert FORM in PIPELINE
    recipe = write_toy(folder, pipeline=PIPELINE.replace(FORM, f"form: [{form}]"))
    return load_pipeline(recipe.with_name("pipeline.yaml"))


def test_struct_field_in_a_form_has_the_bounds_of_its_model(tmp_path: Path) -> None:
    form = {field.name: field for field in load(tmp_path, "spec.learning_rate, spec.precision, spec.threads").form}
    assert [field.type for field in form.values()] == ["number", "string", "integer"]
    assert form["spec_learning_rate"].bounds == "above 0, at most 10"
    assert form["spec_precision"].choices == ("auto", "float32", "bfloat16")
    assert form["spec_threads"].bounds == "at least 1, at most 1024"


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("sead", "sead is not a parameter; did you mean seed?"),
        ("spec", "spec is not a single value"),
        ("spec.max_length", "spec.max_length may be null"),
        ("spec.batchsize", "did you mean batch_size?"),
        ("seed.x", "seed is of type integer and has no fields"),
        ("seed, seed", "is called seed like seed"),
        (", ".join(["seed"] * (MAX_FIELDS + 1)), f"at most {MAX_FIELDS} items"),
    ],
)
def test_form_fields_that_cannot_be_filled_in_are_refused(tmp_path: Path, form: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, form)
    line = PIPELINE[: PIPELINE.index(FORM)].count("\n") + 1
    assert says in str(caught.value)
    assert f"pipeline.yaml:{line}: form" in str(caught.value)


@pytest.mark.parametrize("path", sorted(HOME.glob("pipelines/*/pipeline.yaml")), ids=lambda path: path.parent.name)
def test_shipped_forms_have_few_grouped_and_described_fields(path: Path) -> None:
    form = load_pipeline(path).form
    assert 3 <= len(form) <= MAX_FIELDS
    assert {"model", "seed"} <= {field.name for field in form}
    for field in form:
        assert field.group, field.name
        assert len(field.text) > len(field.group) + 10, field.name
        assert "\n" not in field.text
