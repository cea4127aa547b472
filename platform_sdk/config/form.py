"""A pipeline's form: the parameters shown in the Kubeflow UI, the few that a run on a cluster sets.

The UI shows only names and types, in alphabetical order. ``form`` in ``pipeline.yaml`` therefore groups the fields and
names each one in words; the name of a field is built of both: ``c2_method_questions_per_iteration``. The pydantic model
of a struct gives the type, choices, bounds and description of its fields. All other values are fixed at compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from platform_sdk.config.document import causes, field_path, readable
from platform_sdk.config.errors import UserError
from platform_sdk.config.parameter import IDENTIFIER, Parameter, check_scalar
from platform_sdk.config.source import Problem, Source, suggestion
from platform_sdk.config.struct import Struct
from platform_sdk.display import excerpt

MAX_FIELDS = 10
MAX_IN_GROUP = 9  # a second digit would sort before the first fields
SHORT_BOUND = 1000
"""Integer bounds below this are part of a field's name, since the UI shows no other text."""

Group = Literal["data", "model", "method", "training", "evaluation", "run"]
Words = Annotated[str, Field(pattern=IDENTIFIER, max_length=45)]
FormDeclaration = dict[Group, Annotated[dict[Words, str], Field(max_length=MAX_IN_GROUP)]]
"""Settings by the words that name them in the form, by group."""
ScalarType = Literal["string", "integer", "number", "boolean"]


class FormField(Struct):
    """One line of a form. ``name`` is its name in Kubeflow, ``path`` the parameter and the fields inside it.

    ``name`` starts with the group's letter and the field's number in the group, so that names sort in the form's order.
    """

    name: str
    path: tuple[str, ...]
    type: ScalarType
    group: str
    label: str
    description: str
    choices: tuple[str | int | float, ...]
    bounds: str

    @property
    def setting(self) -> str:
        """Return the dotted name that ``--set`` takes."""
        return ".".join(self.path)

    @property
    def text(self) -> str:
        """Return one line that describes the field: meaning, bounds and setting."""
        bounds = f" ({self.bounds})" if self.bounds else ""
        return f"{self.description[:1].upper()}{self.description[1:]}{bounds}. Setting: {self.setting}"

    def value_in(self, parameters: Mapping[str, Any]) -> Any:
        """Return the field's value from the values of all parameters."""
        value: Any = parameters
        for part in self.path:
            value = value[part]
        if isinstance(value, list):
            return ", ".join(value)
        return float(value) if self.type == "number" else value


class _BadField(Exception):
    """Error in a line of the form."""


def read_form(
    source: Source, form: Mapping[Group, Mapping[str, str]], declared: Mapping[str, Parameter]
) -> tuple[tuple[FormField, ...], list[Problem]]:
    """Return the fields of a form in the order of their names, and the problems of its lines."""
    fields: dict[tuple[str, ...], FormField] = {}
    problems = []
    for letter, group in zip("abcdef", get_args(Group), strict=True):
        for number, (words, setting) in enumerate(form.get(group, {}).items(), 1):
            path = tuple(setting.split("."))
            try:
                if path in fields:
                    raise _BadField(f"is in the form twice, also as {fields[path].label}; leave one out")
                fields[path] = _field(f"{letter}{number}", group, words, path, declared)
            except _BadField as error:
                problems.append(source.problem(("form", group, words), f"{setting} {error}"))
    if len(fields) > MAX_FIELDS:
        problems.append(source.problem(("form",), f"has {len(fields)} fields; leave at most {MAX_FIELDS}"))
    return tuple(fields.values()), problems


