"""What ingestion needs of a kind of files; that of HDF5 tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.classes import FileClasses, describe_classes
from hepcache.eventstore.table import Table
from hepcache.eventstore.tablefile import EventTables

__all__ = ["TABLES", "FileEvents", "FileFormat"]


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


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files of one kind are described and read.

    Attributes
    ----------
    describe
        Takes a path and patterns of classes to take and to leave out.
    open
        Takes the same, and returns a context manager of the file's events.
    """

    describe: Callable[[str, Sequence[str], Sequence[str]], FileClasses]
    open: Callable[[str, Sequence[str], Sequence[str]], AbstractContextManager[FileEvents]]


def _describe(path: str, include: Sequence[str], exclude: Sequence[str]) -> FileClasses:
    return describe_classes(path, include=include, exclude=exclude)


def _opened(path: str, include: Sequence[str], exclude: Sequence[str]) -> EventTables:
    return EventTables(_describe(path, include, exclude))


TABLES = FileFormat(_describe, _opened)
"""HDF5 tables: a group per class."""
