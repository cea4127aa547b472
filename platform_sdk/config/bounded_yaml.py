"""Read YAML as plain data with the line of every value, with limits that are checked before anything is built.

A few hundred bytes of aliases can expand to gigabytes, and a deep or long text overflows its reader. So the text's
size, its nodes and its depth are limited while it is parsed, and the nodes are counted again as aliases and merge keys
expand. Also rejected are values that no recipe can contain: tags other than YAML's own scalars, numbers that are not
finite or exceed 64 bits, control characters, lone surrogates.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from platform_sdk.display import excerpt, shortened

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node, ScalarNode

# The place of a value in a document: keys of mappings and indices of lists, from the outside in.
FieldPath = tuple[str | int, ...]

# The largest shipped file has 10 KiB and 800 nodes. Reading MAX_NODES takes some 0.1 s.
MAX_CHARACTERS = 256 * 1024
MAX_NODES = 10_000
MAX_DEPTH = 40
MAX_TEXT = 64 * 1024
MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)
_LONGEST_INTEGER = 100  # characters: 64 bits in base 2 with underscores; Python refuses to read thousands of digits

_CORE = "tag:yaml.org,2002:"
# Kinds of plain scalars in the order in which they are tried: their first characters, and their form.
_PLAIN_SCALARS = {
    "bool": ([*"tTfF"], r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    "float": (
        [*"-+0123456789."],
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z",
    ),
    "int": ([*"-+0123456789"], r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)\Z"),
    "merge": (["<"], r"<<\Z"),
    "null": ([*"~nN", ""], r"(?:~|null|Null|NULL|)\Z"),
}
_FORBIDDEN = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f\\ud800-\\udfff]")


def number_fault(value: float, text: str = "0") -> str | None:
    """Return why a number cannot be a setting, or None: it must be finite, and 0 or large enough for full precision.

    Args:
        value: the number.
        text: its notation in the file, whose digits show that a zero is rounded.
    """
    if not math.isfinite(value):
        return "is not a finite number"
    rounded = value == 0 and re.search("[1-9]", re.split("[eE]", text)[0])
    if rounded or 0 < abs(value) < sys.float_info.min:
        return f"is so close to 0 that it has lost its digits; write 0, or at least {sys.float_info.min:.1e}"
    if value == 0 and math.copysign(1, value) < 0:
        return "is a negative zero; write 0"
    return None


class YamlError(ValueError):
    """Text that is not YAML, or exceeds a bound; ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


Repeated = list[tuple[FieldPath, int]]
"""Keys of mappings that were there already, with the lines of their repetitions."""


def read_yaml(text: str, repeated: Repeated | None = None) -> tuple[Any, dict[FieldPath, int]]:
    """Return the plain data of a YAML document and the line of every value inside it.

    Args:
        repeated: gets the repeated keys, of which the first value is kept; None: they are an error.

    Raises:
        YamlError: the text is not one YAML document, exceeds a bound, or holds a value without plain form.
    """
    if len(text) > MAX_CHARACTERS:
        raise YamlError(1, f"has {len(text)} characters; at most {MAX_CHARACTERS} are read")
    builder = _Builder(repeated)
    node = _compose(text)
    data = None if node is None else builder.value(node, (), 1)
    return data, builder.lines


def _compose(text: str) -> Node | None:
    from yaml import MarkedYAMLError
    from yaml.reader import ReaderError

    if found := _FORBIDDEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise YamlError(line, f"is not valid YAML: holds {_character(ord(found[0]))}; remove it")
    try:
        node: Node | None = _composer()(text).get_single_node()
        return node
    except ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise YamlError(line, f"is not valid YAML: holds {_character(error.character)}; remove it") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        lines = text.split("\n")
        line = min(mark.line + 1, len(lines)) if mark else 1
        problem = " ".join((error.problem or error.context or "cannot be parsed").split())
        if problem.startswith("but ") and error.context:
            problem = f"{error.context}, {problem}"
        if "maximum nesting depth" in problem:
            raise YamlError(line, _TOO_DEEP) from error
        if "tab character" in problem:
            problem += "; indent with spaces"
        if mark and "character that cannot start" in problem:
            character = lines[line - 1][mark.column : mark.column + 1]
            problem = problem.replace("character", f"the character {character!r}", 1)
            problem += "; indent with spaces" if character == "\t" else ""
        raise YamlError(line, f"is not valid YAML: {shortened(problem, 300)}") from error


_TOO_MANY = f"holds more than {MAX_NODES} values, aliases counted wherever they are used"
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep; an alias must not stand inside its own anchor"


@cache
def _composer() -> Any:
    """Return a composer of nodes within the bounds, by the rules of YAML 1.2: ``yes`` is text, 1e-5 a number."""
    from yaml import CBaseLoader
    from yaml.composer import Composer
    from yaml.events import AliasEvent

    class BoundedComposer(Composer, CBaseLoader):  # here, since yaml is imported only where it is used
        def __init__(self, text: str) -> None:
            CBaseLoader.__init__(self, text)
            Composer.__init__(self)
            self.nodes = self.depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.nodes += 1
            self.depth += 1
            event: Any = self.peek_event()
            if self.nodes > MAX_NODES:
                raise YamlError(event.start_mark.line + 1, _TOO_MANY)
            if self.depth > MAX_DEPTH:
                raise YamlError(event.start_mark.line + 1, _TOO_DEEP)
            if not isinstance(event, AliasEvent):
                self.anchors.pop(event.anchor, None)  # an anchor may be defined again
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    for kind, (first, pattern) in _PLAIN_SCALARS.items():
        BoundedComposer.add_implicit_resolver(f"{_CORE}{kind}", re.compile(pattern), first)
    return BoundedComposer


