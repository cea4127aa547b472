"""Model of a recipe: a pipeline, and values for its parameters. Everything is checked before anything runs."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from platform_sdk.config.bounded_yaml import MAX_DEPTH
from platform_sdk.config.code import add_source_folder
from platform_sdk.config.document import causes, field_path, readable, validated
from platform_sdk.config.errors import Code, UserError
from platform_sdk.config.form import FormField, fields_for, with_value
from platform_sdk.config.parameter import Parameter, check_scalar
from platform_sdk.config.pipeline import STEP_ID, Pipeline, find_pipeline, load_pipeline, own_or_shipped
from platform_sdk.config.plan import make_plan
from platform_sdk.config.source import (
    MAX_PROBLEMS,
    ConfigError,
    FieldPath,
    Problem,
    Source,
    dotted,
    load_source,
    parse_value,
    suggestion,
)
from platform_sdk.config.struct import Struct, models_in
from platform_sdk.config.task import RUN_DIR, UNKNOWN, Constant, FromParameter, Group, Task
from platform_sdk.config.whole import whole_numbers
from platform_sdk.credentials import has_credentials
from platform_sdk.display import excerpt, shortened

M = TypeVar("M", bound=BaseModel)


class RecipeDocument(Struct):
    """A whole recipe file."""

    pipeline: str = Field(description="name of a pipeline, or its path relative to the recipe")
    name: str = Field(pattern=STEP_ID, description="name of the run and of its directory, runs/NAME")
    description: str = Field(default="", description="purpose of the run; the report shows it")
    parameters: dict[str, Any] = Field(default_factory=dict, description="values of the pipeline's parameters")


@dataclass(frozen=True)
class Recipe:
    """A recipe with every value resolved, and the tasks it unrolls to.

    ``parameters`` holds plain JSON values, defaults included.
    """

    path: Path
    name: str
    description: str
    pipeline: Pipeline
    parameters: dict[str, Any]
    plan: tuple[Task, ...]
    groups: tuple[Group, ...] = ()

    def resolved(self) -> dict[str, Any]:
        """Return the content of ``recipe.json``: everything that decides the outcome of a run."""
        return {"pipeline": self.pipeline.name, "name": self.name, "parameters": self.parameters}

    @property
    def run_time(self) -> dict[str, Parameter]:
        """The parameters that the form sets, or sets fields of, and that a step or the plan's length depends on."""
        wires = (wire for task in self.plan for wire in task.inputs.values())
        used = {wire.name for wire in wires if isinstance(wire, FromParameter)} | self.pipeline.counts
        return {name: parameter for name, parameter in self.pipeline.run_time.items() if name in used}

    @property
    def form(self) -> tuple[FormField, ...]:
        """The fields of the pipeline's form that this recipe's steps use."""
        return tuple(field for field in self.pipeline.form if field.path[0] in self.run_time)

    def settings(self, name: str) -> Any:
        """A struct parameter as its pydantic model."""
        model = self.pipeline.document.parameters[name].model()
        assert model is not None, f"{name} is a struct"
        return model.model_validate(self.parameters[name])

    @cached_property
    def structs(self) -> dict[str, BaseModel]:
        """Every struct parameter as its pydantic model."""
        declared = self.pipeline.document.parameters
        return {name: self.settings(name) for name, parameter in declared.items() if parameter.type == "struct"}

    def known_inputs(self, task: Task, run_dir: Path | None = None) -> dict[str, Any]:
        """Return the inputs of a task that do not depend on the results of other tasks.

        Args:
            run_dir: the run's directory; None leaves out the inputs that are this directory.
        """
        values = self.parameters if run_dir is None else {**self.parameters, RUN_DIR: str(run_dir)}
        return {
            name: wire.value if isinstance(wire, Constant) else values[wire.name]
            for name, wire in task.inputs.items()
            if isinstance(wire, Constant) or (isinstance(wire, FromParameter) and wire.name in values)
        }

    def models(self, kind: type[M]) -> Iterator[tuple[FieldPath, M]]:
        """Yield every model of a kind in the struct parameters, an outer one before those inside it, with its path."""
        return ((path, model) for path, model in self._models if isinstance(model, kind))

    @cached_property
    def _models(self) -> tuple[tuple[FieldPath, BaseModel], ...]:
        return tuple(models_in(self.structs))


