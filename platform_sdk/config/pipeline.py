"""What a pipeline may say: the parameters a recipe can set, and the steps that are wired to them.

``pipeline.yaml`` holds ``name``, ``description``, ``method``, ``parameters``, ``form`` and ``steps``. ``form`` lists
what a run may be started with on a cluster (``form.py``). A step names a component and wires its inputs
(``references.py``); ``repeat`` unrolls its steps some number of times, with values carried from one iteration to the
next (``plan.py``). No arithmetic, no logic.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, ValidationError

import platform_sdk
from platform_sdk.config.document import problems_of
from platform_sdk.config.errors import UserError
from platform_sdk.config.form import MOST, FormField, read_form
from platform_sdk.config.parameter import IDENTIFIER, Declaration, Parameter, problems_of_parameter
from platform_sdk.config.source import ConfigError, Source, load_source, suggestion
from platform_sdk.display import excerpt, shortened

# Of pipelines, steps and recipes. On a cluster a step with its iteration behind it is the value of a label, and so is a
# pipeline's workflow: 63 characters at most.
STEP_ID = r"^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$"


class Step(Declaration):
    """A component with its inputs wired. ``when`` is true, false or a boolean parameter that the form leaves alone: a
    step that it says false for is left out."""

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
    form: tuple[str, ...] = Field(
        default=(), max_length=MOST, description="what a run may be started with: parameters, or fields as online.kl"
    )
    steps: tuple[Block, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that was read: its declaration, where everything in it stands, and its components' folder."""

    document: Document
    form: tuple[FormField, ...]
    source: Source
    components: Path

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def run_time(self) -> dict[str, Parameter]:
        """The parameters that the form sets, or sets fields of; the others' values are known at compilation."""
        return {field.path[0]: self.document.parameters[field.path[0]] for field in self.form}

    def component_path(self, component: str) -> Path:
        return self.components / component / "component.py"


def home() -> Path:
    """Return the folder of ``pipelines/`` and ``components/``: the installed package's copy, or the checkout."""
    package = Path(platform_sdk.__file__).parent
    installed = package / "shipped"
    return installed if installed.is_dir() else package.parent


def find_pipeline(reference: str, recipe: Path) -> Path:
    """The ``pipeline.yaml`` that a recipe names: a path from the recipe's folder, or the name of a pipeline.

    Raises:
        UserError: there is none; the message says which there are.
    """
    if "/" in reference or reference.endswith((".yaml", ".yml")):
        path = recipe.parent / reference
        try:
            path = path / "pipeline.yaml" if path.is_dir() else path
            if path.is_file():
                return path
        except OSError as error:
            raise UserError(f"{shortened(str(path))}: cannot be read: {error.strerror}") from error
        raise UserError(f"{shortened(str(path), 500)}: no such pipeline")
    beside = recipe.resolve().parent / "pipeline.yaml"
    if beside.parent.name == reference and beside.is_file():
        return recipe.parent / "pipeline.yaml"
    shipped = {found.parent.name: found for found in (home() / "pipelines").glob("*/pipeline.yaml")}
    if reference not in shipped:
        raise UserError(f"there is no pipeline {excerpt(reference)}; {suggestion(reference, shipped)}")
    return shipped[reference]


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
    declared = document.parameters
    problems = [
        problem for name, parameter in declared.items() for problem in problems_of_parameter(source, name, parameter)
    ]
    form, wrong = read_form(source, document.form, declared) if not problems else ((), [])
    if problems := [*problems, *wrong]:
        raise ConfigError(problems)
    if components is None:
        beside = path.resolve().parents[2] / "components" if len(path.resolve().parents) > 2 else path.parent
        components = beside if beside.is_dir() else home() / "components"
    return Pipeline(document, form, source, components)
