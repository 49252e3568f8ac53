"""Append to an earlier output, and add keys to it: in place, all at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from h5py import h5t
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, TableFileError
from hepcache.hdf5.concat import check_names, plan_output
from hepcache.hdf5.executors import DaskClient
from hepcache.hdf5.format.mapped import lock_for_reading
from hepcache.hdf5.inputs import (
    SIGNATURE,
    Inputs,
    match_files,
    raise_problems,
    sort_inputs,
    survey_all,
)
from hepcache.hdf5.journal import PendingOutput
from hepcache.hdf5.key_tasks import SpooledKeys, key_groups
from hepcache.hdf5.keys import expand_runs
from hepcache.hdf5.model import (
    Column,
    Concatenated,
    Int64Array,
    Progress,
    TableOptions,
    display_path,
    no_progress,
)
from hepcache.hdf5.output import OutputFile, WriteContext, fill_output, writing
from hepcache.hdf5.plan import Plan, make_plan
from hepcache.hdf5.rows import ColumnLayout, RowReader, StoredColumn, read_integers

_NEW_SUPERBLOCK = 2


def append(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Progress = no_progress,
) -> Concatenated:
    """Append files to an earlier output.

    Parameters
    ----------
    inputs
        Files of the same groups and datasets as the output's.
    out
        The output, changed in place. Until the append is complete and durable,
        readers see the old content, even if this process is killed.
    options
        Only ``key``, ``events``, ``sort``, ``attributes``, ``memory_bytes`` and the
        effort have an effect; the datasets' layout stays.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Raises
    ------
    ConfigurationError, TableFileError, TableMismatchError
        As in :func:`~hepcache.hdf5.concatenate`; and the output has
        partition keys but ``key`` was not given, or the other way around.

    Notes
    -----
    New chunks are written behind the file's end, where no reader looks. Changes of
    existing content are delayed, and made through a journal at the end. If that
    last step is interrupted, the next ``append`` or
    :func:`~hepcache.hdf5.recover_output` completes it.
    """
    options = options or TableOptions()
    paths = [os.fspath(path) for path in inputs]
    check_names(paths, out)
    if not Path(out).exists():
        raise TableFileError(os.fspath(out), "is not there to append to")
    with writing(out, len(paths), options, executor, jobs, progress) as context:
        context.pending.recover()
        with context.done.timed("survey"):
            tables = survey_all([os.fspath(out), *paths], context.executor)
            # It grows meanwhile; what was surveyed of it stays.
            tables[0] = replace(tables[0], size=-1)
            equal = options.attributes == "equal"
            matched = _sort_new(
                match_files(tables, key=options.key_name, attributes=equal), options
            )
        with context.done.timed("keys"):
            plan, keys = _plan_append(matched, context)
        _change(plan, keys, context, OutputFile.extend)
    return context.done


def add_key(
    path: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Progress = no_progress,
) -> Concatenated:
    """Add missing partition keys to a file, in place.

    Parameters
    ----------
    path
        One input, or a concatenation of many whose list of events has runs
        and subruns.
    options
        ``key`` and ``events`` define the datasets for the keys, by default ``/spill/evt``;
        ``key_groups`` the groups that get them, and ``counts`` whether rows are counted.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Raises
    ------
    ConfigurationError
        No key was named.
    TableFileError
        The file can't be read or written, or has all keys already.
    TableMismatchError
        Keys can't be made, or existing keys don't match their rows; the error names every
        group concerned.
    """
    options = options or TableOptions(key="evt")
    key = options.event_key
    if key is None:
        raise ConfigurationError("key", "the name of a dataset, such as evt", None)
    name = os.fspath(path)
    with writing(name, 1, options, executor, jobs, progress) as context:
        context.pending.recover()
        tables = survey_all([name], context.executor)
        matched = match_files([replace(tables[0], size=-1)], key=key.name)
        with context.done.timed("keys"):
            plan, keys = plan_output(matched, context, virtual=True)
            assert keys is not None
            try:
                plan = _plan_missing(plan, keys, matched, context)
            except BaseException:
                keys.close()
                raise
        _change(plan, keys, context, OutputFile.create_keys)
    return context.done


def _plan_missing(plan: Plan, keys: SpooledKeys, inputs: Inputs, context: WriteContext) -> Plan:
    """Leave out of a plan the keys and counts that are there, which must be right."""
    options = context.options
    path = inputs.tables[0].path
    key = options.event_key
    assert key is not None
    event_group, _ = key_groups(inputs, key)
    there = {column.group for column in inputs.keys}
    wrong = {
        f"{path}: {display_path(inputs.schema.groups[group].path)}/{key.sequence}": (
            "is not the key of its rows; remove it first"
        )
        for group, values in _existing_keys(inputs, event_group).items()
        if group in keys.groups and not np.array_equal(values, expand_runs([keys(0, group)]))
    }
    raise_problems(wrong)
    groups = [group for group in keys.groups if group not in there]
    counted = {column.group for column in inputs.counts}
    count_groups = set(plan.counted) - counted
    if not groups and not count_groups:
        raise TableFileError(
            path, f"has partition keys already ({display_path(inputs.keys[0].path)})"
        )
    missing = make_plan(inputs, options, key_groups=groups, virtual=True)
    names = {group: name for group, name in plan.counted.items() if group in count_groups}
    return replace(missing, counted=names)


def add_index(
    path: str | os.PathLike[str],
    dataset: str,
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Progress = no_progress,
) -> Concatenated:
    """Add a column with one value to the group that lists the events, in place.

    Some datasets that distinguish events of several files, such as ``cycle``, are missing in each
    file's list of events; keys can be made of them only if the list has them.

    Parameters
    ----------
    path
        One input, in which the dataset has one value.
    dataset
        Full name of the dataset with the value, such as ``/rec.hdr/cycle``.
    options
        ``events`` names the group that lists the events.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Raises
    ------
    TableFileError
        The file can't be read or written; the dataset is missing, or has several values or
        none; or the list of events has such a column already.
    """
    options = options or TableOptions()
    name = os.fspath(path)
    with writing(name, 1, options, executor, jobs, progress) as context:
        context.pending.recover()
        tables = survey_all([name], context.executor)
        inputs = match_files([replace(tables[0], size=-1)], keep_keys=True)
        column, value = _only_value(inputs, dataset.strip("/").encode())
        group = options.event_group.encode()
        paths = [found.path for found in inputs.schema.groups]
        if group not in paths[1:]:
            raise TableFileError(name, f"has no group {display_path(group)}")
        added = group + b"/" + column.name
        if added in inputs.schema.numbers():
            raise TableFileError(name, f"has {display_path(added)} already")
        count = int(inputs.rows[0, paths.index(group)])
        rows = np.repeat(value, count, axis=0)
        plan = replace(make_plan(inputs, options, virtual=True), counted={})
        _change(
            plan,
            None,
            context,
            lambda output: output.add_column(group, column.name, column.type, rows),
        )
        context.done.datasets += 1
    return context.done


def _only_value(inputs: Inputs, path: bytes) -> tuple[Column, NDArray[Any]]:
    """Return a dataset and its only value, as one row."""
    name = inputs.tables[0].path
    number = inputs.schema.numbers().get(path)
    if number is None or inputs.schema.columns[number].rank < 1:
        raise TableFileError(name, f"has no dataset {display_path(path)} of rows")
    stored = inputs.stored_column(0, number)
    column = stored.layout.column
    length = int(inputs.rows[0, column.group])
    if column.variable or not length:
        why = "holds values of variable length" if column.variable else "has no rows"
        raise TableFileError(name, f"{display_path(path)} {why}, so there is no value to take")
    with closing(RowReader(inputs.source(0))) as reader:
        raw = reader.rows(stored, 0, length).reshape(length, column.row_bytes)
    if (raw != raw[0]).any():
        raise TableFileError(name, f"{display_path(path)} holds several values, not one")
    return column, raw[:1].view(h5t.decode(column.type).dtype).reshape(1, *column.tail)


def recover_output(path: str | os.PathLike[str]) -> None:
    """Complete a change of a file that was interrupted while it became visible, if there is one.

    Raises
    ------
    TableFileError
        Another process is writing it, or its directory can't be written.
    """
    pending = PendingOutput(Path(path))
    with pending.claimed():
        pending.recover()


def _change(
    plan: Plan,
    keys: SpooledKeys | None,
    context: WriteContext,
    prepare: Callable[[OutputFile], None],
) -> None:
    """Change a file in place; on any error it is as it was."""
    with _kept_from_writers(context.pending.path):
        _change_locked(plan, keys, context, prepare)


@contextmanager
def _kept_from_writers(path: Path) -> Iterator[None]:
    """Let others only read a file meanwhile."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lock_for_reading(file)
        yield
    finally:
        os.close(file)