def load_recipe(path: Path, overrides: Sequence[str] = (), variables: Mapping[str, str] = os.environ) -> Recipe:
    """Read a recipe, apply ``--set`` overrides, fill in the defaults, and check everything.

    Python modules in the recipe's folder are importable, also by the steps of its run.

    A value comes from ``--set``, else the recipe, else the pipeline's default (a struct's keys one by one), else
    the default of the struct's model.

    Args:
        path: The recipe's file. A relative path that does not exist here, e.g. ``pipelines/mygo/world.yaml``, may be
            a shipped recipe's.
        overrides: ``PATH=VALUE`` with PATH a parameter or a field in it (``selection.attempts``), VALUE read as YAML.
        variables: The environment that parameters may take their default from, e.g. a cluster's.

    Raises:
        ConfigError: with every problem of recipe, overrides and wiring, each with file, line, field and remedy.
    """
    path = own_or_shipped(path)
    source = load_source(path)
    add_source_folder(path.parent)
    document = validated(RecipeDocument, source)
    try:
        pipeline_path = find_pipeline(document.pipeline, path)
    except UserError as error:
        raise ConfigError([source.problem(("pipeline",), str(error))]) from error
    pipeline = load_pipeline(pipeline_path)
    values, wrong = resolve_values(pipeline, source, overrides, variables)
    if not wrong:
        pipeline = replace(pipeline, form=fields_for(pipeline.form, values))
    plan, problems = make_plan(pipeline, values)
    if wrong or problems:
        raise ConfigError([*wrong, *problems])
    return Recipe(path, document.name, document.description, pipeline, values, plan.tasks, plan.groups)


