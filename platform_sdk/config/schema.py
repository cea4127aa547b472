"""JSON Schema of recipes and pipelines, for editors."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.parameter import Parameter
from platform_sdk.config.pipeline import Document, Pipeline
from platform_sdk.config.recipe import RecipeDocument
from platform_sdk.config.teams import TeamsSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


EXTENDS = {
    "type": "string",
    "description": "a pipeline's name or path, which gives all that is left out. parameters, form, inputs and "
    "evaluation_only are merged by key, where null removes a key; a step with an id alone is taken from there",
}


def pipeline_schema() -> dict[str, Any]:
    """Return the schema of a ``pipeline.yaml``, a whole one or one that extends another."""
    whole = Document.model_json_schema(by_alias=True)
    definitions, properties, required = whole.pop("$defs"), whole.pop("properties"), whole.pop("required")
    steps = properties["steps"]["items"]
    taken = {
        "type": "object",
        "properties": {"id": definitions["Step"]["properties"]["id"]},
        "required": ["id"],
        "additionalProperties": False,
        "description": "the step of this id of the pipeline that is extended",
    }
    extension = {
        **{name: _or_null(properties[name]) for name in ("parameters", "inputs", "evaluation_only", "form")},
        "steps": {**properties["steps"], "items": {"anyOf": [*steps.get("oneOf", [steps]), taken]}},
    }
    described = {name: {"description": field["description"]} for name, field in properties.items()}
    return {
        "$schema": DIALECT,
        **whole,
        "properties": {"extends": EXTENDS, **described},
        "if": {"required": ["extends"]},
        "then": {"properties": {**properties, **extension}},
        "else": {"properties": properties, "required": required},
        "$defs": definitions,
    }


def teams_schema() -> dict[str, Any]:
    """Return the schema of a ``teams.yaml``."""
    return {"$schema": DIALECT, **TeamsSpec.model_json_schema()}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping whose values, also in nested mappings, may be null."""
    found = dict(schema)
    patterns = found.pop("patternProperties", {})
    found["patternProperties" if patterns else "additionalProperties"] = (
        {pattern: _nullable(inner) for pattern, inner in patterns.items()}
        if patterns
        else _nullable(schema.get("additionalProperties", True))
    )
    return found


def _nullable(inner: Any) -> Any:
    if not isinstance(inner, dict):
        return inner
    mapping = inner.get("type") == "object" and ("patternProperties" in inner or "additionalProperties" in inner)
    return {"anyOf": [_or_null(inner) if mapping else inner, {"type": "null"}]}


def recipe_schema(pipeline: Pipeline) -> dict[str, Any]:
    """Return the JSON Schema of the recipes of one pipeline."""
    declared = pipeline.document.parameters
    definitions: dict[str, Any] = {}
    properties = {name: _property(parameter, definitions) for name, parameter in declared.items()}
    # An environment variable may set a parameter that the recipe omits, and a default may lack required fields.
    required = [
        name
        for name, parameter in declared.items()
        if (parameter.required and parameter.environment is None) or (not parameter.required and _left(parameter))
    ]
    schema = RecipeDocument.model_json_schema()
    schema["properties"]["parameters"] = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        "description": "Values of the pipeline's parameters; omitted parameters have their defaults.",
    }
    schema["required"] = ["pipeline", "name", *(["parameters"] if required else [])]
    return {"$schema": DIALECT, **schema, "title": f"Recipe of {pipeline.name}", "$defs": definitions}


def _property(parameter: Parameter, definitions: dict[str, Any]) -> dict[str, Any]:
    model = parameter.model()
    description = f"{parameter.group}: {parameter.description}" if parameter.group else parameter.description
    if model is not None:
        schema = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        if parameter.default:  # the default may contain required fields
            schema["required"] = _left(parameter)
        return {**schema, "description": description}
    property: dict[str, Any] = {"type": parameter.type, "description": description}
    if parameter.module:
        property["anyOf"] = [{"enum": list(parameter.choices)}, {"pattern": r"\."}]
    elif parameter.choices:
        property["enum"] = list(parameter.choices)
    bounds = {"minimum": parameter.minimum, "maximum": parameter.maximum}
    property |= {name: bound for name, bound in bounds.items() if bound is not None}
    return property if parameter.required else {**property, "default": parameter.default}


def _left(parameter: Parameter) -> list[str]:
    """Return the fields of a struct that its model requires and the parameter's default lacks."""
    model = parameter.model()
    given = parameter.default or {}
    fields = {} if model is None else model.model_fields
    return [name for name, field in fields.items() if field.is_required() and name not in given]