def _change_locked(
    plan: Plan,
    keys: SpooledKeys | None,
    context: WriteContext,
    prepare: Callable[[OutputFile], None],
) -> None:
    pending = context.pending
    before = content_bytes(pending.path)
    output = None
    try:
        opened = output = OutputFile(pending.path, pending.journal, plan, protected=before)
        fill_output(output, keys, context, prepare=lambda: prepare(opened))
    except BaseException:
        if output is not None:
            output.abandon()
        if not pending.journal.exists():
            os.truncate(pending.path, before)  # what lies behind was never visible
        raise
    finally:
        if keys is not None:
            keys.close()


def content_bytes(path: Path) -> int:
    """Return how much of a file HDF5 looks at; a killed append leaves more behind it."""
    with path.open("rb") as file:
        start = file.read(64)
        size = os.fstat(file.fileno()).st_size
    version = start[8] if start[:8] == SIGNATURE else -1
    at = {0: 40, 1: 44, 2: 28, 3: 28}.get(version)
    sizes_of_numbers = start[13:15] if version < _NEW_SUPERBLOCK else start[9:11]
    if at is None or sizes_of_numbers != b"\x08\x08":
        return size
    return min(size, int.from_bytes(start[at : at + 8], "little"))


def _sort_new(inputs: Inputs, options: TableOptions) -> Inputs:
    """Sort all but the first, which is the earlier output."""
    earlier = inputs.tables[0]
    by_values = sort_inputs(inputs, options)
    new = [n for n, tables in enumerate(by_values.tables) if tables is not earlier]
    first = [n for n, tables in enumerate(by_values.tables) if tables is earlier]
    return by_values.reordered([*first, *new])