def resolve_values(
    pipeline: Pipeline, source: Source, overrides: Sequence[str] = (), variables: Mapping[str, str] = os.environ
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the value of every parameter (``UNKNOWN`` for an invalid one), and all problems.

    The rules are the JSON Schema's (``schema.recipe_schema``): YAML's own types, so neither ``"3"`` nor ``true`` is a
    number; a whole float, e.g. ``1e3``, is an integer. Rules across fields are checked in addition.
    """
    resolver = _Resolver(pipeline, source, overrides, variables)
    return resolver.values(), resolver.problems


class _Resolver:
    """Resolution of parameter values, with a list of problems."""

    def __init__(
        self, pipeline: Pipeline, source: Source, overrides: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        self.pipeline = pipeline
        self.source = source
        self.variables = variables
        self.problems: list[Problem] = []
        self.given: dict[str, Any] = whole_numbers(source.data.get("parameters") or {})
        self.overridden: dict[FieldPath, str] = {}
        for override in overrides:
            self._override(override)

    def problem(self, path: FieldPath, message: str, code: Code | None = None) -> None:
        """Note a problem of the parameter at ``path``, at the ``--set`` that gave it or its line in the recipe."""
        # The override of the value or of an enclosing struct; for a problem of a whole struct, its fields' overrides.
        around = [self.overridden[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.overridden]
        inside = [place for given, place in self.overridden.items() if given[: len(path)] == path]
        if around or inside:
            self.problems.append(Problem((around or [" ".join(inside)])[0], dotted(path), message, code))
            return
        self.problems.append(self.source.problem(("parameters", *path), message, code))

    def _override(self, override: str) -> None:
        place = f"--set {override}"
        name, equals, text = override.partition("=")
        path = tuple(name.split(".", MAX_DEPTH))
        if not equals or not all(path) or len(path) > MAX_DEPTH:
            self.problems.append(Problem(place, "", "must look like parameter=value or parameter.field=value"))
            return
        declared = self.pipeline.document.parameters
        if path[0] not in declared:
            self.problems.append(
                Problem(
                    place,
                    path[0],
                    f"there is no such parameter; {suggestion(path[0], declared)}",
                    "recipe.unknown-parameter",
                )
            )
            return
        if len(path) > 1 and declared[path[0]].type != "struct":
            message = f"is of type {declared[path[0]].type} and has no fields; use --set {path[0]}=…"
            self.problems.append(Problem(place, path[0], message))
            return
        try:
            value = whole_numbers(parse_value(text))
        except ValueError as error:
            self.problems.append(Problem(place, name, str(error)))
            return
        self.given = with_value(self.given, path, value)
        self.overridden[path] = place

    def values(self) -> dict[str, Any]:
        declared = self.pipeline.document.parameters
        unknown = [name for name in self.given if name not in declared]
        for name in unknown[:MAX_PROBLEMS]:
            message = f"there is no such parameter; {suggestion(name, declared)}"
            self.problem((name,), message, "recipe.unknown-parameter")
        if len(unknown) > MAX_PROBLEMS:
            self.problem((), f"{len(unknown) - MAX_PROBLEMS} more of these are not parameters")
        return {name: self._value(name, parameter) for name, parameter in declared.items()}

    def _value(self, name: str, parameter: Parameter) -> Any:
        if parameter.type == "struct":
            return self._struct(name, parameter)
        # A run without the variable records its empty default, which must not hide the variable from later commands.
        unset = name in self.given and self.given[name] == "" == parameter.default and (name,) not in self.overridden
        if name in self.given and not (unset and parameter.environment):
            value = self.given[name]
        elif parameter.environment and self.variables.get(parameter.environment):
            value = self.variables[parameter.environment]
        elif not parameter.required:
            value = parameter.default
        else:
            return self._missing(name, parameter)
        if problem := check_scalar(parameter, value):
            self.problem((name,), problem)
            return UNKNOWN
        return float(value) if parameter.type == "number" else value

    def _missing(self, name: str, parameter: Parameter) -> Any:
        message = f"is required ({parameter.description}); add it under parameters, or --set {name}=…"
        self.problem((name,), message, "recipe.missing-parameter")
        return UNKNOWN

    def _struct(self, name: str, parameter: Parameter) -> Any:
        model = parameter.model()
        assert model is not None, "load_pipeline has checked that a struct has a schema"
        if name not in self.given and parameter.required:
            return self._missing(name, parameter)
        given = self.given.get(name, {})
        if not isinstance(given, dict):
            self.problem((name,), f"must be a mapping of its fields, but is {excerpt(given)}")
            return UNKNOWN
        try:
            # Validate as JSON: pydantic's strict mode would otherwise require tuples instead of YAML's lists.
            checked = model.model_validate_json(json.dumps(_laid_over(given, parameter.default or {})), strict=True)
        except ValidationError as error:
            found = causes(error)
            for item in found[:MAX_PROBLEMS]:
                path = (name, *field_path(item["loc"], given, item["type"]))
                self.problem(path, _remedy(model, item))
            if len(found) > MAX_PROBLEMS:
                self.problem((name,), f"has {len(found) - MAX_PROBLEMS} more problems")
            return UNKNOWN
        content: dict[str, Any] = checked.model_dump(mode="json")
        for field, value in content.items():
            if has_credentials(value):  # where the model allows any value, e.g. an engine's further arguments
                self.problem((name, field), "must not hold user:password@, since recipes are stored; leave it out")
        return content


def _laid_over(upper: Any, lower: Any) -> Any:
    if not (isinstance(upper, dict) and isinstance(lower, dict)):
        return upper
    return {**lower, **{key: _laid_over(value, lower.get(key)) for key, value in upper.items()}}


def _remedy(model: type[BaseModel], item: ErrorDetails) -> str:
    type_, location, value = item["type"], item["loc"], item["input"]
    if type_.startswith("union_tag_"):
        known = re.findall("'([^']+)'", item.get("ctx", {}).get("expected_tags", ""))
        found = item.get("ctx", {}).get("tag")
        return f"there is no type {found}; {suggestion(found, known)}" if found else "needs a type"
    if type_ == "missing":
        return "is required; add it"
    if type_ == "extra_forbidden":
        name = str(location[-1])
        known = _fields(model, location[:-1])
        near = difflib.get_close_matches(shortened(name), known, n=1)
        return f"there is no such field; {f'did you mean {near[0]}? ' if near else ''}known are {', '.join(known)}"
    message = readable(item["msg"]).removeprefix("Input ")
    if isinstance(value, (dict, list)) or (isinstance(value, str) and value in message):
        return message
    told = f"{message}, but is {excerpt(value)}"
    if type_ in ("int_type", "float_type") and isinstance(value, str):
        return f"{told}; write a number, without quotes"
    return f"{told}; write true or false" if type_ == "bool_type" else told


def _fields(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the model at ``location``; for a union, the fields of all branches."""
    models = [model]
    for part in location:
        annotations = [m.model_fields[part].annotation for m in models if part in m.model_fields]
        if annotations:
            models = [found for annotation in annotations for found in _models(annotation)]
        else:  # the type of a union's branch
            models = [each for each in models if part in _types(each)] or models
    return sorted({name for found in models for name in found.model_fields})


def _types(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type")
    return () if field is None else get_args(field.annotation)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models(argument)]
