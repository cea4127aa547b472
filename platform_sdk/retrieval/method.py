"""Interface of a retrieval method: its material, the scope of its requests, and its search.

A method is one module with a ``METHOD``: a shipped method is ``retrieval/methods/NAME.py``, a user's method any module
on the Python path, named in ``retrieval.method`` by its dotted name.
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
    """Settings of a method without settings."""


@dataclass(frozen=True)
class Material:
    """Data that a method searches. A method adds tables in a subclass.

    ``digest`` covers all data. It is part of the Milvus collections' names and of every rollout.
    """

    digest: str

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the texts to encode, by the name of their collection; none by default.

        A collection's name and the digest must determine its texts: methods that agree on both share the collection.
        """
        return {}

    def warm(self) -> None:
        """Build the tables that the first search needs; none by default."""
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
        """Number of texts in all collections."""
        return sum(vectors.rows for vectors in self.vectors.values())

    def close(self) -> None:
        """Close all collections."""
        for vectors in self.vectors.values():
            vectors.close()


class RetrievalMethod(ABC, Generic[M, S]):
    """A retrieval method.

    Attributes:
        settings: the pydantic model of ``retrieval.settings``.
        scope: required keys of every request's scope.
    """

    settings: type[S]
    scope: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """Name in recipes."""
        return type(self).__module__.removeprefix(f"{SHIPPED_METHODS}.")

    @abstractmethod
    def load(self, run_dir: Path, settings: S) -> M:
        """Read the material from a run directory.

        Raises:
            UserError: the data is incomplete for the method, or was altered after preparation.
        """

    def refusal(self, material: M, request: SearchRequest) -> str | None:
        """Return the error of a request with a complete scope, or None."""
        return None

    @abstractmethod
    def find(
        self, index: Index[M, S], requests: Sequence[SearchRequest], queries: np.ndarray, k: int
    ) -> list[list[Evidence]]:
        """Return at most ``k`` pieces of evidence for each request, best first.

        The results of a request must not depend on the other requests, and with an exact index the first ones not on
        ``k``. Their order is the ranking: scores need not descend.

        Args:
            requests: distinct requests without a refusal.
            queries: the vectors of their queries.

        Raises:
            RetrieverFault: Milvus or the encoder failed.
        """


def load_method(name: str) -> RetrievalMethod[Any, Any]:
    """Return a shipped or user-defined method by its name in recipes.

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
