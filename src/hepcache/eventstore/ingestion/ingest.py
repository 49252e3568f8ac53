"""Ingest files of tables as events and products: in parallel, resumable, each event once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from hepcache.errors import BadFileError, DuplicateItemError, TableMismatchError
from hepcache.eventstore.connect import connect
from hepcache.eventstore.containers import Dataset, SubRun
from hepcache.eventstore.ingestion.classes import FileClasses, FileEvents, FileFormat, Part
from hepcache.eventstore.keys import META
from hepcache.eventstore.shard.operations import AddEvents, Operation, PutItems, WriteTable
from hepcache.eventstore.store import Store
from hepcache.eventstore.table import Table

_MARK = META + b"ingested"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ingested:
    """The events and bytes of one file that was ingested.

    Attributes
    ----------
    events, subruns
        Events and subruns of the file.
    skipped_events
        Events that the store had already, from the same file.
    rows, written_bytes
        Rows and bytes of the products that were written.
    """

    path: str
    events: int
    subruns: int
    skipped_events: int
    rows: int
    written_bytes: int


def file_format(files: Sequence[str | os.PathLike[str]]) -> FileFormat:
    """Return the format of files, by their first bytes: NanoAOD, or else HDF5 tables.

    Raises
    ------
    BadFileError
        Only some of them are ROOT files.
    """
    starts = {}
    for path in files:
        with Path(path).open("rb") as file:
            starts[path] = file.read(4)
    others = [path for path, start in starts.items() if start != b"root"]
    if len(others) == len(starts):
        return _hdf5_tables()
    if others:
        problem = "no ROOT file, as others are; give one kind at a time"
        raise BadFileError({os.fspath(others[0]): problem})
    from hepcache.eventstore.ingestion.root import NANOAOD

    return NANOAOD


def ingest(
    store: Store,
    dataset: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    kind: FileFormat | None = None,
    executor: Executor | None = None,
    progress: Callable[[Ingested], None] | None = None,
) -> list[Ingested]:
    """Write the events of files, and a product per class, into a dataset.

    Each subrun of a file is written atomically. An interrupted ingestion continues
    where it stopped, and files that were ingested already, under any name, are
    left alone. All files are checked before anything is written.

    Parameters
    ----------
    store
        The store.
    dataset
        Path of the dataset; it is made if it is missing.
    files
        Files of tables: a group per class, with ``run``, ``subrun`` and ``evt``; or files of
        another ``kind``.
    include, exclude
        Patterns of the classes to take and to leave out.
    kind
        Format of the files, HDF5 tables by default; :func:`hepcache.eventstore.file_format`
        detects it.
    executor
        Processes that ingest a file each, or a part of a large one; other
        processes must then be able to open the store.
    progress
        Called with every finished file.

    Returns
    -------
    list of Ingested
        In the order of the files.

    Raises
    ------
    TableFileError
        A file can't be read.
    TableMismatchError
        A group is no class, files have different classes of one name, or an
        event is in the dataset already; the error names file, group and row.
    """
    kind = kind or _hdf5_tables()
    paths = [os.fspath(path) for path in files]
    _check_classes([kind.describe(path, include, exclude) for path in paths])
    store.create(dataset)
    chosen = (kind, tuple(include), tuple(exclude))
    if executor is not None:
        return _ingest_in_parallel(store.url, dataset, paths, chosen, executor, progress)
    done = []
    for path in paths:
        with kind.open(path, include, exclude) as events:
            done.append(ingest_events(store[dataset], events))
        if progress is not None:
            progress(done[-1])
    return done


def _hdf5_tables() -> FileFormat:
    from hepcache.eventstore.ingestion.hdf5 import HDF5_TABLES  # needs more packages

    return HDF5_TABLES


_Chosen = tuple[FileFormat, tuple[str, ...], tuple[str, ...]]


def _ingest_in_parallel(
    url: str,
    dataset: str,
    paths: Sequence[str],
    chosen: _Chosen,
    executor: Executor,
    progress: Callable[[Ingested], None] | None,
) -> list[Ingested]:
    kind, include, exclude = chosen
    counts = [kind.parts(path, include, exclude) for path in paths]
    # The digest of a file's content is the same for all its parts.
    digests = {
        path: executor.submit(_file_digest, path, chosen)
        for path, count in zip(paths, counts, strict=True)
        if count > 1
    }
    parts: list[list[Future[Ingested]]] = [[] for _ in paths]
    try:
        # Files that are read whole first: they need not wait for a digest.
        for index in sorted(range(len(paths)), key=lambda index: counts[index]):
            path, count = paths[index], counts[index]
            digest = digests[path].result() if count > 1 else None
            parts[index] = [
                executor.submit(
                    _ingest_elsewhere, url, dataset, path, chosen, (number, count), digest
                )
                for number in range(count)
            ]
        file_of = {part: index for index, of_file in enumerate(parts) for part in of_file}
        left = list(counts)
        for part in as_completed(file_of):
            part.result()
            index = file_of[part]
            left[index] -= 1
            if not left[index] and progress is not None:
                progress(_sum_of_parts(parts[index]))
        return [_sum_of_parts(of_file) for of_file in parts]
    finally:
        for future in digests.values():
            future.cancel()
        for of_file in parts:
            for part in of_file:
                part.cancel()


def _sum_of_parts(parts: Sequence[Future[Ingested]]) -> Ingested:
    rows = [astuple(part.result()) for part in parts]
    (path, *_), *counts = zip(*rows, strict=True)
    return Ingested(path, *map(sum, counts))


def _check_classes(files: Sequence[FileClasses]) -> None:
    """Check that no two files hold different classes of one name."""
    known: dict[str, tuple[str, dict[str, tuple[Any, ...]]]] = {}
    problems = {}
    for file in files:
        for described in file.classes:
            columns = {column.name: (column.type, column.shape) for column in described.columns}
            first, expected = known.setdefault(described.name, (file.path, columns))
            if columns != expected:
                unlike = sorted(
                    name
                    for name in {*columns, *expected}
                    if columns.get(name) != expected.get(name)
                )
                problems[f"{file.path}: group {described.group}"] = (
                    f"differs from {first} in {', '.join(unlike)}; ingest them into datasets of "
                    "their own, or leave the group out"
                )
    if problems:
        raise TableMismatchError(problems)


def _ingest_elsewhere(
    url: str, dataset: str, path: str, chosen: _Chosen, part: Part, digest: bytes | None
) -> Ingested:
    kind, include, exclude = chosen
    with connect(url) as store, kind.open(path, include, exclude, part) as events:
        return ingest_events(store[dataset], events, digest)


def _file_digest(path: str, chosen: _Chosen) -> bytes:
    kind, include, exclude = chosen
    with kind.open(path, include, exclude) as events:
        return _digest(events)


def ingest_events(dataset: Dataset, file: FileEvents, digest: bytes | None = None) -> Ingested:
    """Write all events of one file, or of a part of it.

    ``digest`` is that of the file's content, where the caller has it.
    """
    digest = digest or _digest(file)
    event_count = subrun_count = skipped = rows = written_bytes = 0
    for run, number, events, read in file.subruns():
        subrun = dataset.create(run, exist_ok=True).create(number, exist_ok=True)
        event_count += len(events)
        subrun_count += 1
        mark = _MARK + subrun.key + digest
        known = np.isin(events, subrun.numbers(int(events[0]), int(events[-1]) + 1))
        marked = dataset.store.shard(subrun.key).get(mark) is not None
        if marked and bool(known.all()):
            skipped += len(events)
            continue
        tables = read()
        # With a mark but without an event, the event was removed: the others are this file's.
        _write(subrun, events, tables, mark, file, again=marked)
        rows += sum(_rows(table) for table in tables.values())
        written_bytes += sum(table.nbytes for table in tables.values())
    return Ingested(file.path, event_count, subrun_count, skipped, rows, written_bytes)


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
        *(
            WriteTable(subrun.key, label, table, again)
            for label, table in tables.items()
            if len(table)
        ),
        PutItems(((mark, b""),), overwrite=True),
    ]
    try:
        subrun.store.apply(subrun.key, operations)
    except DuplicateItemError as error:
        there = np.isin(events, subrun.numbers(int(events[0]), int(events[-1]) + 1))
        event = int(events[there][0]) if there.any() else int(events[0])
        where = f"{file.path}: {file.location_of(subrun.run, subrun.number, event)}"
        problem = (
            f"event {event} of run {subrun.run}, subrun {subrun.number} is in dataset "
            f"{subrun.path.split('/' + str(subrun.run))[0]} already, "
            "from another file or with other classes; remove it there, or ingest this file "
            "into another dataset"
        )
        raise TableMismatchError({where: problem}) from error


def _rows(table: Table) -> int:
    return len(table) if table.offsets is None else int(table.offsets[-1])


def _digest(file_events: FileEvents) -> bytes:
    """Return a digest of the content that a file has or refers to, and of the classes taken."""
    digest = xxhash.xxh3_128(file_events.layout.encode())
    for path in (file_events.path, *file_events.sources):
        with Path(path).open("rb") as file:
            while part := file.read(_READ_BYTES):
                digest.update(part)
    return digest.digest()
