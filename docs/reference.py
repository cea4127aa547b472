"""A Sphinx extension that generates parts of the site while it is built; nothing generated is checked in.

The pages of docs/reference hold a heading and a note on how to print the same in a terminal. The extension appends the
parameters from a pipeline's schema, or the commands from the command line. It also makes the sidebar from the lists of
docs/index.md, so that the Markdown itself stays free of directives and reads well on GitHub.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text
from sphinx.application import Sphinx
from typer import Context
from typer.main import get_command

from platform_sdk.cli import app as command_line
from platform_sdk.config.parameter import Parameter
from platform_sdk.config.pipeline import find_pipeline, load_pipeline
from platform_sdk.config.schema import recipe_schema

Schema = dict[str, Any]
PLACE = "docs/reference/"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _complete)
    app.connect("source-read", _without_links_to_folders)
    app.connect("source-read", _with_sidebar)
    return {"parallel_read_safe": True}


def _complete(app: Sphinx, document: str, source: list[str]) -> None:
    if not document.startswith(PLACE):
        return
    name = document.removeprefix(PLACE)
    source[0] += "\n" + (commands() if name == "commands" else recipes(find_pipeline(name, Path("recipe.yaml"))))


def _without_links_to_folders(app: Sphinx, document: str, source: list[str]) -> None:
    """Turn links to folders, which a site cannot show, into their text."""

    def text(link: re.Match[str]) -> str:
        folder = (app.srcdir / document).parent / link[2]
        return link[1] if "://" not in link[2] and folder.is_dir() else link[0]

    source[0] = re.sub(r"\[([^\]]+)\]\(([^)#\s]+)\)", text, source[0])


def _with_sidebar(app: Sphinx, document: str, source: list[str]) -> None:
    """Append a table of contents for each section of the front page: the pages that it links to."""
    if document != app.config.root_doc:
        return
    for section in source[0].split("\n## ")[1:]:
        links = re.findall(r"\[([^\]]+)\]\((\S+?)\)", section)
        pages = [f"{text.replace('`', '')} <{page}>" for text, page in links]
        caption = section.splitlines()[0]
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"])


def recipes(path: Path) -> str:
    """Return every parameter of a pipeline, and every field of its structs, as Markdown."""
    pipeline = load_pipeline(path)
    schema = recipe_schema(pipeline)
    found, definitions = schema["properties"]["parameters"], schema.get("$defs", {})
    lines: list[str] = []
    for name, parameter in pipeline.document.parameters.items():
        lines += [f"## `{name}`", "", _escaped(parameter.description), ""]
        entry = found["properties"][name]
        if parameter.type == "struct":
            defaults = dict(_leaves(name, parameter.default))
            for path, variant, field, needed in _nested(name, entry, definitions):
                facts = _facts(field, definitions, needed, defaults.get(path))
                lines += [f"`{path}`" + (f" (type: `{variant}`)" if variant else ""), f": {' · '.join(facts)}"]
                lines += [f"  <br>{_escaped(about)}"] if (about := field.get("description")) else []
                lines += [""]
        else:
            lines += [" · ".join(_parameter_facts(parameter, entry, name in found["required"])), ""]
    return "\n".join(lines)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a pipeline's default of a struct holds, by path: it comes before the defaults of the model."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    else:
        yield path, value


def _nested(
    path: str, schema: Schema, definitions: dict[str, Schema], outer: str = "", within: tuple[str, ...] = ()
) -> Iterator[tuple[str, str, Schema, bool]]:
    """Yield the path, variant, schema and necessity of every field of a struct, and of the structs in it.

    A struct in itself, as an entry of ``dataset.mixture``, is not followed: ``within`` are the definitions around it.
    The variant is the ``type`` of a struct that is one of several; it is empty for the field ``type``, which is first.
    """
    if (reference := schema.get("$ref")) in within:
        return
    within += (reference,) if reference else ()
    branches = _branches(schema, definitions)
    several = sum("properties" in branch for branch in branches) > 1
    for branch in branches:
        fields = branch.get("properties", {})
        variant = fields["type"]["const"] if several and fields else outer
        for name in sorted(fields, key=lambda name: several and name != "type"):
            field = fields[name]
            inner = list(_nested(f"{path}.{name}", field, definitions, variant, within))
            if not inner or _may_be_a_value(field, definitions):
                shown = outer if several and name == "type" else variant
                yield f"{path}.{name}", shown, field, name in branch.get("required", [])
            yield from inner
        if isinstance(entries := branch.get("additionalProperties"), dict):
            yield from _nested(f"{path}.NAME", entries, definitions, outer, within)
        if isinstance(entries := branch.get("items"), dict):
            yield from _nested(f"{path}[]", entries, definitions, outer, within)


def _parameter_facts(parameter: Parameter, schema: Schema, needed: bool) -> list[str]:
    """Return the facts of a parameter that is no struct: the schema has neither its module nor its variable."""
    if parameter.module:
        schema = {**schema, "anyOf": [{"enum": parameter.choices}]}
    kind, about, *bounds = _facts(schema, {}, needed)
    if parameter.module:
        kind += f" or the dotted name of a module with an `{parameter.module}`"
    if parameter.environment:
        fallback = "required" if parameter.required else _value(parameter.default)
        about = f"default: environment variable `{parameter.environment}`, else {fallback}"
    return [kind, about, *bounds]


def _facts(schema: Schema, definitions: dict[str, Schema], needed: bool, default: Any = None) -> list[str]:
    """Return the type of a field, its default or necessity, and its bounds."""
    if default is not None or "default" in schema:
        about = f"default {_value(schema['default'] if default is None else default)}"
    else:
        about = "required" if needed else "optional"
    return [_type(schema, definitions), about, *_bounds(schema, definitions)]


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" not in schema:
        return schema
    target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _branches(schema: Schema, definitions: dict[str, Schema]) -> list[Schema]:
    """Return what a value may be: the alternatives of a union, or the schema itself."""
    resolved = _resolved(schema, definitions)
    found = [*resolved.get("anyOf", []), *resolved.get("oneOf", [])]
    return [inner for branch in found for inner in _branches(branch, definitions)] or [resolved]


def _may_be_a_value(schema: Schema, definitions: dict[str, Schema]) -> bool:
    """Return whether the field may be something else than a struct: null, or a number."""
    return any(branch.get("type") not in ("object", None) for branch in _branches(schema, definitions))


def _type(schema: Schema, definitions: dict[str, Schema]) -> str:
    names = []
    for branch in _branches(schema, definitions):
        if "const" in branch:
            names.append(_value(branch["const"]))
        elif "enum" in branch:
            names += [_value(value) for value in branch["enum"]]
        elif branch.get("type") == "array":
            names.append(f"list of {_type(branch['items'], definitions)}" if branch.get("items") else "list")
        elif branch.get("type") == "object":
            names.append("struct" if branch.get("properties") else "mapping")
        else:
            names.append(str(branch.get("type", "any value")))
    return " or ".join(dict.fromkeys(names))


def _bounds(schema: Schema, definitions: dict[str, Schema]) -> list[str]:
    words = {
        "minimum": "≥ {}",
        "exclusiveMinimum": "> {}",
        "maximum": "≤ {}",
        "exclusiveMaximum": "< {}",
        "minItems": "at least {} entries",
        "maxItems": "at most {} entries",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "pattern": "pattern `{}`",
    }
    return [
        text.format(f"{branch[key]:,}" if isinstance(branch[key], int | float) else branch[key])
        for branch in _branches(schema, definitions)
        for key, text in words.items()
        if key in branch and (key, branch[key]) != ("minLength", 1)
    ]


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else "empty"


def _escaped(text: str) -> str:
    """Return a text that holds no Markdown, or only code in backticks, so that nothing else in it is taken for any."""
    parts = re.split(r"(`[^`]*`)", text.strip())
    return "".join(part if part.startswith("`") else re.sub(r"([*_\[\]<>|\\])", r"\\\1", part) for part in parts)


def commands() -> str:
    """Return every command, its arguments and its options as Markdown, under the headings of the help."""
    top = get_command(command_line)
    headings: dict[str, list[str]] = {}
    for command, context in _runnable(top, Context(top, info_name="hopforge")):
        lines = headings.setdefault(
            command.rich_help_panel or (context.parent and context.parent.command.rich_help_panel), []
        )
        lines += _command(command, context)
    return "\n".join(line for heading, lines in headings.items() for line in [f"## {heading}", "", *lines])


def _runnable(command: Any, context: Context) -> Iterator[tuple[Any, Context]]:
    """Yield the commands that do something: a group's own ones in its place."""
    if not hasattr(command, "commands"):
        yield command, context
        return
    for name, inner in command.commands.items():
        yield from _runnable(inner, Context(inner, info_name=name, parent=context))


def _command(command: Any, context: Context) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    usage = re.sub(r"[{}]", "", usage).replace("]...", "]").replace("…...", "…").replace("[[", "[").replace("]]", "]")
    lines = [f"### `{context.command_path}`", "", _plain(command.help), "", "```text", usage, "```", ""]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            name = re.sub(r" <[^>]*>$", "", record[0]) if parameter.param_type_name == "argument" else record[0]
            default = parameter.default
            shown = "" if default in (None, False, ()) or parameter.multiple else f" Default: `{default}`."
            lines += [f"`{name}`", f": {_plain(record[1])}{shown}", ""]
    return lines


def _plain(text: str) -> str:
    """Return a text of the help, which is written with rich's markup, as Markdown."""
    return _escaped(Text.from_markup(text).plain)
