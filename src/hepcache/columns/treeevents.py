"""The events of a NanoAOD tree or RNTuple, as an event store ingests them.

A collection, which is what a counter such as ``nMuon`` counts, is a class;
what an event has one of is a class by the first part of its name
(``MET_pt``), or ``event``. Run, luminosity block and event are the event's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import awkward as ak
import numpy as np
import uproot
from numpy.typing import NDArray

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.eventstore.classes import ClassColumn, ClassDescription, FileClasses
from hepcache.eventstore.formats import FileFormat, Part
from hepcache.eventstore.gathering import gather_rows
from hepcache.eventstore.table import Table

__all__ = ["TREES", "TREE_INDEX", "TreeEvents", "describe_tree"]

TREE_INDEX = ("run", "luminosityBlock", "event")
"""Branches that tell events apart."""

_ALONE = "event"
_UNREADABLE = (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError)


def describe_tree(
    path: str,
    tree: str = "Events",
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
) -> FileClasses:
    """Derive the classes of a NanoAOD file.

    Parameters
    ----------
    path, tree
        The file, and the tree or RNTuple in it.
    include, exclude
        Patterns of class names.

    Raises
    ------
    TableFileError
        It can't be read, or has no such tree.
    TableMismatchError
        It lacks the branches that tell events apart.
    """
    with TreeEvents(path, tree, include=include, exclude=exclude) as events:
        return events.described


class TreeEvents:
    """The events of one file; a context manager.

    Parameters
    ----------
    path, tree
        The file, and the tree or RNTuple in it.
    include, exclude
        Patterns of class names.

    Attributes
    ----------
    path
        The file.
    layout
        What of it is taken.
    described
        The classes.

    Raises
    ------
    TableFileError
        It can't be read, or has no such tree.
    TableMismatchError
        It lacks the branches that tell events apart.
    """

    def __init__(
        self,
        path: str,
        tree: str = "Events",
        *,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
    ) -> None:
        self.path = path
        try:
            self._file = uproot.open(path)
            self._tree = self._file[tree]
            names = list(self._tree.keys(recursive=False))
        except _UNREADABLE as error:
            raise TableFileError(
                path, f"it has no tree {tree} that can be read: {error}"
            ) from error
        missing = [name for name in TREE_INDEX if name not in names]
        if missing:
            raise TableMismatchError({
                f"{path}: group {tree}": f"it lacks {', '.join(missing)}, so its entries are no "
                "events"
            })  # fmt: skip
        classes = _collections(names)
        self._lists = self._with_lists(classes, names)
        self._columns = {
            label: columns
            for label, columns in classes.items()
            if any(fnmatchcase(label, one) for one in include)
            and not any(fnmatchcase(label, one) for one in exclude)
        }
        self.layout = " ".join([tree, *sorted(self._columns)])
        self.described = self._described()
        index = self._read(TREE_INDEX, 0, None)
        self._rows = gather_rows(*(ak.to_numpy(index[name]) for name in TREE_INDEX))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()

    def subruns(
        self,
    ) -> Iterator[tuple[int, int, NDArray[np.uint64], Callable[[], dict[str, Table]]]]:
        """Return run, luminosity block, ascending event numbers, and what reads the products.

        Raises
        ------
        TableMismatchError
            The file has an event twice.
        """
        ids, order = self._rows.ids, self._rows.order
        twice = np.flatnonzero(self._rows.counts > 1)
        if len(twice):
            at = int(twice[0])
            entry = int(self._rows.edges[at] + 1)
            entry = entry if order is None else int(order[entry])
            where = f"{self.path}: group {self._tree.name}, row {entry}"
            problem = f"event {ids.event[at]} of run {ids.run[at]} is in the file twice"
            raise TableMismatchError({where: problem})
        for low, high in pairwise(ids.subrun_edges().tolist()):
            entries = np.arange(low, high) if order is None else order[low:high]
            yield (
                int(ids.run[low]),
                int(ids.subrun[low]),
                ids.event[low:high],
                lambda entries=entries, events=ids.event[low:high]: self._tables(entries, events),  # type: ignore[misc]
            )

    def place_of(self, run: int, subrun: int, event: int) -> str:
        """Return tree and entry of an event, in words."""
        ids, order = self._rows.ids, self._rows.order
        same = (ids.run == run) & (ids.subrun == subrun) & (ids.event == event)
        at = int(np.flatnonzero(same)[0])
        return f"group {self._tree.name}, row {at if order is None else int(order[at])}"

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
            flat = {name: _flat(ak.flatten(one, axis=1)) for name, one in chosen.items()}
            found[label] = Table.build(None, events, flat, offsets)
        return found

    def _check_lengths(
        self, label: str, columns: Mapping[str, Any], counts: NDArray[np.int64]
    ) -> None:
        unlike = [
            name for name, one in columns.items() if (ak.to_numpy(ak.num(one)) != counts).any()
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
        """Return the labels of collections; what only looks like a counter becomes a column."""
        counted = {label: columns for label, columns in classes.items() if f"n{label}" in names}
        read = self._read([one for columns in counted.values() for one in columns.values()], 0, 1)
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
        first = {label: next(iter(self._columns[label].values())) for label in self._lists
                 if label in self._columns}  # fmt: skip
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


def _opened(
    path: str,
    include: Sequence[str],
    exclude: Sequence[str],
    part: Part = (0, 1),  # noqa: ARG001 - there is one
) -> TreeEvents:
    return TreeEvents(path, include=include, exclude=exclude)


def _describe(path: str, include: Sequence[str], exclude: Sequence[str]) -> FileClasses:
    return describe_tree(path, include=include, exclude=exclude)


TREES = FileFormat(_describe, _opened)
"""NanoAOD, as :func:`hepcache.eventstore.ingestion.ingest` takes it."""


def _collections(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return classes: label to the names of their columns and the branches that hold them.

    ``label_column`` is the branch's name again; ``label`` where the column has no name.
    What has no label is a column of ``event`` under the branch's whole name.
    """
    counted = _counted(names)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        if name in TREE_INDEX or (name[1:] in counted and name.startswith("n")):
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
