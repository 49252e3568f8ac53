"""Files of tables become events and products: in parallel, resumable, each event once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from hepcache.errors import DuplicateItemError, TableMismatchError
from hepcache.eventstore.classes import FileClasses
from hepcache.eventstore.connect import connect
from hepcache.eventstore.containers import Dataset
from hepcache.eventstore.formats import TABLES, FileEvents, FileFormat, Part
from hepcache.eventstore.keys import META
from hepcache.eventstore.operations import AddEvents, Operation, PutItems, WriteTable
from hepcache.eventstore.store import Store
from hepcache.eventstore.subrun import SubRun
from hepcache.eventstore.table import Table

__all__ = [
    "Ingested",
    "common_classes",
    "ingest",
    "ingest_events",
]

_MARK = META + b"ingested"
_PART = 1 << 20


@dataclass(frozen=True, slots=True)
class Ingested:
    """What one file came to.

    Attributes
    ----------
    path
        The file.
    events, subruns
        How many it holds.
    skipped_events
        How many of them had been ingested from this file before.
    rows
        Rows of all classes that were written.
    written_bytes
        Decoded bytes of their columns.
    """

    path: str
    events: int
    subruns: int
    skipped_events: int
    rows: int
    written_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return asdict(self)


def ingest(
    store: Store,
    dataset: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    kind: FileFormat = TABLES,
    executor: Executor | None = None,
    progress: Callable[[Ingested], None] | None = None,
) -> list[Ingested]:
    """Write the events of files, and a product per class, into a dataset.

    Of every file, a subrun is written as one; an interrupted ingestion goes on
    where it was, and files that are there already are left alone, under
    whatever name they come. All files are looked at before anything is written.

    Parameters
    ----------
    store
        Where to.
    dataset
        Path of the dataset; made where missing.
    files
        Files of tables: a group per class, with ``run``, ``subrun`` and ``evt``.
    include, exclude
        Patterns of class names.
    kind
        What files these are.
    executor
        Processes that ingest a file each, or a part of a large one; for these,
        the store must be one that other processes can reach.
    progress
        Told of each file that is done.

    Returns
    -------
    list of Ingested
        In the order of the files.

    Raises
    ------
    TableFileError
        A file can't be read.
    TableMismatchError
        A group is no class, files hold different classes of one name, or an
        event is in the dataset already; file, group and row are named.
    """
    paths = [os.fspath(one) for one in files]
    common_classes([kind.describe(one, include, exclude) for one in paths])
    store.create(dataset)
    chosen = (kind, tuple(include), tuple(exclude))
    if executor is None:
        done = []
        for path in paths:
            done.append(_ingest_file(store, dataset, path, *chosen))
            if progress is not None:
                progress(done[-1])
        return done
    counts = [kind.parts(path, *chosen[1:]) for path in paths]
    # Its digest names a file's content, and is the same for all parts.
    digests = {
        path: executor.submit(_digest_there, path, *chosen)
        for path, count in zip(paths, counts, strict=True)
        if count > 1
    }
    parts: list[list[Future[Ingested]]] = [[] for _ in paths]
    try:
        # Files that are read whole first: they need not wait.
        for index in sorted(range(len(paths)), key=lambda one: counts[one]):
            path, count = paths[index], counts[index]
            digest = digests[path].result() if count > 1 else None
            parts[index] = [
                executor.submit(
                    _ingest_there, store.url, dataset, path, *chosen, (number, count), digest
                )
                for number in range(count)
            ]
        file_of = {part: index for index, of in enumerate(parts) for part in of}
        left = list(counts)
        for part in as_completed(file_of):
            part.result()
            index = file_of[part]
            left[index] -= 1
            if not left[index] and progress is not None:
                progress(_together(parts[index]))
        return [_together(of) for of in parts]
    finally:
        for digest_of in digests.values():
            digest_of.cancel()
        for part in (part for of in parts for part in of):
            part.cancel()


def _together(parts: Sequence[Future[Ingested]]) -> Ingested:
    """Return what all parts of a file came to."""
    rows = [astuple(part.result()) for part in parts]
    return Ingested(rows[0][0], *(sum(column) for column in list(zip(*rows, strict=True))[1:]))


def common_classes(files: Sequence[FileClasses]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return the columns of every class of several files: name to type and shape.

    Raises
    ------
    TableMismatchError
        Files hold different classes of one name.
    """
    known: dict[str, tuple[str, dict[str, tuple[Any, ...]]]] = {}
    problems = {}
    for file in files:
        for one in file.classes:
            columns = {column.name: (column.type, column.shape) for column in one.columns}
            first, expected = known.setdefault(one.name, (file.path, columns))
            if columns != expected:
                unlike = sorted(
                    name
                    for name in {*columns, *expected}
                    if columns.get(name) != expected.get(name)
                )
                problems[f"{file.path}: group {one.group}"] = (
                    f"differs from {first} in {', '.join(unlike)}; ingest them into datasets of "
                    "their own, or leave the group out"
                )
    if problems:
        raise TableMismatchError(problems)
    return {name: columns for name, (_, columns) in known.items()}


