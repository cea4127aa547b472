"""Model of a pipeline: the parameters a recipe can set, and the steps that are wired to them.

``pipeline.yaml`` holds ``name``, ``description``, ``method``, ``parameters``, ``form``, ``evaluation_only``, ``inputs``
and ``steps``.
``form`` lists the parameters that a run on a cluster sets (``form.py``). A step names a component and wires its inputs
(``references.py``); ``inputs`` are given to every step whose component has them. ``repeat`` unrolls its steps some
number of times, with values carried from one iteration to the next (``plan.py``). No arithmetic, no logic.
``extends`` names a pipeline that gives all that is left out (``inheritance.py``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

import platform_sdk
from platform_sdk.config.document import validated
from platform_sdk.config.errors import UserError
from platform_sdk.config.form import FormDeclaration, FormField, read_form
from platform_sdk.config.inheritance import extended
from platform_sdk.config.parameter import IDENTIFIER, Declaration, Parameter, problems_of_parameter
from platform_sdk.config.references import ParameterPart, parse
from platform_sdk.config.source import ConfigError, FieldPath, Source, load_source, suggestion
from platform_sdk.display import excerpt, shortened
from platform_sdk.files import read_object

METHOD = r"^[a-z][a-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"

# Names of pipelines, steps and recipes. On a cluster a step with its iteration is the value of a label, and so is a
# pipeline's workflow: 63 characters at most.
STEP_ID = r"^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$"


class Step(Declaration):
    """A component with its inputs wired. ``when`` is true, false or a boolean parameter outside the form: if it is
    false, the step is left out, and ``instead`` gives the replacement outputs."""

    id: str = Field(pattern=STEP_ID, description="the step's name, for references to its outputs")
    component: str = Field(
        pattern=METHOD, description="a shipped component, e.g. evaluate, or the module of your own: my_package.my_step"
    )
    when: bool | str = Field(True, description="false, or a boolean parameter; if it is false, the step is skipped")
    inputs: dict[str, Any] = Field(
        default_factory=dict, description="the component's inputs: values, or references, e.g. ${parameters.seed}"
    )
    group: str = Field(
        "", pattern=rf"{STEP_ID}|^$", description="on a cluster, the steps of a group are one step, e.g. warmup"
    )
    instead: dict[str, Any] = Field(
        default_factory=dict, description="values or references that replace the outputs if `when` is false"
    )


class Carry(Declaration):
    """A value passed between iterations: ``initial`` in the first one, then ``next`` of the previous one.

    With ``lag: 1``, iteration t gets the ``next`` of iteration t-2 from the third iteration on, so its steps do not
    wait for iteration t-1. The second iteration gets the ``next`` of the first, as without a lag.
    """

    initial: Any = Field(description="the value in the first iteration")
    next: Any = Field(description="the value for the next iteration, e.g. ${steps.train.outputs.model_path}")
    lag: int | bool | str = Field(0, description="1 or true: values are one iteration older, from the third on")


class Repeat(Declaration):
    count: int | str = Field(description="number of iterations, or a parameter, e.g. ${parameters.iterations}")
    as_: str = Field(
        default="iteration", alias="as", pattern=IDENTIFIER, description="name of the iteration number (from 1)"
    )
    carry: dict[str, Carry] = Field(
        default_factory=dict, description="values passed from iteration to iteration, used as ${carry.NAME}"
    )
    steps: tuple[Step, ...] = Field(min_length=1, description="the steps of an iteration")


class RepeatBlock(Declaration):
    repeat: Repeat = Field(description="steps that are unrolled several times")


def _kind(value: Any) -> str:
    return "repeat" if isinstance(value, dict) and "repeat" in value else "step"


Block = Annotated[Annotated[Step, Tag("step")] | Annotated[RepeatBlock, Tag("repeat")], Discriminator(_kind)]


class Document(Declaration):
    """A whole ``pipeline.yaml``."""

    name: str = Field(pattern=STEP_ID, description="the pipeline's name, which recipes refer to")
    description: str = Field(min_length=1, description="description for the Kubeflow UI")
    method: str = Field(pattern=METHOD, description="a shipped method, or the module of your own: my_package.my_method")
    parameters: dict[Annotated[str, Field(pattern=IDENTIFIER)], Parameter] = Field(
        description="parameters that a recipe may set, by name"
    )
    form: FormDeclaration = Field(
        default_factory=dict,
        description="fields shown in the Kubeflow UI by group, each with its setting: questions: selection.questions",
    )
    evaluation_only: dict[str, Any] = Field(
        default_factory=dict, description="settings, with the dotted names of --set, that disable training"
    )
    inputs: dict[str, Any] = Field(
        default_factory=dict, description="inputs of every step whose component has them; a step's own take precedence"
    )
    steps: tuple[Block, ...] = Field(min_length=1, description="steps and repeats, in their order")

    def placed_steps(self) -> list[tuple[Step, FieldPath]]:
        """Return every step with its place, including steps of repeats."""
        placed: list[tuple[Step, FieldPath]] = []
        for index, block in enumerate(self.steps):
            if isinstance(block, Step):
                placed.append((block, ("steps", index)))
            else:
                inner = ("steps", index, "repeat", "steps")
                placed += [(step, (*inner, number)) for number, step in enumerate(block.repeat.steps)]
        return placed


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that was read: its declaration with the lines."""

    document: Document
    form: tuple[FormField, ...]
    source: Source

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def run_time(self) -> dict[str, Parameter]:
        """Return the parameters that the form sets in whole or in part; all others are constant at compilation."""
        return {field.path[0]: self.document.parameters[field.path[0]] for field in self.form}

    @property
    def counts(self) -> frozenset[str]:
        """Return the parameters that are the counts of repeats."""
        repeats = [parse(block.repeat.count) for block in self.document.steps if isinstance(block, RepeatBlock)]
        return frozenset(count.name for count in repeats if isinstance(count, ParameterPart) and not count.fields)


