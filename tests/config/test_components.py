from __future__ import annotations

import importlib
import inspect
import itertools
from pathlib import Path

import pytest

from platform_sdk.config.components import Port, component_names, read_interface
from platform_sdk.config.errors import UserError
from platform_sdk.execution.step import load_step

HOME = Path(__file__).parents[2]
NUMBER = itertools.count()
HEAD = "from platform_sdk.execution.step import StepInputs, StepOutputs\n"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(tmp_path)

    def read(source: str) -> object:
        name = f"ownsteps{next(NUMBER)}"
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "step.py").write_text(HEAD + source)
        importlib.invalidate_caches()
        return read_interface(f"{name}.step")

    return read


def test_models_of_a_step_become_an_interface(read: object) -> None:
    interface = read(  # type: ignore[operator]
        "from pydantic import Field\nSHOWS = ('metrics',)\n"
        "class Inputs(StepInputs):\n"
        "    '''Text.'''\n    a: str\n    b: dict[str, int]\n    e: float = 0.5\n"
        "    f: list[int] = Field(min_length=1)\n"
        "    g: bool = Field(True)\n    h: int = Field(default_factory=int)\n"
        "class Outputs(StepOutputs):\n    x: str\n    y: int\n"
        "def run(inputs): ...\n"
    )
    assert interface.inputs == {
        "run_dir": Port("string"),
        "a": Port("string"),
        "b": Port("struct"),
        "e": Port("number", required=False),
        "f": Port("list"),
        "g": Port("boolean", required=False),
        "h": Port("integer", required=False),
    }
    assert interface.outputs == {"x": Port("string"), "y": Port("integer")}
    assert interface.shows == ("metrics",)


WHOLE = "class Inputs(StepInputs):\n    a: str\nclass Outputs(StepOutputs):\n    x: str\ndef run(inputs): ...\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a: str", "a: set[str]", "a must be annotated with one of str, Path, int, .*, but is set"),
        ("def run(inputs): ...", "", "defines no function, class or value run"),
        ("class Outputs", "class Output", "defines no function, class or value Outputs"),
        ("x: str", "x: str(", "is not valid Python"),
        ("Inputs(StepInputs)", "Inputs(Inputs)", "is its own base class"),
        ("class Inputs", "SHOWS = str(1)\nclass Inputs", r'SHOWS must be a tuple of texts, e.g. \("metrics",\)'),
    ],
)
def test_invalid_step_module_is_refused(read: object, old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(UserError, match=message):
        read(WHOLE.replace(old, new, 1))  # type: ignore[operator]


def test_annotated_shows_is_read(read: object) -> None:
    assert read(f"SHOWS: tuple[str, ...] = ('page',)\n{WHOLE}").shows == ("page",)  # type: ignore[operator]


@pytest.mark.parametrize(("file", "imported"), [("step.py", ".base"), ("step/__init__.py", "..base"), ("step.py", ".")])
def test_model_may_extend_a_class_of_a_relative_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, imported: str
) -> None:
    package = tmp_path / f"ownsteps{next(NUMBER)}"
    (package / file).parent.mkdir(parents=True)
    base = f"{HEAD}class Common(StepInputs):\n    seed: int\n"
    (package / "base.py").write_text(base)
    (package / "__init__.py").write_text(base if imported == "." else "")
    step = WHOLE.replace("Inputs(StepInputs)", "Inputs(Common)")
    (package / file).write_text(f"{HEAD}from {imported} import Common\n{step}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert list(read_interface(f"{package.name}.step").inputs) == ["run_dir", "seed", "a"]


@pytest.mark.parametrize("name", ["nothing", "own.nothing"])
def test_missing_component_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="there is no component nothing|cannot be found"):
        read_interface(name)


@pytest.mark.parametrize("name", component_names())
def test_shipped_steps_are_read_as_python_reads_them(name: str) -> None:
    interface, step = read_interface(name), load_step(name)
    for model, ports in ((step.Inputs, interface.inputs), (step.Outputs, interface.outputs)):
        assert {field: info.is_required() for field, info in model.model_fields.items()} == {
            field: port.required for field, port in ports.items()
        }
    assert list(inspect.signature(step.run).parameters) == ["inputs"]
    readme = (HOME / "components" / name / "README.md").read_text()
    for field in (*interface.inputs, *interface.outputs):
        assert f"`{field}`" in readme, f"{field} is not in the README"


@pytest.mark.parametrize("name", component_names())
def test_shipped_components_take_and_give_what_their_steps_do(name: str) -> None:
    component = importlib.import_module(f"components.{name}.component").component
    interface = read_interface(name)
    shown = {f"{name}_{kind}" for kind in ("card", *interface.shows)}
    assert set(component.component_spec.outputs) == set(interface.outputs) | shown
    assert set(component.component_spec.inputs) <= {*interface.inputs, "run_dir", "settings"}