def _ingest_there(
    url: str,
    dataset: str,
    path: str,
    kind: FileFormat,
    include: Sequence[str],
    exclude: Sequence[str],
    part: Part,
    digest: bytes | None,
) -> Ingested:
    with connect(url) as store:
        return _ingest_file(store, dataset, path, kind, include, exclude, part, digest)


def _ingest_file(
    store: Store,
    dataset: str,
    path: str,
    kind: FileFormat,
    include: Sequence[str],
    exclude: Sequence[str],
    part: Part = (0, 1),
    digest: bytes | None = None,
) -> Ingested:
    with kind.open(path, include, exclude, part) as events:
        return ingest_events(store[dataset], events, digest)


def _digest_there(
    path: str, kind: FileFormat, include: Sequence[str], exclude: Sequence[str]
) -> bytes:
    with kind.open(path, include, exclude) as events:
        return _digest(events)


def ingest_events(dataset: Dataset, file: FileEvents, digest: bytes | None = None) -> Ingested:
    """Write all events of one file, or of a part of it.

    Parameters
    ----------
    dataset
        Where to.
    file
        The file; its content's digest marks what is written.
    digest
        That digest, if the caller has it.

    Raises
    ------
    TableMismatchError
        An event is in the dataset already, from elsewhere.
    """
    digest = digest or _digest(file)
    counts = [0, 0, 0, 0, 0]
    for run, number, events, read in file.subruns():
        subrun = dataset.create(run, exist_ok=True).create(number, exist_ok=True)
        counts[0] += len(events)
        counts[1] += 1
        mark = _MARK + subrun.key + digest
        known = np.isin(events, subrun.numbers(int(events[0]), int(events[-1]) + 1))
        marked = dataset.store.shard(subrun.key).get(mark) is not None
        if marked and bool(known.all()):
            counts[2] += len(events)
            continue
        tables = read()
        # Where a mark is but an event isn't, somebody removed it: what is left is this file's.
        _write(subrun, events, tables, mark, file, again=marked)
        counts[3] += sum(_rows(one) for one in tables.values())
        counts[4] += sum(one.nbytes for one in tables.values())
    return Ingested(file.path, *counts)


def _write(
    subrun: SubRun,
    events: Any,
    tables: dict[str, Table],
    mark: bytes,
    file: FileEvents,
    *,
    again: bool,
) -> None:
    operations: list[Operation] = [
        AddEvents(subrun.key, events, exclusive=not again),
        *(WriteTable(subrun.key, label, one, again) for label, one in tables.items() if len(one)),
        PutItems(((mark, b""),), overwrite=True),
    ]
    try:
        subrun.store.apply(subrun.key, operations)
    except DuplicateItemError as error:
        there = np.isin(events, subrun.numbers(int(events[0]), int(events[-1]) + 1))
        event = int(events[there][0]) if there.any() else int(events[0])
        where = f"{file.path}: {file.place_of(subrun.run, subrun.number, event)}"
        raise TableMismatchError({
            where: f"event {event} of run {subrun.run}, subrun {subrun.number} is in dataset "
            f"{subrun.path.split('/' + str(subrun.run))[0]} already, "
            "from another file or with other classes; remove it there, or ingest this file "
            "into another dataset"
        }) from error  # fmt: skip


def _rows(table: Table) -> int:
    return len(table) if table.offsets is None else int(table.offsets[-1])


def _digest(file_events: FileEvents) -> bytes:
    """Return what names the content of a file, and what of it is taken."""
    digest = xxhash.xxh3_128(file_events.layout.encode())
    with Path(file_events.path).open("rb") as file:
        while part := file.read(_PART):
            digest.update(part)
    return digest.digest()
