"""The columns of a file of tables as a tree has them: one entry per event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import awkward as ak
import numpy as np
import xxhash
from h5py import h5t

from hepcache.errors import TableFileError, TableMismatchError, UnknownColumnError
from hepcache.hdf5.model import text
from hepcache.hdf5.reader import EventTables
from hepcache.hdf5.survey import read_schema, survey

__all__ = ["EventColumn", "EventColumns", "open_events"]

_LARGEST_NUMBER = 8
_SUFFIX = ".seq"


@dataclass(frozen=True, slots=True)
class EventColumn:
    """One column; it answers what coffea asks of a branch of a tree.

    Attributes
    ----------
    name
        ``rec.vtx_x`` for the dataset ``x`` of the group ``/rec/vtx`` or ``/rec.vtx``,
        ``nrec.vtx`` for the number of rows that each event has there.
    group
        Full name of its group.
    dataset
        Full name of its dataset; ``""`` for a number of rows.
    kind
        Type of one value.
    tail
        Dimensions of one row, without those of length one at its end.
    counter
        The column of numbers of rows; ``""`` where every event has one row.
    """

    name: str
    group: str
    dataset: str
    kind: np.dtype[Any]
    tail: tuple[int, ...] = ()
    counter: str = ""

    @property
    def title(self) -> str:
        """What the column is, for people."""
        return f"/{self.dataset}" if self.dataset else f"rows of /{self.group}"

    @property
    def typename(self) -> str:
        """Its type, for people."""
        row = "".join(f"[{length}]" for length in self.tail)
        return f"{self.kind}{row}{'[]' if self.counter else ''}"

    @property
    def interpretation(self) -> EventColumn:
        """What has :meth:`awkward_form`."""
        return self

    def awkward_form(self, _file: Any = None) -> ak.forms.Form:
        """Return the form of its array of events."""
        form: ak.forms.Form = ak.forms.NumpyForm(self.kind.name)
        for length in reversed(self.tail):
            form = ak.forms.RegularForm(form, length)
        return ak.forms.ListOffsetForm("i64", form) if self.counter else form

    def layout(self, values: Any, offsets: Any) -> ak.contents.Content:
        """Return rows, shape ``(n_rows, *tail)``, as an array of events."""
        content: ak.contents.Content = ak.contents.NumpyArray(values.reshape(-1))
        for at in range(len(self.tail), 0, -1):
            count = len(values) * prod(self.tail[: at - 1])
            content = ak.contents.RegularArray(content, self.tail[at - 1], count)
        if not self.counter:
            return content
        return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content)


class EventColumns:
    """The columns of one file; it answers what coffea asks of a tree.

    Parameters
    ----------
    tables
        The file.

    Attributes
    ----------
    tables
        The file.
    title
        The group that lists the events.

    Notes
    -----
    Datasets of numbers are columns: lists with one item per row, or the rows
    themselves in the group that lists the events. Strings, lists of variable length
    and compound types have no column, nor have groups without partition keys.
    """

    def __init__(self, tables: EventTables) -> None:
        self.tables, self.title = tables, tables.spill
        self._columns: dict[str, EventColumn] = {}
        for column in self._found():
            other = self._columns.setdefault(column.name, column)
            if other is not column:
                raise TableFileError(
                    tables.path,
                    f"{other.title} and {column.title} would both be column {column.name}",
                )

    @property
    def num_entries(self) -> int:
        """Number of events."""
        return self.tables.events

    def keys(self) -> tuple[str, ...]:
        """Return the names of all columns."""
        return tuple(self._columns)

    def typenames(self) -> dict[str, str]:
        """Return the names of the types of all columns."""
        return {name: column.typename for name, column in self._columns.items()}

    def iteritems(
        self,
        filter_name: str | Sequence[str] | Callable[[str], bool] | None = None,
        **_others: Any,
    ) -> Iterator[tuple[str, EventColumn]]:
        """Yield the name of every column, and the column, as uproot's trees do."""
        for name, column in self._columns.items():
            if _passes(name, filter_name):
                yield name, column

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> EventColumn:
        found = self._columns.get(name)
        if found is None:
            raise UnknownColumnError(
                name, self.tables.path, get_close_matches(name, self._columns, 3)
            )
        return found

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that are equal where the columns are."""
        every = [
            (one.name, one.dataset, str(one.kind), one.tail) for one in self._columns.values()
        ]
        return xxhash.xxh3_64_hexdigest(repr((self.title, every)).encode())

    def _found(self) -> Iterator[EventColumn]:
        for group, datasets in self.tables.described().items():
            label = group.replace("/", ".") or "root"
            counter = "" if group == self.title else f"n{label}"
            if counter:
                yield EventColumn(counter, group, "", np.dtype(np.int64))
            for dataset, encoded, tail in datasets:
                kind = (
                    None if dataset.endswith(f"/{self.tables.key}{_SUFFIX}") else _number(encoded)
                )
                if kind is None or 0 in tail:
                    continue
                name = f"{label}_{dataset.rpartition('/')[2]}"
                yield EventColumn(name, group, dataset, kind, _row(tail), counter)


def open_events(path: str, tree: str | None = None) -> EventColumns:
    """Open a file as a tree of its events.

    Parameters
    ----------
    path
        The file.
    tree
        The group that lists the events; ``spill`` by default. Where there are several
        partition keys, the key behind a slash: ``spill/evt``.

    Raises
    ------
    TableFileError
        It can't be read, has no such group or no partition keys, or its keys do not
        number the rows of that group.
    """
    group, key = _listing(path, (tree or "spill").strip("/"))
    try:
        tables = EventTables(path, key=key, events=group)
    except TableMismatchError as error:
        raise TableFileError(path, str(error)) from error
    numbers = tables.keys(group)
    if len(numbers) and (numbers != np.arange(len(numbers))).any():
        tables.close()
        raise TableFileError(
            path, f"{text(group.encode())}/{key}{_SUFFIX} does not number its rows from 0 on"
        )
    return EventColumns(tables)


def _listing(path: str, wanted: str) -> tuple[str, str]:
    """Return the group that lists the events, and the name of the partition key."""
    schema = read_schema(survey(path))
    names = {column.path.decode("utf-8", "backslashreplace") for column in schema.columns}
    group, _, key = wanted.rpartition("/")
    if group and f"{wanted}{_SUFFIX}" in names:
        return group, key
    parents = (
        name.removesuffix(_SUFFIX).rpartition("/") for name in names if name.endswith(_SUFFIX)
    )
    keys = sorted(own for parent, _, own in parents if parent == wanted)
    if len(keys) == 1:
        return wanted, keys[0]
    shown = text(wanted.encode())
    if keys:
        choices = ", ".join(f"{wanted}/{one}" for one in keys)
        raise TableFileError(path, f"{shown} has several partition keys; name one: {choices}")
    raise TableFileError(
        path, f"{shown} has no partition keys; make them with hepcache hdf5 add-key"
    )


@lru_cache(1024)
def _number(encoded: bytes) -> np.dtype[Any] | None:
    """Return the native type of plain numbers that awkward has too, or nothing."""
    kind = h5t.decode(encoded)
    if kind.get_class() not in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM):
        return None
    dtype: np.dtype[Any] = np.dtype(kind.dtype)
    if dtype.kind not in "biuf" or dtype.itemsize > _LARGEST_NUMBER or dtype == np.float16:
        return None
    return dtype.newbyteorder("=")


def _row(tail: Iterable[int]) -> tuple[int, ...]:
    found = list(tail)
    while found and found[-1] == 1:
        found.pop()
    return tuple(found)


def _passes(name: str, wanted: str | Sequence[str] | Callable[[str], bool] | None) -> bool:
    if wanted is None:
        return True
    if callable(wanted):
        return bool(wanted(name))
    return any(fnmatchcase(name, one) for one in ([wanted] if isinstance(wanted, str) else wanted))