def home() -> Path:
    """Return the folder of ``pipelines/`` and ``studies/``: the installed package's copy, or the checkout."""
    package = Path(platform_sdk.__file__).parent
    installed = package / "shipped"
    return installed if installed.is_dir() else package.parent


def own_or_shipped(path: Path) -> Path:
    """Return ``path``, or the shipped file of this relative path if no other exists."""
    shipped = home() / path
    return shipped if not os.path.exists(path) and os.path.isfile(shipped) else path


def find_pipeline(reference: str, recipe: Path) -> Path:
    """Return the ``pipeline.yaml`` that a recipe names: a path from the recipe's folder, or the name of a pipeline.

    Raises:
        UserError: the pipeline does not exist; the message lists the existing ones.
    """
    if "/" in reference or reference.endswith((".yaml", ".yml")):
        path = recipe.resolve().parent / reference if recipe.is_symlink() else recipe.parent / reference
        try:
            path = path / "pipeline.yaml" if path.is_dir() else path
            if path.is_file():
                return path
        except OSError as error:
            raise UserError(f"{shortened(str(path))}: cannot be read: {error.strerror}") from error
        raise UserError(f"{shortened(str(path), 500)}: no such pipeline")
    beside = recipe.resolve().parent / "pipeline.yaml"
    if beside.parent.name == reference and beside.is_file():
        return beside if recipe.is_symlink() else recipe.parent / "pipeline.yaml"
    shipped = {found.parent.name: found for found in (home() / "pipelines").glob("*/pipeline.yaml")}
    if reference not in shipped:
        raise UserError(
            f"there is no pipeline {excerpt(reference)}; {suggestion(reference, shipped)}; "
            "or name a path with a slash, e.g. ./my-pipeline",
            code="recipe.unknown-pipeline",
        )
    return shipped[reference]


def check_shipped(resolved: Path, remedy: str) -> None:
    """Check that the pipeline of a run's ``recipe.json`` exists; a file next to the original recipe may not.

    Raises:
        UserError: the pipeline does not exist; the message ends with ``remedy``.
    """
    name = read_object(resolved).get("pipeline")
    try:
        find_pipeline(str(name), resolved)
    except UserError as error:
        raise UserError(
            f"{resolved.parent}: is a run of pipeline {name}, which hopforge does not ship; {remedy}"
        ) from error


def load_pipeline(path: Path) -> Pipeline:
    """Read a ``pipeline.yaml``. Its wiring is checked by ``plan.make_plan``, with a recipe's values.

    Raises:
        ConfigError: with every problem there is in the declarations.
    """
    source = _load(path, ())
    return read_pipeline(source, validated(Document, source))


def _load(path: Path, children: tuple[Path, ...]) -> Source:
    """Read a pipeline with all that it takes from those it extends."""
    source = load_source(path)
    if "extends" not in source.data:
        return source
    reference = source.data["extends"]
    try:
        if not isinstance(reference, str):
            raise UserError("must be the name of a pipeline, or its path")
        base = find_pipeline(reference, path)
        if base.resolve() in (path.resolve(), *children):
            raise UserError(f"{base} extends this pipeline itself; name another one")
    except UserError as error:
        raise ConfigError([source.problem(("extends",), str(error))]) from error
    return extended(_load(base, (*children, path.resolve())), source)


def read_pipeline(source: Source, document: Document) -> Pipeline:
    """Return the pipeline that a document declares.

    Raises:
        ConfigError: with every problem there is in the declarations.
    """
    declared = document.parameters
    packages = ("platform_sdk", *([document.method.partition(".")[0]] if "." in document.method else []))
    problems = [
        problem
        for name, parameter in declared.items()
        for problem in problems_of_parameter(source, name, parameter, packages)
    ]
    form, wrong = read_form(source, document.form, declared) if not problems else ((), [])
    if problems := [*problems, *wrong]:
        raise ConfigError(problems)
    return Pipeline(document, form, source)
