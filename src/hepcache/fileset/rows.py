"""Rows of the catalogue: SQL with repair and care after a fork, and rows with checksums."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from hepcache.errors import CatalogueError
from hepcache.fileset.database import (
    explain,
    open_database,
    replace_damaged,
    transaction,
)
from hepcache.fileset.model import FileRecord

__all__ = ["Database", "below", "checksum", "decoded", "encoded", "storable"]

_INHERITED: list[sqlite3.Connection] = []
_T = TypeVar("_T")


class Database:
    """One connection to the catalogue's file, for any thread, reopened after a fork.

    Parameters
    ----------
    path
        The file; made when missing.

    Raises
    ------
    CatalogueError
        From every method: the file can't be opened, read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = open_database(path)
        self._process = os.getpid()

    def execute(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, self._errors():
            return self._mended(lambda connection: connection.execute(query, values).fetchall())

    def change(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """Execute a statement for all rows or none; return how many rows it changed."""
        with self._lock, self._errors():
            return self._mended(lambda connection: _write(connection, statement, rows))

    def close(self) -> None:
        """Close the file; it opens again when it is used again."""
        with self._lock:
            self._leave_to_parent()
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        self._leave_to_parent()
        if self._connection is None:
            self._connection, self._process = open_database(self.path), os.getpid()
        return self._connection

    def _leave_to_parent(self) -> None:
        # SQLite's locks do not survive a fork, so a child opens the file anew,
        # and never closes what it inherited: that could drop its parent's files.
        if self._connection is not None and self._process != os.getpid():
            _INHERITED.append(self._connection)
            self._connection = None

    def _mended(self, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something; once more with a new file where the old one proves damaged."""
        connection = self._open()
        try:
            return action(connection)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            connection.close()
            self._connection = None
            self._connection = replace_damaged(self.path)
            return action(self._connection)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CatalogueError(str(self.path), explain(error)) from error


def checksum(data: bytes) -> str:
    """Return 16 hexadecimal digits that SQLite, which has no checksums, keeps beside data."""
    return xxhash.xxh3_64_hexdigest(data)


def encoded(record: FileRecord, settled: bool) -> tuple[str, str]:
    """Return a record as JSON, and its checksum."""
    facts = json.dumps({"settled": settled, **asdict(record)}, separators=(",", ":"))
    return facts, checksum(facts.encode())


def decoded(facts: str, digest: str) -> tuple[FileRecord, bool] | None:
    """Return a record and whether its validator can be trusted; ``None`` if damaged."""
    if checksum(facts.encode()) != digest:
        return None
    values = json.loads(facts)
    settled = bool(values.pop("settled"))
    return FileRecord(**{**values, "clusters": tuple(values["clusters"])}), settled


def storable(path: str) -> str:
    """Return a path as SQLite can keep it: names that are not UTF-8 with escapes."""
    return path.encode(errors="backslashreplace").decode()


def below(place: str) -> str:
    """Return SQLite's pattern of everything below a directory."""
    escaped = re.sub(r"([*?[])", r"[\1]", place)
    return f"{escaped}/*"


def _write(connection: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> int:
    before = connection.total_changes
    with transaction(connection):
        connection.executemany(statement, rows)
    return connection.total_changes - before
