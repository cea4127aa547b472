"""Read YAML as plain data with the line of every value, within bounds that hold before anything is built.

A few hundred bytes of aliases can expand to gigabytes, and a deep or long text overflows its reader. So the text's
size, its nodes and its depth are limited while it is parsed, and the nodes are counted again as aliases and merge keys
expand. What a recipe cannot mean is refused here as well: tags other than YAML's own scalars, numbers that are not
finite or exceed 64 bits, control characters, lone surrogates.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from platform_sdk.display import excerpt, shortened

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

# The place of a value in a document: keys of mappings and indices of lists, from the outside in.
FieldPath = tuple[str | int, ...]

# The largest shipped file has 10 KiB and 800 nodes. Parsing MAX_NODES takes some 0.3 s, MAX_CHARACTERS 0.4 s.
MAX_CHARACTERS = 256 * 1024
MAX_NODES = 10_000
MAX_DEPTH = 40
MAX_TEXT = 64 * 1024
MAX_INTEGER = 2**63 - 1
_LONGEST_INTEGER = 100  # characters: 64 bits in base 2 with underscores; Python refuses to read thousands of digits

_CORE = "tag:yaml.org,2002:"
_FORBIDDEN = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f\\ud800-\\udfff]")


def number_fault(value: float) -> str | None:
    """Return why a number cannot be a setting, or None: it must be finite, and 0 or large enough for full precision."""
    if not math.isfinite(value):
        return "is not a finite number"
    if value == 0 and math.copysign(1, value) < 0:
        return "is a negative zero; write 0"
    if 0 < abs(value) < sys.float_info.min:
        return f"is so close to 0 that it has lost its digits; write 0, or at least {sys.float_info.min:.1e}"
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
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer, MaxDepthExceededError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    class BoundedComposer(Composer):  # here, since ruamel is imported only where it is used
        nodes = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.nodes += 1
            if self.nodes > MAX_NODES:
                raise YamlError(self.parser.peek_event().start_mark.line + 1, _TOO_MANY)
            return super().compose_node(parent, index)

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = BoundedComposer
    yaml.max_depth = MAX_DEPTH
    yaml.composer.warn_double_anchors = False
    try:
        node: Node | None = yaml.compose(text)
        return node
    except YamlError:
        raise
    except (AssertionError, KeyError, ValueError) as error:
        # What ruamel raises at a version of YAML or an escaped character that does not exist.
        found = _UNKNOWN.search(text)
        raise YamlError(
            text.count("\n", 0, found.start()) + 1 if found else 1, f"is not valid YAML: {shortened(str(error), 300)}"
        ) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(line, f"is not valid YAML: holds {_character(error.character)}; remove it") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if isinstance(error, MaxDepthExceededError):
            raise YamlError(mark.line + 1 if mark else 1, _TOO_DEEP) from error
        problem = " ".join((error.problem or error.context or "cannot be parsed").split())
        problem += "; indent with spaces" if r"'\t'" in problem else ""
        raise YamlError(mark.line + 1 if mark else 1, f"is not valid YAML: {shortened(problem, 300)}") from error
    except YAMLError as error:
        raise YamlError(1, f"is not valid YAML: {shortened(' '.join(str(error).split()), 300)}") from error


_UNKNOWN = re.compile(r"%YAML|\\U(?!000|0010)")  # \U00110000 is beyond Unicode
_TOO_MANY = f"holds more than {MAX_NODES} values, aliases counted wherever they are used"
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep; an alias must not stand inside its own anchor"


class _Builder:
    """Builds plain data of composed nodes, counting every node as often as an alias repeats it."""

    def __init__(self, repeated: Repeated | None) -> None:
        from ruamel.yaml import YAML

        self._repeated = repeated
        self.lines: dict[FieldPath, int] = {(): 1}
        self._nodes = 0
        self._scalars = YAML(typ="safe", pure=True).constructor

    def value(self, node: Node, path: FieldPath, depth: int) -> Any:
        from ruamel.yaml.nodes import MappingNode, ScalarNode

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
        from ruamel.yaml.nodes import ScalarNode

        _check_tag(node, "map")
        for key, inner in node.value:
            self._count(key, depth)
            if not isinstance(key, ScalarNode):
                raise YamlError(_line(key), "has a list or mapping as a key; a key must be a single value")
            yield key, inner, None if key.tag == f"{_CORE}merge" else str(self._scalar(key))

    def _merged(self, node: Node, depth: int) -> Iterator[tuple[str, Node, int]]:
        """Yield what a merge key brings in, the winning value of a name first."""
        from ruamel.yaml.nodes import MappingNode, SequenceNode

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
            value = getattr(self._scalars, f"construct_yaml_{kind}")(node)
        except (ValueError, LookupError) as error:
            raise YamlError(_line(node), f"{excerpt(text)} cannot be read as {kind}") from error
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise YamlError(_line(node), f"the integer {shortened(text)} exceeds 64 bits")
        if isinstance(value, float) and (fault := number_fault(value)):
            raise YamlError(_line(node), f"{shortened(text)} {fault}")
        return value


def _check_tag(node: Node, kind: str) -> None:
    if node.tag != f"{_CORE}{kind}":
        raise YamlError(_line(node), f"has the tag {shortened(str(node.tag))}, which is not supported; remove it")


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _character(code: int) -> str:
    what = "lone surrogate" if 0xD800 <= code <= 0xDFFF else "control character"
    return f"the {what} U+{code:04X}"
