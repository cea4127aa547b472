"""YAML as plain data that remembers its lines, and problems that say where they are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError

# The place of a value in a document: keys of mappings and indices of lists, from the outside in.
FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong: where it stands (``FILE:LINE`` or a ``--set``), in which field, what, and the remedy."""

    place: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.field}: {self.message}" if self.field else f"{self.place}: {self.message}"


class ConfigError(UserError):
    """A recipe or pipeline with problems, all of them at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        count = len(self.problems)
        heading = [f"{count} problems"] if count > 1 else []
        super().__init__("\n".join([*heading, *map(str, self.problems)]))


@dataclass(frozen=True)
class Source:
    """A YAML document: its plain data, and the line of every value in it."""

    name: str
    data: dict[str, Any]
    lines: Mapping[FieldPath, int]

    def place(self, path: FieldPath) -> str:
        """``FILE:LINE`` of the value at ``path``, or of the innermost thing around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"

    def problem(self, path: FieldPath, message: str) -> Problem:
        return Problem(self.place(path), dotted(path), message)


def dotted(path: FieldPath) -> str:
    """``("steps", 2, "inputs")`` as ``steps[2].inputs``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def load_source(path: Path) -> Source:
    """Read a YAML file whose top is a mapping.

    Raises:
        ConfigError: the file is missing, is not YAML, or has something else at its top.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    name = str(path)
    try:
        document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ConfigError([Problem(name, "", "no such file")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(name, "", "is not UTF-8 text")]) from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = " ".join((error.problem or "is not YAML").split())
        raise ConfigError([Problem(f"{name}:{line}", "", f"is not valid YAML: {problem}")]) from error
    if not isinstance(document, dict):
        raise ConfigError([Problem(f"{name}:1", "", "must be a mapping, as `name: …` at its top")])
    lines: dict[FieldPath, int] = {(): 1}
    return Source(name, _plain(document, (), lines), lines)


def parse_value(text: str) -> Any:
    """The value of a ``--set``, read as YAML: ``1e-5`` is a number, ``[1, 2]`` a list, ``abc`` a string."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return _plain(YAML(typ="rt").load(text), (), {})
    except YAMLError as error:
        raise ValueError(f"{text!r} is not a YAML value; put it in quotes") from error


def suggestion(name: str, known: Iterable[str]) -> str:
    """``did you mean X? `` if a known name is near, and all known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"known are {', '.join(names) or 'none'}"


def _plain(value: Any, path: FieldPath, lines: dict[FieldPath, int]) -> Any:
    """The plain data of ruamel's round-trip tree; notes the line of everything inside in ``lines``."""
    position = getattr(value, "lc", None)
    if isinstance(value, dict) and position is not None:
        for key in value:
            # A key that came in by a merge (<<) has no line of its own: the mapping's stands for it.
            own = (position.data or {}).get(key)
            lines[(*path, str(key))] = (own[0] if own else position.line) + 1
        return {str(key): _plain(inner, (*path, str(key)), lines) for key, inner in value.items()}
    if isinstance(value, list) and position is not None:
        for index in range(len(value)):
            lines[(*path, index)] = position.item(index)[0] + 1
        return [_plain(inner, (*path, index), lines) for index, inner in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)  # a date: recipes have no use for it but as text
