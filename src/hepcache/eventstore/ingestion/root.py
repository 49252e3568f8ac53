"""The events of a NanoAOD tree or RNTuple, as an event store ingests them.

A collection, which is counted by a branch such as ``nMuon``, is a class. Branches with one
value per event are columns of a class named by the first part of their name (``MET_pt``), or
of ``event``. Run, luminosity block and event number an event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Self

import awkward as ak
import numpy as np
import uproot
from numpy.typing import NDArray

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.eventstore.ingestion.classes import (
    ClassColumn,
    ClassDescription,
    FileClasses,
    FileFormat,
    FileSubrun,
    Part,
    gather_rows,
    is_chosen,
)
from hepcache.eventstore.table import Table

_TREE = "Events"
_INDEX = ("run", "luminosityBlock", "event")  # branches that tell events apart
_ALONE = "event"
_UNREADABLE = (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError)


def describe_tree(path: str, include: Sequence[str], exclude: Sequence[str]) -> FileClasses:
    """Derive the classes of a NanoAOD file; errors are those of :class:`TreeEvents`."""
    with TreeEvents(path, include, exclude) as events:
        return events.described


class TreeEvents:
    """The events of one file; a context manager.

    Raises ``TableFileError``: it can't be read, or has no such tree.
    Raises ``TableMismatchError``: it lacks the branches that tell events apart.
    """

    def __init__(
        self, path: str, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.sources: tuple[str, ...] = ()
        try:
            self._file = uproot.open(path)
            self._tree = self._file[_TREE]
            names = list(self._tree.keys(recursive=False))
        except _UNREADABLE as error:
            raise TableFileError(
                path, f"it has no tree {_TREE} that can be read: {error}"
            ) from error
        missing = [name for name in _INDEX if name not in names]
        if missing:
            problem = f"it lacks {', '.join(missing)}, so its entries are no events"
            raise TableMismatchError({f"{path}: group {_TREE}": problem})
        classes = _collections(names)
        self._lists = self._with_lists(classes, names)
        self._columns = {
            label: columns
            for label, columns in classes.items()
            if is_chosen(label, include, exclude)
        }
        self.layout = " ".join([_TREE, *sorted(self._columns)])
        self.described = self._described()
        index = self._read(_INDEX, 0, None)
        self._rows = gather_rows(*(ak.to_numpy(index[name]) for name in _INDEX))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def subruns(self) -> Iterator[FileSubrun]:
        """Return the subruns, which are luminosity blocks, in order."""
        ids, order = self._rows.ids, self._rows.order
        twice = np.flatnonzero(self._rows.counts > 1)
        if len(twice):
            first = int(twice[0])
            entry = self._rows.row(int(self._rows.edges[first] + 1))
            where = f"{self.path}: group {self._tree.name}, row {entry}"
            problem = f"event {ids.event[first]} of run {ids.run[first]} is in the file twice"
            raise TableMismatchError({where: problem})
        for low, high in pairwise(ids.subrun_edges().tolist()):
            entries = np.arange(low, high) if order is None else order[low:high]
            events = ids.event[low:high]
            yield FileSubrun(
                int(ids.run[low]),
                int(ids.subrun[low]),
                events,
                partial(self._tables, entries, events),
            )

    def location_of(self, run: int, subrun: int, event: int) -> str:
        """Return tree and entry of an event, in words."""
        entry = self._rows.row(self._rows.ids.position(run, subrun, event))
        return f"group {self._tree.name}, row {entry}"

    def _tables(self, entries: NDArray[np.int64], events: NDArray[np.uint64]) -> dict[str, Table]:
        first, last = int(entries.min()), int(entries.max()) + 1
        found = {}
        read = self._read(self._branches(), first, last)
        for label, columns in self._columns.items():
            chosen = {name: read[branch][entries - first] for name, branch in columns.items()}
            lists = next(iter(chosen.values()))
            if label not in self._lists:
                found[label] = Table.build(None, events, {n: _flat(c) for n, c in chosen.items()})
                continue
            offsets = np.zeros(len(entries) + 1, np.int64)
            counts = ak.to_numpy(ak.num(lists))
            np.cumsum(counts, out=offsets[1:])
            self._check_lengths(label, chosen, counts)
            flat = {name: _flat(ak.flatten(values, axis=1)) for name, values in chosen.items()}
            found[label] = Table.build(None, events, flat, offsets)
        return found

    def _check_lengths(
        self, label: str, columns: Mapping[str, Any], counts: NDArray[np.int64]
    ) -> None:
        unlike = [
            name for name, lists in columns.items() if (ak.to_numpy(ak.num(lists)) != counts).any()
        ]
        if unlike:
            where = f"{self.path}: group {self._tree.name}"
            problem = f"lists of {label} differ in length: {', '.join(sorted(unlike))}"
            raise TableMismatchError({where: f"{problem}; leave them out with --exclude {label}"})

    def _read(self, names: Sequence[str], first: int, last: int | None) -> Mapping[str, Any]:
        try:
            # One call for all: uproot walks all fields of an RNTuple in each.
            read = self._tree.arrays(
                filter_name=set(names).__contains__, entry_start=first, entry_stop=last
            )
            return {name: read[name] for name in names}
        except _UNREADABLE as error:
            raise TableFileError(self.path, str(error)) from error

    def _branches(self) -> list[str]:
        return [branch for columns in self._columns.values() for branch in columns.values()]

    def _with_lists(self, classes: dict[str, dict[str, str]], names: Sequence[str]) -> set[str]:
        """Return the labels of collections; a branch that only seems a counter is a column."""
        counted = {label: columns for label, columns in classes.items() if f"n{label}" in names}
        branches = [branch for columns in counted.values() for branch in columns.values()]
        read = self._read(branches, 0, 1)
        lists = set()
        for label, columns in counted.items():
            if all(_is_list(read[branch].type.content) for branch in columns.values()):
                lists.add(label)
            else:
                classes.setdefault(_ALONE, {})[f"n{label}"] = f"n{label}"
        return lists

    def _described(self) -> FileClasses:
        """Return the classes, with types as one entry has them."""
        classes = []
        read = self._read(self._branches(), 0, 1)
        first = {
            label: next(iter(self._columns[label].values()))
            for label in self._lists
            if label in self._columns
        }
        lengths = self._read(list(first.values()), 0, None)
        for label, columns in sorted(self._columns.items()):
            kinds = {name: read[branch].type.content for name, branch in columns.items()}
            rows = int(self._tree.num_entries)
            if label in first:
                rows = int(ak.sum(ak.num(lengths[first[label]])))
                kinds = {name: kind.content for name, kind in kinds.items()}
            described = [ClassColumn(name, str(kind), ()) for name, kind in sorted(kinds.items())]
            classes.append(ClassDescription(label, label, tuple(described), (), rows))
        return FileClasses(self.path, tuple(classes))


def _is_list(kind: Any) -> bool:
    return isinstance(kind, ak.types.ListType) and not kind.parameters


def _collections(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return classes: label to the names of their columns and the branches that hold them.

    A branch is named ``label_column``, or ``label`` where the column has no name. A branch
    without a label is a column of ``event`` under its whole name.
    """
    counted = _counted(names)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        if name in _INDEX or (name[1:] in counted and name.startswith("n")):
            continue
        label, _, rest = name.partition("_")
        if label in counted or (rest and label and label != _ALONE):
            found.setdefault(label, {})[rest] = name
        else:
            found.setdefault(_ALONE, {})[name] = name
    return found


def _counted(names: Sequence[str]) -> set[str]:
    """Return the labels of which a branch may count the items."""
    labels = {name.partition("_")[0] for name in names}
    wanted = {name[1:] for name in names if name.startswith("n") and name[1:2].isupper()}
    return wanted & labels - {_ALONE}


def _flat(column: Any) -> Any:
    """Return a plain column as numpy, every other as it is."""
    packed = ak.to_packed(column)
    return ak.to_numpy(packed) if packed.layout.is_numpy else packed


def _opened(
    path: str,
    include: Sequence[str],
    exclude: Sequence[str],
    part: Part = (0, 1),  # noqa: ARG001 - there is one
) -> TreeEvents:
    return TreeEvents(path, include, exclude)


NANOAOD = FileFormat(describe_tree, _opened)
"""NanoAOD, in a TTree or RNTuple."""
