"""Environments: named kinds of corpora that agents search."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from platform_sdk.config.code import import_definition
from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct

Medium = Literal["text", "kg"]
"""Sources that are searched: texts, or a knowledge graph."""
NAME = "ENVIRONMENT"
"""The name under which a module of one's own holds its environment."""


class Environment(Struct):
    """Corpus or graph that an agent searches."""

    method: str = Field(description="The retrieval method of recipes that name none.")
    medium: Medium = Field("text", description="What the searches return: texts, or facts of a knowledge graph.")


_TEXT, _GRAPH = Environment(method="passages"), Environment(method="triples", medium="kg")
ENVIRONMENTS = {
    "own-text": _TEXT,
    "own-kg": _GRAPH,
    "2wiki-text": _TEXT,
    "hotpot": _TEXT,
    "musique": _TEXT,
    "nq": _TEXT,
    "world-text": _TEXT,
    "2wiki-kg": _GRAPH,
    "qald-kg": _GRAPH,
    "world-kg": _GRAPH,
    "hotpot-kimi": Environment(method="contexts"),
}
"""The shipped environments. Any other one is the ``ENVIRONMENT`` of a module, named by the module's dotted name."""


def shipped_method(name: str) -> str | None:
    """Return the retrieval method of a shipped environment's recipes that name none; None for a user's module.

    The method is ``none`` if there is nothing to search. Unlike ``environment_of``, this imports nothing.
    """
    if "." in name:
        return None
    return ENVIRONMENTS[name].method if name in ENVIRONMENTS else "none"


def environment_of(name: str) -> Environment | None:
    """Return an environment by its name; None if there is nothing to search, as for given passages.

    Raises:
        UserError: the module of one's own cannot be imported, or its ``ENVIRONMENT`` is not one.
    """
    if "." not in name:
        return ENVIRONMENTS.get(name)
    found = import_definition(f"{name}:{NAME}")
    if not isinstance(found, Environment):
        raise UserError(f"{name}: {NAME} is of type {type(found).__name__}; make it an Environment")
    return found
