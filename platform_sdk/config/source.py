"""YAML as plain data with line numbers, and problems with their position."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from platform_sdk.config.bounded_yaml import MAX_CHARACTERS, Repeated, YamlError, read_yaml
from platform_sdk.config.bounded_yaml import FieldPath as FieldPath
from platform_sdk.config.errors import Code, UserError, with_code
from platform_sdk.display import excerpt, shortened
from platform_sdk.files import open_regular

MAX_PROBLEMS = 100  # that one file or value reports
MAX_BYTES = 4 * MAX_CHARACTERS  # UTF-8 has four bytes a character at most


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong: its place (``FILE:LINE`` or a ``--set``), in which field, what, and the remedy."""

    place: str
    field: str
    message: str
    code: Code | None = None

    def __str__(self) -> str:
        field = f"{shortened(self.field, 200)}: " if self.field else ""
        return with_code(f"{shortened(self.place, 500)}: {field}{shortened(self.message, 1000)}", self.code)


class Fault(NamedTuple):
    """A wrong setting, by its path in the recipe's parameters, and why, with the remedy; its place is not known yet."""

    path: FieldPath
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}"


class ConfigError(UserError):
    """A recipe or pipeline with problems, all of them at once. Its code is the code that all of them have."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        count = len(self.problems)
        heading = [f"{count} problems"] if count > 1 else []
        listed = map(str, self.problems[:MAX_PROBLEMS])
        more = [f"and {count - MAX_PROBLEMS} more"] if count > MAX_PROBLEMS else []
        super().__init__("\n".join([*heading, *listed, *more]))
        codes = {problem.code for problem in self.problems}
        self.code = codes.pop() if len(codes) == 1 else None


@dataclass(frozen=True)
class Source:
    """A YAML document: its plain data, the line of every value, and the file where it is not ``name``.

    ``repeated`` are the names that a mapping has twice, if the document was read with them.
    """

    name: str
    data: dict[str, Any]
    lines: Mapping[FieldPath, int]
    files: Mapping[FieldPath, str] = field(default_factory=dict)
    repeated: tuple[Problem, ...] = ()

    def place(self, path: FieldPath) -> str:
        """``FILE:LINE`` of the value at ``path``, or of the innermost thing around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.files.get(path, self.name)}:{self.lines.get(path, 1)}"

    def problem(self, path: FieldPath, message: str, code: Code | None = None) -> Problem:
        return Problem(self.place(path), dotted(path), message, code)


def dotted(path: FieldPath) -> str:
    """``("steps", 2, "inputs")`` as ``steps[2].inputs``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def load_source(path: Path, *, with_repeated: bool = False) -> Source:
    """Read a YAML file whose top is a mapping.

    Args:
        with_repeated: Report repeated keys as ``Source.repeated``, so that they are reported with all other problems.

    Raises:
        ConfigError: the file is missing or unreadable, is not YAML within the bounds of ``bounded_yaml``, or has
            another type at its top.
    """
    name = str(path)
    try:
        with open_regular(path) as stream:
            data = stream.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig", errors="strict" if len(data) <= MAX_BYTES else "ignore")
    except FileNotFoundError as error:
        raise ConfigError([Problem(name, "", "no such file; check the path")]) from error
    except IsADirectoryError as error:
        inside = sorted(one.name for one in path.glob("*.yaml") if one.name != "pipeline.yaml")
        example = f", e.g. {inside[0]}" if inside else ""
        raise ConfigError([Problem(name, "", f"is a directory; name a YAML file in it{example}")]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(f"{name}:{line}", "", "is not UTF-8 text")]) from error
    except OSError as error:
        raise ConfigError([Problem(name, "", f"cannot be read: {error.strerror}")]) from error
    repeated: Repeated | None = [] if with_repeated else None
    try:
        content, lines = read_yaml(text, repeated)
    except YamlError as error:
        raise ConfigError([Problem(f"{name}:{error.line}", "", str(error))]) from error
    if not isinstance(content, dict):
        raise ConfigError([Problem(f"{name}:1", "", "must be a mapping, e.g. `name: …` at its top")])
    twice = (
        Problem(f"{name}:{line}", dotted(key), "is there twice; keep one, or give one another name")
        for key, line in repeated or ()
    )
    return Source(name, content, lines, repeated=tuple(twice))


def parse_value(text: str) -> Any:
    """The value of a ``--set``, read as YAML: ``1e-5`` is a number, ``[1, 2]`` a list, ``abc`` a string.

    Raises:
        ValueError: the text is not YAML within the bounds of ``bounded_yaml``.
    """
    try:
        return read_yaml(text)[0]
    except YamlError as error:
        raise ValueError(f"{excerpt(text)}: {error}; to mean it as text, put it in quotes") from error


_SURROGATES = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)")


def assignment(name: str, value: Any) -> str:
    """Return the text of a ``--set`` that sets a plain value. YAML reads JSON, except for surrogate pairs."""
    text = _SURROGATES.sub(lambda pair: str(json.loads(f'"{pair[0]}"')), json.dumps(value))
    return f"{name}={text}"


def suggestion(name: str, known: Iterable[str], *, module: bool = False) -> str:
    """``did you mean X? `` if a known name is near, and all known names.

    Args:
        module: a module of the user's own may be named too.
    """
    names = sorted(known)
    near = difflib.get_close_matches(shortened(name), names, n=1)
    own = "; or name a package.module" if module else ""
    return (f"did you mean {near[0]}? " if near else "") + f"known are {', '.join(names) or 'none'}{own}"
