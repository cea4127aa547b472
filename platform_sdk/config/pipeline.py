"""What a pipeline may say: the parameters a recipe can set, and the steps that are wired to them.

``pipeline.yaml`` holds ``name``, ``description``, ``method``, ``parameters`` and ``steps``. A step names a
component and wires its inputs (``references.py``); ``repeat`` unrolls its steps some number of times, with
values carried from one iteration to the next (``plan.py``). No arithmetic, no logic.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

import platform_sdk
from platform_sdk.config.document import problems_of
from platform_sdk.config.errors import UserError
from platform_sdk.config.source import ConfigError, FieldPath, Problem, Source, load_source, suggestion

IDENTIFIER = r"^[a-z][a-z0-9_]*$"
STEP_ID = r"^[a-z][a-z0-9-]*$"


ModelType = type[BaseModel]


class Declaration(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Parameter(Declaration):
    """One parameter of a pipeline. Without ``default`` (and ``environment``) a recipe must give its value.

    A ``struct`` is checked by ``schema``, a pydantic model named ``module:Class``; what a recipe gives is laid
    over ``default``, key by key. A ``compile_time`` parameter shapes the pipeline or is taken apart in it, so it
    cannot be changed in the Kubeflow UI.
    """

    type: Literal["string", "integer", "number", "boolean", "struct"]
    description: str = Field(min_length=1)
    default: Any = None
    choices: tuple[str | int | float, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    group: str = ""
    schema_: str | None = Field(default=None, alias="schema", pattern=r"^[\w.]+:\w+$")
    environment: str | None = Field(default=None, description="the variable that gives the default where it is set")
    compile_time: bool = False

    @property
    def required(self) -> bool:
        return "default" not in self.model_fields_set

    def model(self) -> ModelType | None:
        """The pydantic model of a struct.

        Raises:
            UserError: ``schema`` names nothing that can be imported, or no pydantic model.
        """
        if self.schema_ is None:
            return None
        module, _, name = self.schema_.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UserError(f"schema {self.schema_} cannot be imported: {error}") from error
        if not (isinstance(found, type) and issubclass(found, BaseModel)):
            raise UserError(f"schema {self.schema_} is not a pydantic model")
        return found


class Step(Declaration):
    """A component with its inputs wired. ``when`` is true, false or a boolean ``compile_time`` parameter: a step that
    it says false for is left out."""

    id: str = Field(pattern=STEP_ID)
    component: str = Field(pattern=IDENTIFIER)
    when: bool | str = True
    inputs: dict[str, Any] = Field(default_factory=dict)


class Carry(Declaration):
    """A value handed from iteration to iteration: ``initial`` in the first, then the last one's ``next``.

    With ``lag: 1`` the value is one iteration older, from the third iteration on: iteration t gets the ``next``
    of iteration t-2, so what uses it need not wait for iteration t-1. The second gets the first's, as without.
    """

    initial: Any
    next: Any
    lag: int | bool | str = 0


class Repeat(Declaration):
    count: int | str
    as_: str = Field(default="iteration", alias="as", pattern=IDENTIFIER)
    carry: dict[str, Carry] = Field(default_factory=dict)
    steps: tuple[Step, ...] = Field(min_length=1)


class RepeatBlock(Declaration):
    repeat: Repeat


def _kind(value: Any) -> str:
    return "repeat" if isinstance(value, dict) and "repeat" in value else "step"


Block = Annotated[Annotated[Step, Tag("step")] | Annotated[RepeatBlock, Tag("repeat")], Discriminator(_kind)]


class Document(Declaration):
    """A whole ``pipeline.yaml``."""

    name: str = Field(pattern=STEP_ID)
    description: str = Field(min_length=1)
    method: str = Field(pattern=IDENTIFIER)
    parameters: dict[Annotated[str, Field(pattern=IDENTIFIER)], Parameter]
    steps: tuple[Block, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that was read: its declaration, where everything in it stands, and its components' folder."""

    document: Document
    source: Source
    components: Path

    @property
    def name(self) -> str:
        return self.document.name

    def component_path(self, component: str) -> Path:
        return self.components / component / "component.py"


def home() -> Path:
    """The folder that holds ``pipelines/`` and ``components/``: the checkout, or the installed package's copy."""
    package = Path(platform_sdk.__file__).parent
    checkout = package.parent
    return checkout if (checkout / "pipelines").is_dir() else package / "shipped"


