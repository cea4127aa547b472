"""Terms of licences: conflicts, gaps and conditions."""

from __future__ import annotations

import pytest

from platform_sdk.data.licences import GENERATED, UNKNOWN
from platform_sdk.lineage.terms import canonical, findings_of


def kinds(*licences: str, stated: str = "") -> list[str]:
    return [one.kind for one in findings_of(((f"dataset {name}", name) for name in licences), stated)]


def conflicts(*licences: str, stated: str = "") -> list[str]:
    found = findings_of(((f"dataset {name}", name) for name in licences), stated)
    return [one.text for one in found if one.kind == "conflict"]


@pytest.mark.parametrize(
    ("licence", "stated"),
    [
        ("CC-BY-NC-4.0", ""), ("CC-BY-NC-4.0", "Apache-2.0"), ("qwen-research", "MIT"),
        ("CC-BY-SA-4.0", "Apache-2.0"), ("CC-BY-ND-4.0", ""), ("ODbL-1.0", "MIT"), ("CC-BY-NC-SA-4.0", "CC-BY-SA-4.0"),
    ],
)  # fmt: skip
def test_term_that_the_models_licence_contradicts_is_a_conflict(licence: str, stated: str) -> None:
    assert conflicts(licence, stated=stated)


@pytest.mark.parametrize(
    ("licence", "stated"),
    [
        ("MIT", "Apache-2.0"), ("CC-BY-4.0", "MIT"), ("CC-BY-SA-4.0", "CC-BY-SA-4.0"), ("CC-BY-SA-3.0", "CC-BY-SA-4.0"),
        ("CC-BY-SA-4.0", "GPL-3.0-only"), ("CC-BY-SA-4.0", ""), ("CC-BY-NC-4.0", "CC-BY-NC-4.0"),
        ("llama3.1", "MIT"), ("CC0-1.0", ""), (GENERATED, ""),
    ],
)  # fmt: skip
def test_term_that_the_models_licence_keeps_is_no_conflict(licence: str, stated: str) -> None:
    assert conflicts(licence, stated=stated) == []


def test_share_alike_licences_without_a_common_licence_contradict_each_other() -> None:
    assert conflicts("CC-BY-SA-3.0", "CC-BY-SA-4.0") == []
    [text] = conflicts("CC-BY-SA-4.0", "ODbL-1.0")
    assert text == (
        "dataset CC-BY-SA-4.0 (CC-BY-SA-4.0) and dataset ODbL-1.0 (ODbL-1.0) permit no common licence for adapted "
        "material"
    )


def test_unknown_licences_and_licences_outside_the_table_are_gaps() -> None:
    assert kinds(UNKNOWN, "my-licence") == ["unknown", "unknown"]
    assert kinds("MIT", stated="my-licence") == ["unknown", "condition"]


def test_conflicts_precede_gaps_and_conditions() -> None:
    assert kinds("MIT", UNKNOWN, "CC-BY-NC-4.0") == ["conflict", "unknown", "condition", "condition"]


def test_generated_data_and_repeated_licences_add_nothing() -> None:
    assert findings_of([("dataset world", GENERATED)]) == []
    assert len(findings_of([("dataset a", "MIT"), ("dataset a", "MIT")])) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("apache-2.0", "Apache-2.0"), (" Llama3.1 ", "llama3.1"), ("CC BY-SA 4.0", "CC-BY-SA-4.0"), ("x", "x")],
)
def test_licences_are_named_as_in_the_table(name: str, expected: str) -> None:
    assert canonical(name) == expected
