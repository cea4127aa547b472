"""Sequences whose items are made when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T", covariant=True)


class Rows(Sequence[T], Generic[T]):
    """A sequence that holds no items. A subclass gives their number and returns the item of a row."""

    @abstractmethod
    def row(self, number: int) -> T:
        """Return the item of a row, counted from 0."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self.row(number) for number in range(*index.indices(len(self)))]
        return self.row(range(len(self))[index])
