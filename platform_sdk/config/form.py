"""A pipeline's form: the parameters shown in the Kubeflow UI, the few that a run on a cluster sets.

``form`` in ``pipeline.yaml`` lists them: parameters, and fields of structs as ``online.kl``, whose type, choices,
bounds and text their pydantic model says. All else is fixed when the pipeline is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from platform_sdk.config.document import readable
from platform_sdk.config.errors import UserError
from platform_sdk.config.parameter import Parameter, check_scalar
from platform_sdk.config.source import Problem, Source, suggestion
from platform_sdk.display import excerpt

MAX_FIELDS = 10
TEXTS = [{"type": "string"}, {"items": {"type": "string"}, "type": "array"}]
"""The schema of one text or several, which a form holds in one line, divided by commas."""
TAKEN = ("run_dir", "recipe")  # inputs that the step which reads the form has besides

ScalarType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True)
class FormField:
    """One line of a form. ``name`` is what Kubeflow calls it, ``path`` the parameter and the fields in it."""

    name: str
    path: tuple[str, ...]
    type: ScalarType
    group: str
    description: str
    choices: tuple[str | int | float, ...]
    bounds: str

    @property
    def text(self) -> str:
        """Return the text that the UI shows beside the field."""
        group = f"{self.group}: " if self.group else ""
        return f"{group}{self.description}" + (f" ({self.bounds})" if self.bounds else "")

    def value_in(self, parameters: Mapping[str, Any]) -> Any:
        """Return its value among those of all parameters."""
        value: Any = parameters
        for part in self.path:
            value = value[part]
        if isinstance(value, list):
            return ", ".join(value)
        return float(value) if self.type == "number" else value


class _BadField(Exception):
    """Error in a line of the form."""


def read_form(
    source: Source, form: Sequence[str], declared: Mapping[str, Parameter]
) -> tuple[tuple[FormField, ...], list[Problem]]:
    """The fields of a form, and what is wrong with it."""
    fields: dict[str, FormField] = {}
    problems = []
    for index, entry in enumerate(form):
        try:
            field = _field(tuple(entry.split(".")), declared)
            if field.name in fields:
                raise _BadField(f"is called {field.name} like {'.'.join(fields[field.name].path)}; leave one out")
            fields[field.name] = field
        except _BadField as error:
            problems.append(source.problem(("form", index), f"{entry} {error}"))
    return tuple(fields.values()), problems


def _field(path: tuple[str, ...], declared: Mapping[str, Parameter]) -> FormField:
    name, *inner = path
    if name not in declared:
        raise _BadField(f"is not a parameter; {suggestion(name, declared)}")
    parameter = declared[name]
    if parameter.type != "struct":
        if inner:
            raise _BadField(f"is not a parameter: {name} is of type {parameter.type} and has no fields")
        found: dict[str, Any] = {
            "type": parameter.type, "description": parameter.description, "enum": parameter.choices,
            "minimum": parameter.minimum, "maximum": parameter.maximum,
        }  # fmt: skip
    else:
        found = _schema_at(parameter, inner)
    if not found.get("description"):
        raise _BadField("has no description; give the field one in its model")
    label = "_".join(path)
    if label in TAKEN:
        raise _BadField("has a name that is taken; rename the parameter")
    choices = tuple(found.get("enum") or ())
    text = "".join(f"{part}: ".replace("_", " ") for part in inner) + found["description"].rstrip(".")
    return FormField(label, path, _scalar_type(found), parameter.group, text, choices, _bounds(found))


def _schema_at(parameter: Parameter, fields: Sequence[str]) -> dict[str, Any]:
    """The JSON Schema of a field of a struct."""
    model = parameter.model()
    assert model is not None, "load_pipeline has checked that a struct has a schema"
    node: dict[str, Any] = model.model_json_schema()
    definitions = node.get("$defs", {})

    def resolved(found: dict[str, Any]) -> dict[str, Any]:
        return {**definitions.get(found.get("$ref", "").rpartition("/")[2], {}), **found}

    node = resolved(node)  # a model that holds itself, as a mixture of datasets, is a reference as a whole
    for part in fields:
        known = node.get("properties", {})
        if part not in known:
            raise _BadField(f"is not a field: there is no {excerpt(part)}; {suggestion(part, known)}")
        node = resolved(known[part])
    return node


def _scalar_type(schema: Mapping[str, Any]) -> ScalarType:
    found = schema.get("type")
    if schema.get("anyOf") == TEXTS:
        return "string"
    if found in ("string", "integer", "number", "boolean"):
        return found  # type: ignore[no-any-return]
    what = "may be null" if "anyOf" in schema else "is not a single value"
    raise _BadField(f"{what}, and the form holds texts, numbers, choices and switches; name a field of one of these")


_BOUNDS = (
    ("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"), ("exclusiveMaximum", "below"),
)  # fmt: skip


def _bounds(schema: Mapping[str, Any]) -> str:
    return ", ".join(f"{word} {schema[key]:.12g}" for key, word in _BOUNDS if schema.get(key) is not None)


def with_value(tree: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of ``tree`` with the value at ``path`` replaced."""
    head, *rest = path
    if rest:
        inner = tree.get(head)
        value = with_value(inner if isinstance(inner, dict) else {}, rest, value)
    return {**tree, head: value}


def filled_in(
    parameters: Mapping[str, Any], declared: Mapping[str, Parameter], filled: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of all parameters once the form was filled in.

    Args:
        declared: Of the parameters that the form sets, or sets fields of.
        filled: The form's values by their dotted path.

    Raises:
        UserError: with everything that is wrong with the values.
    """
    values = dict(parameters)
    for path, value in filled.items():
        values = with_value(values, path.split("."), value)
    problems = []
    for name, parameter in declared.items():
        model = parameter.model()
        if model is None:
            if problem := check_scalar(parameter, values[name]):
                problems.append(f"{name}: {problem}")
            continue
        try:
            values[name] = model.model_validate(values[name]).model_dump(mode="json")
        except ValidationError as error:
            for item in error.errors():
                place = ".".join(str(part) for part in (name, *item["loc"]))
                given = "" if isinstance(item["input"], (dict, list)) else f" (it is {excerpt(item['input'])})"
                problems.append(f"{place}: {readable(item['msg'])}{given}")
    if problems:
        raise UserError("the run cannot be started with these values:\n" + "\n".join(f"  {text}" for text in problems))
    return values
