"""Rewrite a file with other chunks, join files without copying, or split a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from hepcache.errors import ConfigurationError, TableFileError
from hepcache.hdf5.concat import check_names, join_files, write_output
from hepcache.hdf5.executors import DaskClient, executor_for
from hepcache.hdf5.inputs import match_files, survey_all
from hepcache.hdf5.journal import PendingOutput
from hepcache.hdf5.key_tasks import SpooledKeys
from hepcache.hdf5.keys import runs_of_keys
from hepcache.hdf5.model import Concatenated, Progress, TableOptions, no_progress, object_name
from hepcache.hdf5.output import FILE_BOUNDS, WriteContext, link_name, writing
from hepcache.hdf5.plan import make_plan
from hepcache.hdf5.reader import EventRange, EventTables
from hepcache.io.atomic import write_atomically


def rechunk(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Concatenated:
    """Rewrite a file with other chunks or another compression.

    Parameters
    ----------
    path, out
        The file, and the path of the new one.
    options
        How it is written. Partition keys are not changed.
    executor, jobs, overwrite, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Raises
    ------
    ConfigurationError, TableFileError, TableMismatchError
        As there.
    """
    check_names([os.fspath(path)], out)
    options = options or TableOptions()
    with writing(out, 1, options, executor, jobs, progress, overwrite=overwrite) as context:
        join_files([os.fspath(path)], context, keep_keys=True)
    return context.done


def link(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    how: Literal["virtual", "external"] = "virtual",
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Concatenated:
    """Join files without copying: the output refers to them, so they must stay.

    Parameters
    ----------
    inputs, out
        The files. The output refers to files below its own directory by relative names.
    options
        Only ``key``, ``events`` and ``sort`` have an effect; keys are real datasets.
    how
        ``"virtual"`` makes one dataset of all rows, ``"external"`` one group per
        file, with the file's name.
    executor, jobs, overwrite, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Raises
    ------
    ConfigurationError, TableFileError, TableMismatchError
        As there.
    """
    if how not in ("virtual", "external"):
        raise ConfigurationError("how", "virtual or external", how)
    paths = [os.fspath(path) for path in inputs]
    check_names(paths, out)
    options = options or TableOptions()
    with writing(
        out, len(paths), options, executor, jobs, progress, overwrite=overwrite
    ) as context:
        if how == "virtual":
            join_files(paths, context, virtual=True)
        else:
            _link_externally(paths, context)
    return context.done


def _link_externally(paths: Sequence[str], context: WriteContext) -> None:
    pending = context.pending
    surveyed = survey_all(paths, context.executor)
    matched = match_files(surveyed, attributes=False, keep_keys=True)
    names = [Path(path).stem for path in paths]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        equal = ", ".join(sorted(twice))
        raise TableFileError(str(pending.path), f"files of equal names: {equal}")
    pending.discard()
    # A small file, made in memory: HDF5 itself can't handle a full disk.
    made = BytesIO()
    with h5py.File(made, "w", libver=FILE_BOUNDS) as file:
        for name, path in zip(names, paths, strict=True):
            file[name] = h5py.ExternalLink(link_name(pending.path.parent, path), "/")
    write_atomically(pending.part, made.getbuffer())
    pending.publish(overwrite=context.overwrite)
    context.done.groups = len(paths)
    context.done.datasets = len(matched.schema.columns)


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
    progress: Progress = no_progress,
) -> list[Concatenated]:
    """Write a file's events to several files, without splitting an event.

    Parameters
    ----------
    path
        A file with partition keys.
    directory
        Directory of ``NAME-0000.h5`` and so on; made if missing.
    parts
        Number of files; fewer if there are fewer events.
    options
        How they are written; ``key`` and ``events`` name the datasets of its keys.
    balance
        Group whose rows are divided evenly; events by default.
    executor, jobs, overwrite, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Returns
    -------
    list of Concatenated
        One result per written file.

    Raises
    ------
    TableFileError
        The file can't be read or has no partition keys; a part exists.
    """
    options = replace(options or TableOptions(), sort=())
    if options.key is None:
        options = replace(options, key="evt")
    source = Path(path)
    target = Path(directory)
    tables = EventTables(source, key=str(options.key_name), events=options.event_group)
    ranges = tables.ranges(parts, balance=balance)
    target.mkdir(parents=True, exist_ok=True)
    outputs = [target / f"{source.stem}-{n:04d}{source.suffix}" for n in range(len(ranges))]
    for output in outputs:
        with PendingOutput(output).claimed(overwrite=overwrite):
            pass  # all can be written before the first one is
    made = []
    with executor_for(executor, jobs) as pool:
        for output, events in zip(outputs, ranges, strict=True):
            with writing(output, 1, options, pool, jobs, progress, overwrite=overwrite) as context:
                _write_part(tables, events, context)
            made.append(context.done)
    tables.close()
    return made


def _write_part(tables: EventTables, events: EventRange, context: WriteContext) -> None:
    """Write the file of a range of events."""
    options = context.options
    surveyed = survey_all([tables.path], context.executor)
    whole = match_files(surveyed, key=options.key_name, attributes=False)
    rows = np.zeros_like(whole.rows)
    starts = np.zeros_like(whole.rows)
    keys = SpooledKeys(np.array([-events.start]), options.key_memory_bytes)
    groups = []
    try:
        for number, group in enumerate(whole.schema.groups):
            name = object_name(group.path)
            if name in events.rows:
                first, last = events.rows[name]
                rows[0, number] = last - first
                starts[0, number] = first
                groups.append(number)
                keys.add(0, number, runs_of_keys(tables.keys(name)))
            elif whole.rows[0, number]:
                raise TableFileError(
                    tables.path, f"/{name} has rows but no partition key: they belong to no event"
                )
        plan = make_plan(replace(whole, rows=rows, starts=starts), options, key_groups=groups)
        write_output(plan, keys, context, restart=True)
    finally:
        keys.close()
