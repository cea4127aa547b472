"""Schema and validator accept the same recipes, and every field is described."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from platform_sdk.config.pipeline import Pipeline, find_pipeline, load_pipeline
from platform_sdk.config.recipe import RecipeDocument, resolve_values
from platform_sdk.config.schema import pipeline_schema
from platform_sdk.config.source import Source, load_source
from tests.config.schemas import PIPELINES, generated

RECIPES = sorted(path for path in PIPELINES.glob("*/*.yaml") if path.name != "pipeline.yaml")
NAMES = sorted(path.parent.name for path in PIPELINES.glob("*/pipeline.yaml"))
# What the validator refuses beyond the schema: rules across fields, and names and addresses that mean something.
BEYOND = {
    "dataset: what its format takes": r"^format (world|mixed|\w+) |^mixture: |^world is for|^name question files"
    r"|^labels is for",
    "world: a context that holds the gold passages": r"^context: ",
    "credentials in a recipe": r"user:password@|is not a setting|must not hold",
    "addresses": r": an endpoint is named|has no valid host and port"
    r"|: a Milvus server's address|is neither a server|service's address is",
    "retrieval: its method, and that method's settings": r"there is no retrieval method|names no module|is refused"
    r"|cannot be found|settings need a method|there is no setting"
    r"|validation errors? for|^collection needs a retriever service|^processes encode on this machine",
    "retrieval: what the back end has": r"^index\.",
    "engine: arguments of another engine": r"^url is of a server|^gpus is what|^extra holds|^extra\.\w+ must be",
    "training: rates and what online training takes": r"is above learning_rate|^deepspeed zero3"
    r"|^targets names no module",
    "online: settings that go together": r"^baseline none keeps|^mini_batches \d+ is above|^normalization constant and"
    r"|^weights are all 0|^scale_logits |^resamples asks the same|has no effect|^clip gspo |^engine_correction "
    r"|^aggregation gdpo ",
    "mygo: the threshold's cap": r"is above threshold_cap",
    "arena: reward, form and strategy": r"^judge: \{url|^extra: .* is the name|^strategy |^numbers: sentences "
    r"|^\S+ is no function|cannot be called with|is not valid Python",
    "prograph: what the estimator needs": r"^estimator must be given|^completions must be given"
    r"|^train_completions (compares|normalises)",
    "react: tools that exist, and their names": r"names no (class|function)|is neither a class|is not a function"
    r"|^an MCP server has|^token_env is for a url|^two tools are named|^a tool must not be named|^the name search is"
    r"|^prompts search_r1 has",
    "program: one of three kinds, and its variables": r"^a program is a command|^environment is for a command"
    r"|names no function; write|is not a function|^url of an image must be|^image is for a command",
    "graph: the extractor's model, overlapping chunks": r"^model is needed|^overlap_tokens must|^engine.url is missing",
}


@cache
def pipeline_of(name: str) -> tuple[Pipeline, Draft202012Validator]:
    path = PIPELINES / name / "pipeline.yaml"
    return load_pipeline(path), Draft202012Validator(json.loads(path.with_name("recipe.schema.json").read_text()))


@cache
def shipped() -> dict[str, dict[str, Any]]:
    return {f"{path.parent.name}/{path.stem}": load_source(path).data for path in RECIPES}


def beyond(message: str) -> bool:
    return any(re.search(pattern, message) for pattern in BEYOND.values())


def differing(recipe: dict[str, Any], name: str) -> str | None:
    """Return how schema and validator disagree about a recipe of the pipeline ``name``; None if they agree."""
    pipeline, schema = pipeline_of(name)
    by_schema = [f"{error.json_path}: {error.message}" for error in schema.iter_errors(recipe)]
    try:
        RecipeDocument.model_validate(recipe)
        found = resolve_values(pipeline, Source("recipe.yaml", recipe, {}))[1]
        by_validator = [f"{problem.field}: {problem.message}" for problem in found if not beyond(problem.message)]
    except ValidationError as error:
        found, by_validator = [], [str(error)]
    if by_schema and not found and not by_validator:
        return f"the schema alone refuses it: {by_schema[0]}"
    if by_validator and not by_schema:
        return f"the validator alone refuses it: {by_validator[0]}"
    return None


def test_schema_files_are_the_generated_ones() -> None:
    stale = [file for file, schema in generated().items() if json.loads(file.read_text()) != schema]
    assert not stale, f"{stale}: run python -m tests.config.schemas"


@pytest.mark.parametrize("path", [*RECIPES, *PIPELINES.glob("*/pipeline.yaml")], ids=lambda path: path.stem)
def test_shipped_files_name_their_schema_and_fit_it(path: Path) -> None:
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert named, f"{path}: the first line names no schema"
    file = Path(os.path.normpath(path.parent / named[1]))
    data = load_source(path).data
    if path.name == "pipeline.yaml":
        assert file == PIPELINES / "pipeline.schema.json"
        load_pipeline(path)
    else:
        assert file == find_pipeline(data["pipeline"], path).with_name("recipe.schema.json")
    Draft202012Validator(json.loads(file.read_text())).validate(data)


def fields(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        for name, field in node.get("properties", {}).items():
            yield f"{place}.{name}", field
        for key, inner in node.items():
            yield from fields(inner, f"{place}.{key}" if key not in ("properties", "$defs") else place)
    elif isinstance(node, list):
        for inner in node:
            yield from fields(inner, place)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_described(name: str) -> None:
    for schema in (pipeline_of(name)[1].schema, pipeline_schema()):
        silent = [place for place, field in fields(schema) if len(field.get("description", "")) < 10]
        assert not silent, silent


# Mutations: values that are near what a field may be, and others that are not.
# Shrinking would take minutes, and what differs is said as it is.
DRAWN = {"phases": [Phase.explicit, Phase.generate], "suppress_health_check": list(HealthCheck)}
ODD = st.sampled_from(
    [None, True, False, "", "x", "3", "true", "auto", -1, 0, 1, 2, 0.5, 1.5, 2.0, 1e9, 10**12, [], [1], [0.9, 0.99],
     ["a", "b"], [[1]], {}, {"x": 1}, {"rank": 2}]
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(recipe: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    copied = copy.deepcopy(recipe)
    node = copied
    for key in path[:-1]:
        node = node[key]
    change(node, path[-1])
    return copied


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    recipe = draw(st.sampled_from(list(shipped().values())))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([place for place in places(recipe) if place and place[0] != "pipeline"]))
        kind = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        value = draw(ODD)
        if kind == "remove":
            recipe = changed(recipe, path, lambda node, key: node.pop(key))
        elif kind == "add":
            known = draw(st.sampled_from(["surplus", "seed", "device", "engine", "context", "lora", "betas"]))
            recipe = changed(
                recipe, path, lambda node, key, known=known, value=value: node.update({known: value})
                if isinstance(node, dict) else node.append(value),
            )  # fmt: skip
        else:
            recipe = changed(recipe, path, lambda node, key, value=value: node.__setitem__(key, value))
    return str(recipe["pipeline"]), recipe


@settings(max_examples=400, **DRAWN)
@given(mutated())
def test_schema_and_validator_agree_about_changed_recipes(drawn: tuple[str, dict[str, Any]]) -> None:
    name, recipe = drawn
    assert differing(recipe, name) is None


def values_of(node: dict[str, Any], definitions: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Draw what a schema accepts, as far as types, choices, patterns and bounds go."""
    if "$ref" in node:
        return values_of(definitions[node["$ref"].rpartition("/")[2]], definitions, depth + 1)
    if choices := node.get("anyOf") or node.get("oneOf"):
        # Without a type of its own, a choice beside an enumeration is the name of a module, which would have to exist.
        drawn = [one for one in choices if one.keys() & {"$ref", "anyOf", "oneOf", "const", "enum", "type"}]
        return st.one_of([values_of(one, definitions, depth) for one in drawn])
    if "const" in node:
        return st.just(node["const"])
    if "enum" in node:
        return st.sampled_from(node["enum"])
    kind = node.get("type")
    if kind == "object":
        return objects(node, definitions, depth)
    if kind == "array":
        return arrays(node, definitions, depth)
    if kind in ("integer", "number"):
        return numbers(node, whole=kind == "integer")
    if kind == "string":
        pattern = node.get("pattern")
        # No line break: Python's $ stands before one at the end too, and pydantic's does not.
        if pattern is not None:
            return st.from_regex(pattern, fullmatch=True, alphabet="abcdefghijklmnopqrstuvwxyz-_.:/0123")
        return st.text("abc/.", min_size=node.get("minLength", 0), max_size=4)
    return st.booleans() if kind == "boolean" else st.none() if kind == "null" else st.sampled_from([1, "a", None])


