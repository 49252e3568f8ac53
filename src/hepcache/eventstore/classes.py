"""What classes of products a file of HDF5 tables holds, derived from the file itself.

The layout is that of neutrino experiments: a group is a class, its datasets
are columns of equal length, and ``run``, ``subrun`` and ``evt`` say to which
event a row belongs; further integer columns (``subevt``, ``..._idx``) count
the parts of an event.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import HepcacheError, TableFileError, TableMismatchError

if TYPE_CHECKING:
    import h5py

__all__ = [
    "EVENT_INDEX",
    "ClassColumn",
    "ClassDescription",
    "FileClasses",
    "describe_classes",
    "index_columns",
    "opened_tables",
]

EVENT_INDEX = ("run", "subrun", "evt")
"""Columns that tell to which event a row belongs."""

_KEY = "evt.seq"  # numbers a concatenated file's events; it is no part of them
_SUB_EVENT = ("subevt", "subevent", "*_idx", "*_index")
_UNREADABLE = (OSError, RuntimeError, ValueError, TypeError, KeyError)


@dataclass(frozen=True, slots=True)
class ClassColumn:
    """One column of a class.

    Attributes
    ----------
    name
        Of the dataset.
    type
        numpy's name of the type of one value, such as ``float32``, or ``string``.
    shape
        Of one row's value; ``()`` where the dataset's second dimension is 1.
    """

    name: str
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClassDescription:
    """One class: a group of a file.

    Attributes
    ----------
    name
        Label of its products: the group's path with dots for slashes.
    group
        The group's path.
    columns
        All but those of :data:`EVENT_INDEX` and the partition key, in the order of
        their names.
    sub_event
        Names of the columns that count the parts of an event.
    rows
        How many the file has.
    """

    name: str
    group: str
    columns: tuple[ClassColumn, ...]
    sub_event: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class FileClasses:
    """All classes of one file.

    Attributes
    ----------
    path
        The file.
    classes
        In the order of their names.
    """

    path: str
    classes: tuple[ClassDescription, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return asdict(self)


def describe_classes(
    path: str | os.PathLike[str], *, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()
) -> FileClasses:
    """Derive the classes of a file from its groups.

    Parameters
    ----------
    path
        The file.
    include, exclude
        Patterns of class names, as of a shell.

    Raises
    ------
    TableFileError
        It can't be read, or holds no class.
    TableMismatchError
        A group lacks index columns, its columns are not equally long, or a
        column is of a kind that can't be stored. All groups are named.
    """
    name = os.fspath(path)
    problems: dict[str, str] = {}
    found = []
    with opened_tables(name) as file:
        for group, datasets in _groups(file):
            label = group.replace("/", ".")
            chosen = any(fnmatchcase(label, one) for one in include)
            if not chosen or any(fnmatchcase(label, one) for one in exclude):
                continue
            problem = _problem(datasets)
            if problem:
                problems[f"{name}: group {group}"] = problem
            else:
                found.append(_description(label, group, datasets))
    if problems:
        raise TableMismatchError(problems)
    if not found:
        raise TableFileError(name, "it has no group of datasets that was asked for")
    return FileClasses(name, tuple(sorted(found, key=lambda one: one.name)))


def index_columns(file: h5py.File, group: str) -> list[NDArray[np.uint64]]:
    """Return run, subrun and event of every row of a group, shape ``(n_rows,)`` each.

    Raises
    ------
    TableMismatchError
        A number is negative; its row is named.
    """
    columns = []
    for name in EVENT_INDEX:
        values = file[group][name][()].reshape(-1)
        if values.dtype.kind == "i" and len(values) and values.min() < 0:
            row = int(np.flatnonzero(values < 0)[0])
            where = f"{file.filename}: group {group}, row {row}"
            raise TableMismatchError({where: f"{name} is {values[row]}; numbers begin at 0"})
        columns.append(values.astype(np.uint64, copy=False))
    return columns


@contextmanager
def opened_tables(path: str) -> Iterator[h5py.File]:
    """Open a file of tables; whatever is wrong with it names it.

    Raises
    ------
    ImportError
        h5py is not there; the message names the extra.
    TableFileError
        It can't be opened or read.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            f"{error}; HDF5 files need more packages: pip install 'hepcache[hdf5]'"
        ) from error
    try:
        with h5py.File(path, "r") as file:
            yield file
    except HepcacheError:
        raise
    except _UNREADABLE as error:
        raise TableFileError(path, str(error)) from error


def _groups(file: h5py.File) -> list[tuple[str, dict[str, Any]]]:
    """Return all groups that hold datasets, by path."""
    import h5py

    found: dict[str, dict[str, Any]] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            group, _, column = name.rpartition("/")
            if group:
                found.setdefault(group, {})[column] = item

    file.visititems(visit)
    return sorted(found.items())


def _problem(datasets: dict[str, Any]) -> str:
    """Return what keeps a group from being a class, or ``""``."""
    missing = [name for name in EVENT_INDEX if name not in datasets]
    if missing:
        return (
            f"it lacks the index {'column' if len(missing) == 1 else 'columns'} "
            f"{', '.join(missing)}, so its rows belong to no event; leave it out with --exclude"
        )
    for name, one in datasets.items():
        if len(one.shape) < 1 or (name in EVENT_INDEX and len(one) != one.size):
            return f"column {name} has the shape {one.shape}, where a value per row is needed"
        if name in EVENT_INDEX and one.dtype.kind not in "iu":
            return f"index column {name} holds {one.dtype}, not whole numbers"
        if one.dtype.kind not in "biufSO" or (one.dtype.kind == "O" and not _is_string(one)):
            return f"column {name} holds {one.dtype}, which can't be a column; leave the group out"
    lengths = {name: len(one) for name, one in datasets.items()}
    rows = lengths["evt"]
    unlike = [f"{name} has {n}" for name, n in sorted(lengths.items()) if n != rows]
    if unlike:
        row = min(lengths.values())
        return f"evt has {rows} rows, but {', '.join(unlike)}: row {row} is incomplete"
    return ""


def _is_string(dataset: Any) -> bool:
    import h5py

    return h5py.check_string_dtype(dataset.dtype) is not None


def _description(label: str, group: str, datasets: dict[str, Any]) -> ClassDescription:
    columns = tuple(
        ClassColumn(
            name,
            "string" if _is_string(one) else one.dtype.newbyteorder("=").name,
            () if one.shape[1:] == (1,) else tuple(one.shape[1:]),
        )
        for name, one in sorted(datasets.items())
        if name not in (*EVENT_INDEX, _KEY)
    )
    counting = tuple(
        one.name
        for one in columns
        if np.dtype(datasets[one.name].dtype).kind in "iu"
        and any(fnmatchcase(one.name, pattern) for pattern in _SUB_EVENT)
    )
    return ClassDescription(label, group, columns, counting, len(datasets["evt"]))
