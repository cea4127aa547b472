"""Interface of a retrieval method: what it searches, what a request must tell it, and how it finds evidence.

A method is one file with a ``METHOD``: a shipped one is ``retrieval/methods/NAME.py``, a user's any module on the
Python path, which a recipe gives by its dotted name (``retrieval.method``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import BaseModel

from platform_sdk.config.code import import_definition
from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import SHIPPED_METHODS, method_module
from platform_sdk.config.struct import Struct
from platform_sdk.records import Evidence
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.milvus import Vectors
from platform_sdk.sampling.rollout import SearchRequest

M = TypeVar("M", bound="Material")
S = TypeVar("S", bound=BaseModel)


class NoSettings(Struct):
    """The settings of a method that has none."""


@dataclass(frozen=True)
class Material:
    """Data that a method searches. A method adds its own tables in a subclass.

    ``digest`` covers all of it. It names the Milvus collections and is written into every rollout.
    """

    digest: str

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the texts to encode, by the name of their collection; none by default.

        A collection's name and the digest must determine its texts: methods that agree on both share the collection.
        """
        return {}

    def warm(self) -> None:
        """Build tables that the first search would wait for; none by default."""
        return


@dataclass(frozen=True)
class Index(Generic[M, S]):
    """A method's material with its open collections, by name. ``vectors[name]`` has one row for each of its texts."""

    material: M
    settings: S
    encoder: Encoder
    vectors: Mapping[str, Vectors]

    @property
    def rows(self) -> int:
        """The number of texts in all collections."""
        return sum(vectors.rows for vectors in self.vectors.values())

    def close(self) -> None:
        """Close all collections."""
        for vectors in self.vectors.values():
            vectors.close()


class RetrievalMethod(ABC, Generic[M, S]):
    """A way of finding evidence.

    Attributes:
        settings: the pydantic model of ``retrieval.settings``.
        scope: keys that the scope of every request must have.
    """

    settings: type[S]
    scope: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """The name by which a recipe gives it."""
        return type(self).__module__.removeprefix(f"{SHIPPED_METHODS}.")

    @abstractmethod
    def load(self, run_dir: Path, settings: S) -> M:
        """Read what is searched from a run directory.

        Raises:
            UserError: the data lacks what the method needs, or is not what was prepared.
        """

    def refusal(self, material: M, request: SearchRequest) -> str | None:
        """Return what is wrong with a request whose scope is complete; None if nothing is."""
        return None

    @abstractmethod
    def find(
        self, index: Index[M, S], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        """Return at most ``k`` pieces of evidence for each request, best first.

        What is found for a request must not depend on the other requests.

        Args:
            requests: different ones, none of them refused.
            queries: the vectors of their queries.

        Raises:
            RetrieverFault: Milvus or the encoder failed.
        """


def load_method(name: str) -> RetrievalMethod[Any, Any]:
    """Return the method that a recipe names, shipped or of the user's own.

    Raises:
        UserError: its module cannot be imported, or ``METHOD`` is not a retrieval method.
    """
    found = import_definition(f"{method_module(name)}:METHOD")
    if not isinstance(found, RetrievalMethod):
        raise UserError(
            f"retrieval.method {name}: METHOD is of type {type(found).__name__}; make it an instance of a subclass of "
            f"{__name__}.RetrievalMethod"
        )
    return found
