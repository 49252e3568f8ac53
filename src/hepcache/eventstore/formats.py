"""What ingestion needs of a kind of files; that of HDF5 tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.classes import FileClasses, describe_classes
from hepcache.eventstore.table import Table
from hepcache.eventstore.tablefile import EventTables

__all__ = ["TABLES", "FileEvents", "FileFormat", "OpenEvents", "Part"]

Part: TypeAlias = tuple[int, int]
"""Which part of how many."""


class FileEvents(Protocol):
    """What a file gives, subrun by subrun.

    Attributes
    ----------
    path
        The file.
    layout
        What of it is taken.
    """

    path: str
    layout: str

    def subruns(
        self,
    ) -> Iterator[tuple[int, int, NDArray[np.uint64], Callable[[], dict[str, Table]]]]:
        """Return run, subrun, ascending event numbers, and what reads the products."""
        ...

    def place_of(self, run: int, subrun: int, event: int) -> str:
        """Return group and row of an event, in words."""
        ...


class OpenEvents(Protocol):
    """Opens a file's events, or a part of them."""

    def __call__(
        self, path: str, include: Sequence[str], exclude: Sequence[str], part: Part = (0, 1)
    ) -> AbstractContextManager[FileEvents]:
        """Return a context manager; a part is only asked for where there are several."""
        ...


def _one(path: str, include: Sequence[str], exclude: Sequence[str]) -> int:  # noqa: ARG001
    return 1


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files of one kind are described and read.

    Attributes
    ----------
    describe
        Takes a path and patterns of classes to take and to leave out.
    open
        Takes the same and a part, and returns a context manager of the file's events.
    parts
        Takes the same as ``describe``, and returns in how many parts a file is best read.
    """

    describe: Callable[[str, Sequence[str], Sequence[str]], FileClasses]
    open: OpenEvents
    parts: Callable[[str, Sequence[str], Sequence[str]], int] = _one


def _describe(path: str, include: Sequence[str], exclude: Sequence[str]) -> FileClasses:
    return describe_classes(path, include=include, exclude=exclude)


def _opened(
    path: str,
    include: Sequence[str],
    exclude: Sequence[str],
    part: Part = (0, 1),  # noqa: ARG001 - there is one
) -> EventTables:
    return EventTables(_describe(path, include, exclude))


TABLES = FileFormat(_describe, _opened)
"""HDF5 tables: a group per class."""