def objects(node: dict[str, Any], definitions: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if not node.get("properties"):
        inner = node.get("additionalProperties", {})
        inner = values_of(inner, definitions, depth + 1) if isinstance(inner, dict) else st.nothing()
        return st.dictionaries(st.sampled_from(["a", "b"]), inner, min_size=node.get("minProperties", 0), max_size=1)
    known = {name: values_of(field, definitions, depth + 1) for name, field in node["properties"].items()
             if depth < 4 or name in node.get("required", [])}  # fmt: skip
    required = {name: known[name] for name in node.get("required", [])}
    return st.fixed_dictionaries(required, optional={n: v for n, v in known.items() if n not in required})


def arrays(node: dict[str, Any], definitions: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "prefixItems" in node:
        return st.tuples(*(values_of(one, definitions, depth) for one in node["prefixItems"])).map(list)
    return st.lists(values_of(node["items"], definitions, depth + 1), min_size=node.get("minItems", 0), max_size=2)


def numbers(node: dict[str, Any], *, whole: bool) -> st.SearchStrategy[Any]:
    low = node.get("minimum", node.get("exclusiveMinimum", 0))
    high = node.get("maximum", node.get("exclusiveMaximum", 1000))
    if whole:
        return st.integers(int(low), int(high))
    inner = st.floats(low, high, exclude_min="exclusiveMinimum" in node, exclude_max="exclusiveMaximum" in node)
    return inner.map(lambda value: int(value) if value.is_integer() else value)


@settings(max_examples=100, **DRAWN)
@given(st.data())
def test_schema_and_validator_agree_about_generated_recipes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    schema = pipeline_of(name)[1].schema
    parameters = data.draw(values_of(schema["properties"]["parameters"], schema["$defs"]))
    recipe = {"pipeline": name, "name": "drawn", "parameters": parameters}
    assert pipeline_of(name)[1].is_valid(recipe)
    assert differing(recipe, name) is None