class _Builder:
    """Builds plain data of composed nodes, counting every node as often as an alias repeats it."""

    def __init__(self, repeated: Repeated | None) -> None:
        self._repeated = repeated
        self.lines: dict[FieldPath, int] = {(): 1}
        self._nodes = 0

    def value(self, node: Node, path: FieldPath, depth: int) -> Any:
        from yaml.nodes import MappingNode, ScalarNode

        self._count(node, depth)
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if isinstance(node, MappingNode):
            return self._mapping(node, path, depth)
        _check_tag(node, "seq")
        for index, inner in enumerate(node.value):
            self.lines[(*path, index)] = _line(inner)
        return [self.value(inner, (*path, index), depth + 1) for index, inner in enumerate(node.value)]

    def _mapping(self, node: MappingNode, path: FieldPath, depth: int) -> dict[str, Any]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, inner, name in self._entries(node, depth):
            if name is None:
                for found, value, line in self._merged(inner, depth + 1):
                    if found not in merged:
                        merged[found] = value
                        self.lines.setdefault((*path, found), line)
                continue
            if name in own:
                if self._repeated is None:
                    raise YamlError(_line(key), f"is not valid YAML: duplicate key {excerpt(name)}; keep one")
                self._repeated.append(((*path, name), _line(key)))
                continue
            own[name] = inner
            self.lines[(*path, name)] = _line(key)
        return {name: self.value(inner, (*path, name), depth + 1) for name, inner in {**merged, **own}.items()}

    def _entries(self, node: MappingNode, depth: int) -> Iterator[tuple[Node, Node, str | None]]:
        """Yield key, value and the key's name, None for a merge key (``<<``)."""
        from yaml.nodes import ScalarNode

        _check_tag(node, "map")
        for key, inner in node.value:
            self._count(key, depth)
            if not isinstance(key, ScalarNode):
                raise YamlError(_line(key), "has a list or mapping as a key; a key must be a single value")
            self._scalar(key)
            yield key, inner, None if key.tag == f"{_CORE}merge" else key.value

    def _merged(self, node: Node, depth: int) -> Iterator[tuple[str, Node, int]]:
        """Yield the entries of a merge key; if a name occurs twice, its first value wins."""
        from yaml.nodes import MappingNode, SequenceNode

        self._count(node, depth)
        if isinstance(node, SequenceNode):
            for inner in node.value:
                yield from self._merged(inner, depth + 1)
            return
        if not isinstance(node, MappingNode):
            raise YamlError(_line(node), "must be a mapping or a list of mappings to be merged by <<")
        entries = list(self._entries(node, depth))
        for key, inner, name in entries:
            if name is not None:
                yield name, inner, _line(key)
        for _, inner, name in entries:
            if name is None:
                yield from self._merged(inner, depth + 1)

    def _count(self, node: Node, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise YamlError(_line(node), _TOO_MANY)
        if depth > MAX_DEPTH:
            raise YamlError(_line(node), _TOO_DEEP)

    def _scalar(self, node: ScalarNode) -> Any:
        text = node.value
        if len(text) > MAX_TEXT:
            raise YamlError(_line(node), f"is a text of {len(text)} characters; at most {MAX_TEXT} are read")
        if found := _FORBIDDEN.search(text):
            raise YamlError(_line(node), f"holds {_character(ord(found[0]))}; remove it")
        kind = str(node.tag).removeprefix(_CORE)
        if kind in ("str", "timestamp", "value", "merge"):
            return text  # recipes have no use for a date but as text
        if kind not in ("null", "bool", "int", "float"):
            _check_tag(node, "str")
        if kind == "int" and len(text) > _LONGEST_INTEGER:
            raise YamlError(_line(node), f"the integer {shortened(text)} exceeds 64 bits")
        try:
            value = _CONVERSIONS[kind](text.replace("_", ""))
        except (ValueError, LookupError) as error:
            raise YamlError(_line(node), f"{excerpt(text)} cannot be read as {kind}") from error
        if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
            raise YamlError(_line(node), f"the integer {shortened(text)} exceeds 64 bits")
        if isinstance(value, float) and (fault := number_fault(value, text)):
            raise YamlError(_line(node), f"{shortened(text)} {fault}")
        return value


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    base = {"0b": 2, "0o": 8, "0x": 16}.get(digits[:2], 10)
    return int(text, base)


def _float(text: str) -> float:
    return float(text.replace(".", "") if text.lstrip("+-").lower() in (".inf", ".nan") else text)


_CONVERSIONS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: {"~": None, "null": None, "": None}[text.lower()],
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _integer,
    "float": _float,
}


def _check_tag(node: Node, kind: str) -> None:
    if node.tag != f"{_CORE}{kind}":
        raise YamlError(_line(node), f"has the tag {shortened(str(node.tag))}, which is not supported; remove it")


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _character(code: int) -> str:
    what = "lone surrogate" if 0xD800 <= code <= 0xDFFF else "control character"
    return f"the {what} U+{code:04X}"
