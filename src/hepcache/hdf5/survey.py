"""Look at an input once: its schema's digest, its lengths, where its columns lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from hepcache.errors import HepcacheError, TableFileError
from hepcache.hdf5.direct import DirectTables
from hepcache.hdf5.image import Image, UnsupportedLayoutError
from hepcache.hdf5.library import fixed_digests, library_tables, open_library
from hepcache.hdf5.model import FileTables, Schema

__all__ = ["SIGNATURE", "read_schema", "survey", "understood_file"]

# What h5py and numpy raise over damaged files, apart from errors of the system.
_UNREADABLE = (
    OSError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    UnsupportedLayoutError,
)
SIGNATURE = b"\x89HDF\r\n\x1a\n"


def survey(path: str, *, direct: bool = True) -> FileTables:
    """Look at one file.

    Parameters
    ----------
    path
        The file.
    direct
        Whether it may be read without HDF5's library where its format allows.

    Raises
    ------
    TableFileError
        It can't be read, is no HDF5 file, is cut off, or holds what is no table.
    """
    with understood_file(path):
        if direct:
            try:
                return _direct(path)
            except _UNREADABLE:
                pass  # HDF5's library says what is wrong, if anything is
        return _through_library(path)


def read_schema(tables: FileTables) -> Schema:
    """Return the schema of a file that was looked at.

    Raises
    ------
    TableFileError
        It can't be read any more.
    """
    with understood_file(tables.path):
        if tables.direct:
            return DirectTables(Image(tables.path)).schema()
        file = open_library(tables.path)
        try:
            return library_tables(file)[0]
        finally:
            file.close()


@contextmanager
def understood_file(path: str) -> Iterator[None]:
    """Turn errors of the system and of HDF5 into ours, which name the file.

    Raises
    ------
    TableFileError
        Instead of any error of a file.
    """
    try:
        yield
    except HepcacheError:
        raise
    except _UNREADABLE as error:
        raise _understood(path, error) from error


def _direct(path: str) -> FileTables:
    image = Image(path)
    found = DirectTables(image)
    special, fixed = found.special, {}
    if special:
        file = open_library(path)
        try:
            fixed = fixed_digests(file, special)
        finally:
            file.close()
    filled = np.flatnonzero(found.lengths > 0)
    return FileTables(
        path,
        image.size,
        image.mtime_ns,
        True,
        found.digest,
        len(found.lengths),
        filled,
        found.lengths[filled],
        found.addresses[filled],
        fixed,
    )


def _through_library(path: str) -> FileTables:
    file = open_library(path)
    try:
        status = os.stat(path)  # noqa: PTH116 - a plain path in workers
        schema, lengths = library_tables(file)
        paths = [group.path for group in schema.groups] + [one.path for one in schema.columns]
        fixed = fixed_digests(file, paths)
    finally:
        file.close()
    digest = b"library" + xxhash.xxh3_128(repr(schema).encode()).digest()
    filled = np.flatnonzero(lengths > 0)
    return FileTables(
        path,
        status.st_size,
        status.st_mtime_ns,
        False,
        digest,
        len(lengths),
        filled,
        lengths[filled],
        np.zeros(len(filled), np.int64),
        fixed,
    )


def _understood(path: str, error: Exception) -> TableFileError:
    """Say what is wrong with a file better than HDF5 does."""
    problem: Any = error
    try:
        with Path(path).open("rb") as file:
            start, size = file.read(len(SIGNATURE)), os.fstat(file.fileno()).st_size
        if not size:
            problem = "it is empty"
        elif isinstance(error, UnsupportedLayoutError):
            pass
        elif "truncated" in str(error):
            problem = f"it is cut off ({size} bytes are there); copy it again"
        elif start != SIGNATURE:
            problem = "it is not an HDF5 file"
    except OSError as reason:
        problem = reason.strerror or reason
    return TableFileError(path, str(problem))
