"""Pipelines that extend another one: ``extends: NAME`` with the declarations that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from platform_sdk.config.source import ConfigError, FieldPath, Source

MERGED = frozenset({("parameters",), ("form",), ("evaluation_only",), ("inputs",)})
"""Mappings that are merged by key; in ``form`` each group's too. All else is replaced as a whole."""


def extended(base: Source, own: Source) -> Source:
    """Return the pipeline ``own`` with what it takes from ``base``, each value with its file and line.

    A value of ``null`` removes a key of a merged mapping. In ``steps`` a step that gives only its ``id`` is the base's.

    Raises:
        ConfigError: a step that ``own`` takes from the base does not exist there, or a removed key does not.
    """
    merged = _Merge(base, own)
    data = merged.mapping((), base.data, {name: value for name, value in own.data.items() if name != "extends"})
    return Source(own.name, data, merged.lines, merged.files)


class _Merge:
    def __init__(self, base: Source, own: Source) -> None:
        self._base, self._own = base, own
        self.lines: dict[FieldPath, int] = {}
        self.files: dict[FieldPath, str] = {}

    def mapping(self, path: FieldPath, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
        self._copy(self._own, path, path, deep=False)
        result: dict[str, Any] = {}
        for name in [*old, *(name for name in new if name not in old)]:
            inner = (*path, name)
            if name not in new:
                result[name] = old[name]
                self._copy(self._base, inner, inner)
            elif path and new[name] is None:
                if name not in old:
                    message = f"null removes it from {self._base.name}, which does not have it; leave it out"
                    raise ConfigError([self._own.problem(inner, message)])
            elif inner == ("steps",) and isinstance(new[name], list) and isinstance(old.get(name), list):
                result[name] = self._steps(old[name], new[name])
            elif self._merges(inner) and isinstance(new[name], dict) and isinstance(old.get(name), dict):
                result[name] = self.mapping(inner, old[name], new[name])
            else:
                result[name] = new[name]
                self._copy(self._own, inner, inner)
        return result

    def _merges(self, path: FieldPath) -> bool:
        return path in MERGED or (len(path) == 2 and path[0] == "form")

    def _steps(self, old: list[Any], new: list[Any]) -> list[Any]:
        places = {step["id"]: place for place, step in enumerate(old) if _has_name(step)}
        result = []
        for place, step in enumerate(new):
            if _has_name(step) and set(step) == {"id"}:
                if step["id"] not in places:
                    known = ", ".join(places) or "none"
                    message = f"{self._base.name} has no step {step['id']} to take; its steps are {known}"
                    raise ConfigError([self._own.problem(("steps", place), message)])
                taken = places[step["id"]]
                result.append(old[taken])
                self._copy(self._base, ("steps", taken), ("steps", place))
            else:
                result.append(step)
                self._copy(self._own, ("steps", place), ("steps", place))
        return result

    def _copy(self, source: Source, old: FieldPath, new: FieldPath, *, deep: bool = True) -> None:
        """Copy the lines of a value, and of all inside it."""
        for path in source.lines if deep else [old]:
            if path[: len(old)] == old and path in source.lines:
                copied = (*new, *path[len(old) :])
                self.lines[copied] = source.lines[path]
                self.files[copied] = source.files.get(path, source.name)


def _has_name(step: Any) -> bool:
    return isinstance(step, dict) and isinstance(step.get("id"), str)
