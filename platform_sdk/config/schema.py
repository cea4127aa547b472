"""JSON Schema of recipes and pipelines, for editors."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.parameter import Parameter
from platform_sdk.config.pipeline import Document, Pipeline
from platform_sdk.config.recipe import RecipeDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def pipeline_schema() -> dict[str, Any]:
    """The schema of a ``pipeline.yaml``."""
    return {"$schema": DIALECT, **Document.model_json_schema(by_alias=True)}


def recipe_schema(pipeline: Pipeline) -> dict[str, Any]:
    """The schema of the recipes of one pipeline."""
    declared = pipeline.document.parameters
    definitions: dict[str, Any] = {}
    properties = {name: _property(parameter, definitions) for name, parameter in declared.items()}
    schema = RecipeDocument.model_json_schema()
    schema["properties"]["parameters"] = {
        "type": "object",
        "properties": properties,
        "required": [name for name, parameter in declared.items() if parameter.required],
        "additionalProperties": False,
    }
    schema["required"] = ["pipeline", "name", "parameters"]
    return {"$schema": DIALECT, **schema, "title": f"Recipe of {pipeline.name}", "$defs": definitions}


def _property(parameter: Parameter, definitions: dict[str, Any]) -> dict[str, Any]:
    model = parameter.model()
    description = f"{parameter.group}: {parameter.description}" if parameter.group else parameter.description
    if model is not None:
        schema = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        if parameter.default:
            # The pipeline's default may give what the model asks for.
            left = [name for name in schema.pop("required", []) if name not in parameter.default]
            schema |= {"required": left} if left else {}
        return {**schema, "description": description}
    property: dict[str, Any] = {"type": parameter.type, "description": description}
    if parameter.choices:
        property["enum"] = list(parameter.choices)
    bounds = {"minimum": parameter.minimum, "maximum": parameter.maximum}
    property |= {name: bound for name, bound in bounds.items() if bound is not None}
    return property if parameter.required else {**property, "default": parameter.default}
