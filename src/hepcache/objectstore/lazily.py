"""Lists whose items are made when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

__all__ = ["Lazily"]

T = TypeVar("T")


class Lazily(Sequence[T], Generic[T]):
    """A list whose items are made when they are first asked for, then kept.

    Parameters
    ----------
    length
        Number of items.
    make
        Returns the item of a position; two threads may make the same one.
    """

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._length, self._make = length, make
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self._length))]
        position = range(self._length)[index]
        if position not in self._made:
            self._made[position] = self._make(position)
        return self._made[position]
