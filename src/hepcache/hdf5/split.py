"""Cut a file with partition keys in several, between events."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hepcache.errors import TableFileError
from hepcache.hdf5.concat import understood, write_output
from hepcache.hdf5.gather import gather, survey_all
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.outcome import Concatenated, Progress
from hepcache.hdf5.partition import Keys, as_runs
from hepcache.hdf5.place import OutputPlace
from hepcache.hdf5.plan import make_plan
from hepcache.hdf5.pool import DaskClient, executor_for, width
from hepcache.hdf5.reader import EventRange, EventTables

__all__ = ["ranges_table", "split"]


def split(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    parts: int,
    options: TableOptions | None = None,
    *,
    balance: str | None = None,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    progress: Progress = lambda _phase, _done, _total: None,
) -> list[Concatenated]:
    """Write a file's events to several files, none of which has half an event.

    Parameters
    ----------
    path
        A file with partition keys.
    directory
        Where ``NAME-0000.h5`` and so on are written; made if missing.
    parts
        How many files; fewer where there are fewer events.
    options
        How they are written; ``key`` and ``events`` say what its keys are made of.
    balance
        Group whose rows are shared out evenly; events by default.
    executor, jobs, overwrite, progress
        As in :func:`~hepcache.hdf5.concat.concatenate`.

    Raises
    ------
    TableFileError
        The file can't be read or has no partition keys; a part exists.
    """
    options = replace(options or TableOptions(), sort=())
    if options.key is None:
        options = replace(options, key="evt")
    source, out = os.fspath(path), Path(directory)
    tables = EventTables(source, key=str(options.key), events=options.events)
    ranges = tables.ranges(parts, balance=balance)
    out.mkdir(parents=True, exist_ok=True)
    names = [out / f"{Path(source).stem}-{n:04d}{Path(source).suffix}" for n in range(len(ranges))]
    for name in names:
        with OutputPlace(name).claimed(overwrite=overwrite):
            pass  # all can be written before the first one is
    with executor_for(executor, jobs) as workforce:
        made = []
        for name, one in zip(names, ranges, strict=True):
            done = Concatenated(str(name), files=1)
            with understood(name), OutputPlace(name).claimed():
                _write_part(
                    tables, one, OutputPlace(name), options, workforce, jobs, done, progress
                )
                OutputPlace(name).publish(overwrite=overwrite)
            done.finish()
            made.append(done)
    tables.close()
    return made


def _write_part(
    tables: EventTables,
    events: EventRange,
    place: OutputPlace,
    options: TableOptions,
    executor: Executor,
    jobs: int | None,
    done: Concatenated,
    progress: Progress,
) -> None:
    found = gather(survey_all([tables.path], executor), key=options.key, attributes=False)
    rows = np.zeros_like(found.rows)
    starts = np.zeros_like(found.rows)
    keys = Keys(np.array([-events.start]), options.memory_bytes // 8)
    groups = []
    for number, group in enumerate(found.schema.groups):
        name = group.path.decode("utf-8", "backslashreplace")
        if name in events.rows:
            first, last = events.rows[name]
            rows[0, number], starts[0, number] = last - first, first
            groups.append(number)
            keys.add(0, number, as_runs(tables.keys(name)))
        elif found.rows[0, number]:
            raise TableFileError(
                tables.path, f"/{name} has rows but no partition key: they belong to no event"
            )
    part = replace(found, rows=rows, starts=starts)
    plan = make_plan(part, options, key_groups=groups)
    workers = width(executor, jobs)
    try:
        write_output(place, plan, options, keys, executor, workers, done, True, progress)
    finally:
        keys.close()


def ranges_table(ranges: Sequence[EventRange]) -> list[dict[str, Any]]:
    """Return ranges as JSON-ready values."""
    return [
        {
            "start": one.start,
            "stop": one.stop,
            "rows": {group: list(rows) for group, rows in one.rows.items()},
        }
        for one in ranges
    ]