def _plan_append(inputs: Inputs, context: WriteContext) -> tuple[Plan, SpooledKeys | None]:
    path = inputs.tables[0].path
    raise_problems({f"{path}: {where}": why for where, why in _not_extensible(inputs).items()})
    options = context.options
    existing_keys = None
    key = options.event_key
    if key is not None:
        event_group, _ = key_groups(inputs, key)
        if event_group not in {column.group for column in inputs.keys}:
            raise TableFileError(
                path,
                f"/{key.group} has no partition keys; add them first with hepcache hdf5 add-key",
            )
        existing_keys = _existing_keys(inputs, event_group)
    storages = {column.path: column.storage for column in (*inputs.schema.columns, *inputs.keys)}
    return plan_output(inputs, context, storages=storages, existing_keys=existing_keys)


def _not_extensible(inputs: Inputs) -> dict[str, str]:
    """Return the datasets of the output that can't grow."""
    grows = (inputs.rows[1:].sum(axis=0) > 0).tolist()
    problems = {}
    for column in (*inputs.schema.columns, *inputs.keys):
        if column.rank < 1 or not grows[column.group]:
            continue
        chunk = column.storage.chunk
        if not chunk or chunk[1:] != column.tail:
            problems[display_path(column.path)] = (
                "can't grow: it has no chunks of whole rows; write the file anew with "
                "hepcache hdf5 rechunk"
            )
    return problems


def _existing_keys(inputs: Inputs, event_group: int) -> dict[int, Int64Array]:
    """Return the keys that the output has, of groups that have rows."""
    events = int(inputs.rows[0, event_group])
    problems = {}
    found: dict[int, Int64Array] = {}
    with closing(RowReader(inputs.source(0))) as reader:
        for column in inputs.keys:
            length = int(inputs.rows[0, column.group])
            if not length:
                continue
            # Their addresses were not surveyed: those marked as variable are read by the library.
            layout = ColumnLayout(column._replace(variable=True), column.storage)
            (found_keys,) = read_integers(reader, [StoredColumn(layout, -1, length)])
            values = found_keys.astype(np.int64)
            if values[0] < 0 or values[-1] >= events or (np.diff(values) < 0).any():
                path = f"{reader.source.path}: {display_path(column.path)}"
                problems[path] = f"does not number the {events} events of this file"
            found[column.group] = values
    raise_problems(problems)
    return found
