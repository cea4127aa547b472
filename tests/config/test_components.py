from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.components import Port, read_interface
from platform_sdk.config.errors import UserError

SHIPPED = sorted((Path(__file__).parents[2] / "components").glob("*/component.py"))


def read(folder: Path, signature: str, decorator: str = "@dsl.component(base_image='x')") -> object:
    path = folder / "component.py"
    path.write_text(f"from kfp import dsl\n\n{decorator}\ndef f{signature}:\n    pass\n")
    return read_interface(path)


def test_component_signature_becomes_an_interface(tmp_path: Path) -> None:
    interface = read(
        tmp_path,
        "(a: str, b: dict, c: dsl.Input[dsl.Model], d: dsl.Output[dsl.Dataset], e: float = 0.5, *,"
        ' f: list, g: bool = True) -> NamedTuple("Outputs", [("x", str), ("y", int)])',
    )
    assert interface.inputs == {  # type: ignore[attr-defined]
        "a": Port("string"),
        "b": Port("struct"),
        "c": Port("Model"),
        "e": Port("number", required=False),
        "f": Port("list"),
        "g": Port("boolean", required=False),
    }
    assert interface.outputs == {"d": Port("Dataset"), "x": Port("string"), "y": Port("integer")}  # type: ignore[attr-defined]
    assert Port("Model").artifact
    assert not Port("struct").artifact


@pytest.mark.parametrize(
    ("signature", "decorator", "says"),
    [
        ("(a)", "@dsl.component", "a: must be annotated"),
        ("(a: set)", "@dsl.component", "a: must be annotated"),
        ("(a: str) -> tuple[int, str]", "@dsl.component", "return annotation"),
        ("(a: str)", "@cached", "exactly one function with @dsl.component, but holds 0"),
        ("(a: str", "@dsl.component", "is not valid Python"),
    ],
)
def test_invalid_component_source_is_refused(tmp_path: Path, signature: str, decorator: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read(tmp_path, signature, decorator)


def test_missing_component_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such component"):
        read_interface(tmp_path / "component.py")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_shipped_components_are_read_as_kfp_reads_them(path: Path) -> None:
    from platform_sdk.kubeflow.compile import KFP_TYPES, load_component

    interface = read_interface(path)
    specification = load_component(interface).component_spec
    ours = {name: KFP_TYPES.get(port.type, f"system.{port.type}@0.0.1") for name, port in interface.inputs.items()}
    assert {name: spec.type for name, spec in (specification.inputs or {}).items()} == ours
    assert {n for n, p in interface.inputs.items() if not p.required} == {
        name for name, spec in (specification.inputs or {}).items() if spec.optional
    }
    theirs = {name: spec.type for name, spec in (specification.outputs or {}).items()}
    ours = {name: KFP_TYPES.get(port.type, f"system.{port.type}@0.0.1") for name, port in interface.outputs.items()}
    assert theirs == ours
    readme = (path.parent / "README.md").read_text()
    for name in (*interface.inputs, *interface.outputs):
        assert f"`{name}`" in readme, f"{name} is not in the README"