def find_pipeline(reference: str, recipe: Path) -> Path:
    """The ``pipeline.yaml`` that a recipe names: a path from the recipe's folder, or the name of a pipeline.

    Raises:
        UserError: there is none; the message says which there are.
    """
    if "/" in reference or reference.endswith((".yaml", ".yml")):
        path = recipe.parent / reference
        path = path / "pipeline.yaml" if path.is_dir() else path
        if not path.is_file():
            raise UserError(f"{path}: no such pipeline")
        return path
    beside = recipe.resolve().parent / "pipeline.yaml"
    if beside.parent.name == reference and beside.is_file():
        return recipe.parent / "pipeline.yaml"
    path = home() / "pipelines" / reference / "pipeline.yaml"
    if not path.is_file():
        known = (found.parent.name for found in (home() / "pipelines").glob("*/pipeline.yaml"))
        raise UserError(f"there is no pipeline {reference!r}; {suggestion(reference, known)}")
    return path


def load_pipeline(path: Path, components: Path | None = None) -> Pipeline:
    """Read a ``pipeline.yaml``. Its wiring is checked by ``plan.make_plan``, with a recipe's values.

    Args:
        components: The folder of the components; else ``components`` beside the folder of pipelines that
            ``path`` lies in, or the package's own.

    Raises:
        ConfigError: with every problem there is in the declarations.
    """
    source = load_source(path)
    try:
        document = Document.model_validate(source.data)
    except ValidationError as error:
        raise ConfigError(problems_of(error, source, ())) from error
    problems = [
        problem for name, parameter in document.parameters.items() for problem in _parameter(source, name, parameter)
    ]
    if problems:
        raise ConfigError(problems)
    if components is None:
        beside = path.resolve().parents[2] / "components" if len(path.resolve().parents) > 2 else path.parent
        components = beside if beside.is_dir() else home() / "components"
    return Pipeline(document, source, components)


def _parameter(source: Source, name: str, parameter: Parameter) -> list[Problem]:
    """What is wrong with one declaration that its model cannot see."""
    path: FieldPath = ("parameters", name)
    problems = []
    if name == "run_dir":
        problems.append(source.problem(path, "the name is taken: every pipeline has run_dir; use ${run.dir}"))
    if parameter.type == "struct" and parameter.schema_ is None:
        problems.append(source.problem(path, "a struct needs schema: MODULE:CLASS, a pydantic model"))
    if parameter.type != "struct" and parameter.schema_ is not None:
        problems.append(
            source.problem((*path, "schema"), f"only a struct has a schema, and this is a {parameter.type}")
        )
    if parameter.schema_ is not None:
        try:
            parameter.model()
        except UserError as error:
            problems.append(source.problem((*path, "schema"), f"{error}"))
    if parameter.environment is not None and parameter.type != "string":
        problems.append(source.problem((*path, "environment"), "only a string can come from a variable"))
    if parameter.type not in ("integer", "number") and not parameter.minimum is parameter.maximum is None:
        problems.append(source.problem(path, f"bounds are for numbers, and this is a {parameter.type}"))
    if not parameter.required and parameter.type != "struct":
        problem = check_scalar(parameter, parameter.default)
        if problem:
            problems.append(source.problem((*path, "default"), problem))
    return problems


SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "struct": (dict,), "list": (list,),
}  # fmt: skip


def has_type(value: Any, type_: str) -> bool:
    """Whether a YAML value is of a parameter's type; true and false are no numbers."""
    return isinstance(value, SCALARS[type_]) and (type_ == "boolean" or not isinstance(value, bool))


def check_scalar(parameter: Parameter, value: Any) -> str | None:
    """What is wrong with the value of a parameter that is no struct, with the remedy; None if nothing is."""
    if not has_type(value, parameter.type):
        return f"must be of type {parameter.type}, but is {value!r}"
    if parameter.choices and value not in parameter.choices:
        return f"{value!r} is not one of the choices; {suggestion(str(value), map(str, parameter.choices))}"
    if parameter.minimum is not None and value < parameter.minimum:
        return f"must be at least {parameter.minimum:g}, but is {value!r}"
    if parameter.maximum is not None and value > parameter.maximum:
        return f"must be at most {parameter.maximum:g}, but is {value!r}"
    return None
