"""Parameter of a pipeline: type, descriptions and constraints."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from platform_sdk.config.bounded_yaml import number_fault
from platform_sdk.config.code import find_definition, import_definition
from platform_sdk.config.errors import UserError
from platform_sdk.config.source import FieldPath, Problem, Source, suggestion
from platform_sdk.credentials import has_credentials
from platform_sdk.display import excerpt

IDENTIFIER = r"^[a-z][a-z0-9_]*$"

ModelType = type[BaseModel]


class Declaration(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, defer_build=True)


class Parameter(Declaration):
    """A parameter of a pipeline. Without ``default`` and ``environment``, every recipe must give its value.

    ``schema`` is the pydantic model of a ``struct``, as ``module:Class``; the recipe's value is merged into ``default``
    key by key.
    """

    type: Literal["string", "integer", "number", "boolean", "struct"] = Field(description="type; a struct needs schema")
    description: str = Field(min_length=1, description="explanation for editors and the Kubeflow UI")
    default: Any = Field(default=None, description="default value; without it every recipe must give one")
    choices: tuple[str | int | float, ...] = Field(default=(), description="allowed values; empty: all")
    module: str | None = Field(
        default=None,
        pattern=r"^[A-Z][A-Z_]*$",
        description="also allow the dotted name of a module that defines this name",
    )
    minimum: float | None = Field(default=None, description="minimum of a number")
    maximum: float | None = Field(default=None, description="maximum of a number")
    group: str = Field(default="", description="heading in the Kubeflow UI")
    schema_: str | None = Field(
        default=None, alias="schema", pattern=r"^[\w.]+:\w+$", description="a struct's pydantic model, module:Class"
    )
    environment: str | None = Field(default=None, description="environment variable that overrides the default")

    @property
    def required(self) -> bool:
        return "default" not in self.model_fields_set

    def model(self) -> ModelType | None:
        """The pydantic model of a struct.

        Raises:
            UserError: ``schema`` names no pydantic model.
        """
        return None if self.schema_ is None else _schema_model(self.schema_)


@cache
def _schema_model(name: str) -> ModelType:
    module, _, wanted = name.partition(":")
    found = getattr(sys.modules.get(module), wanted, None)
    if getattr(found, "__module__", None) != module:  # not imported yet, or not defined there
        try:
            find_definition(name)
        except ValueError as error:
            raise UserError(f"schema {error}") from error
        found = import_definition(name)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise UserError(f"schema {name} is not a pydantic model")
    return found


def problems_of_parameter(source: Source, name: str, parameter: Parameter, packages: Collection[str]) -> list[Problem]:
    """Return the problems of a declaration that its model cannot check; ``packages`` may hold its schema."""
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
    if parameter.schema_ is not None and re.split("[.:]", parameter.schema_)[0] not in packages:
        # Checking a recipe imports the models. It runs no other code, so a model is hopforge's or the method's own.
        message = (
            f"schema {parameter.schema_} is refused: it must be a model of hopforge (platform_sdk.…) or of the package "
            "that `method` names, e.g. method: my_package.my_method"
        )
        problems.append(source.problem((*path, "schema"), message))
    elif parameter.schema_ is not None:
        try:
            parameter.model()
        except UserError as error:
            problems.append(source.problem((*path, "schema"), f"{error}"))
    if parameter.environment is not None and parameter.type != "string":
        problems.append(source.problem((*path, "environment"), "only a string can come from a variable"))
    if parameter.module is not None and not (parameter.type == "string" and parameter.choices):
        problems.append(source.problem((*path, "module"), "only a string with choices can name a module instead"))
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
    """Return whether a YAML value is of a parameter's type; true and false are not numbers."""
    return isinstance(value, SCALARS[type_]) and (type_ == "boolean" or not isinstance(value, bool))


def check_scalar(parameter: Parameter, value: Any) -> str | None:
    """Return the error and remedy for the value of a parameter that is not a struct, or None."""
    if not has_type(value, parameter.type):
        return f"must be of type {parameter.type}, but is {excerpt(value)}"
    if has_credentials(value):
        return f"must not hold user:password@, since recipes are stored; leave it out of {excerpt(value)}"
    if isinstance(value, float) and (fault := number_fault(value)):
        return f"{value} {fault}"
    if parameter.module and isinstance(value, str) and "." in value:
        try:
            find_definition(f"{value}:{parameter.module}")
        except ValueError as error:
            return str(error)
    elif parameter.choices and value not in parameter.choices:
        known = suggestion(str(value), map(str, parameter.choices), module=bool(parameter.module))
        return f"{excerpt(value)} is not one of the choices; {known}"
    if parameter.minimum is not None and value < parameter.minimum:
        return f"must be at least {parameter.minimum:.12g}, but is {excerpt(value)}"
    if parameter.maximum is not None and value > parameter.maximum:
        return f"must be at most {parameter.maximum:.12g}, but is {excerpt(value)}"
    return None