def fields_for(fields: Sequence[FormField], parameters: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the fields that have a value in a recipe's parameters; the UI shows the others as empty boxes."""
    return tuple(field for field in fields if field.value_in(parameters) not in ("", None))


def _field(
    position: str, group: str, words: str, path: tuple[str, ...], declared: Mapping[str, Parameter]
) -> FormField:
    name, *inner = path
    if name not in declared:
        raise _BadField(f"is not a parameter; {suggestion(name, declared)}")
    parameter = declared[name]
    if parameter.type != "struct":
        if inner:
            raise _BadField(f"is not a parameter: {name} is of type {parameter.type} and has no fields")
        schema: dict[str, Any] = {
            "type": parameter.type, "description": parameter.description, "enum": parameter.choices,
            "minimum": parameter.minimum, "maximum": parameter.maximum,
        }  # fmt: skip
    else:
        schema = _schema_at(parameter, inner)
    if not schema.get("description"):
        raise _BadField("has no description; give the field one in its model")
    return FormField(
        name=f"{position}_{group}_{words}{_range(schema)}",
        path=path,
        type=_scalar_type(schema),
        group=group,
        label=words.replace("_", " "),
        description=schema["description"].rstrip("."),
        choices=tuple(schema.get("enum") or ()),
        bounds=_bounds(schema),
    )


def _schema_at(parameter: Parameter, path: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of a field of a struct: its type, description, choices and bounds.

    Pydantic's own schema of a whole struct takes as long as everything else that ``hopforge validate`` does.
    """
    model = parameter.model()
    assert model is not None, "load_pipeline has checked that a struct has a schema"
    field = FieldInfo(annotation=model, description=parameter.description)
    for part in path:
        inside = field.annotation
        known = inside.model_fields if isinstance(inside, type) and issubclass(inside, BaseModel) else {}
        if part not in known:
            raise _BadField(f"is not a field: there is no {excerpt(part)}; {suggestion(part, known)}")
        field = known[part]
        if field.exclude_if is not None:
            raise _BadField("is left out of recipes at its default, so it cannot be in a form; name another field")
    bounds = {
        name: getattr(rule, attribute)
        for name, attribute, _ in _BOUNDS
        for rule in field.metadata
        if getattr(rule, attribute, None) is not None
    }
    # A validator that runs before may accept another type.
    accepted = [rule.json_schema_input_type for rule in field.metadata if isinstance(rule, BeforeValidator)]
    annotation = next((each for each in accepted if each is not PydanticUndefined), field.annotation)
    return {"description": field.description or "", **_type_of(annotation), **bounds}


_TYPES: dict[Any, ScalarType] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LISTS = (list[str], tuple[str, ...])


def _type_of(annotation: Any) -> dict[str, Any]:
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        types = {_TYPES.get(type(choice)) for choice in arguments}
        return {"type": types.pop() if len(types) == 1 else None, "enum": arguments}
    if len(arguments) == 2 and str in arguments and any(each in arguments for each in _LISTS):
        return {"type": "string"}  # one text or several: a form holds them in one line, divided by commas
    if type(None) in arguments:
        return {"null": True}
    return {"type": _TYPES.get(annotation)}


def _scalar_type(schema: Mapping[str, Any]) -> ScalarType:
    found: ScalarType | None = schema.get("type")
    if found is not None:
        return found
    what = "may be null" if schema.get("null") else "is not a single value"
    raise _BadField(f"{what}, and the form holds texts, numbers, choices and switches; name a field of one of these")


_BOUNDS = (
    ("minimum", "ge", "at least"), ("exclusiveMinimum", "gt", "above"), ("maximum", "le", "at most"),
    ("exclusiveMaximum", "lt", "below"),
)  # fmt: skip


def _bounds(schema: Mapping[str, Any]) -> str:
    return ", ".join(f"{word} {schema[key]:,.12g}" for key, _, word in _BOUNDS if schema.get(key) is not None)


def _range(schema: Mapping[str, Any]) -> str:
    """Return the bounds of a small integer as the end of a name, e.g. ``_0_to_20``; nothing for other fields."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") != "integer" or schema.get("enum") or low is None or high is None:
        return ""
    return f"_{low:.0f}_to_{high:.0f}" if 0 <= low <= high < SHORT_BOUND else ""


def with_value(tree: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of ``tree`` with the value at ``path`` replaced."""
    head, *rest = path
    if rest:
        inner = tree.get(head)
        value = with_value(inner if isinstance(inner, dict) else {}, rest, value)
    return {**tree, head: value}


def check_form(
    form: Mapping[str, str], parameters: Mapping[str, Any], declared: Mapping[str, Parameter], filled: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of all parameters with the form's values in them.

    Args:
        form: The dotted setting of each field, by the field's name.
        parameters: The recipe's values of all parameters.
        declared: The parameters that the form sets, or sets fields of.
        filled: The form's values, by the field's name.

    Raises:
        UserError: every value that is not allowed, each with the field's name and its setting.
    """
    values = dict(parameters)
    for name, value in filled.items():
        values = with_value(values, form[name].split("."), value)
    problems = []
    for name, parameter in declared.items():
        model = parameter.model()
        if model is None:
            if problem := check_scalar(parameter, values[name]):
                problems.append(f"{_named((name,), form, filled)}: {problem}")
            continue
        try:
            values[name] = model.model_validate(values[name]).model_dump(mode="json")
        except ValidationError as error:
            for item in causes(error):
                given = "" if isinstance(item["input"], (dict, list)) else f" (it is {excerpt(item['input'])})"
                place = _named((name, *map(str, field_path(item["loc"], values[name], item["type"]))), form, filled)
                problems.append(f"{place}: {readable(item['msg'])}{given}")
    if problems:
        raise UserError("the run cannot be started with these values:\n" + "\n".join(f"  {text}" for text in problems))
    return values


def _named(path: tuple[str, ...], form: Mapping[str, str], filled: Mapping[str, Any]) -> str:
    """Return the form's fields that set the value at ``path`` or a part of it, each with its setting."""
    setting = ".".join(path)
    # A list of texts is one field, and the problem of a struct may come from any of its fields.
    exact = [n for n in filled if form[n] == setting or setting.startswith(f"{form[n]}.")]
    names = exact or [n for n in filled if form[n].startswith(f"{setting}.")]
    return ", ".join(f"{n} ({form[n]})" for n in names) or setting
