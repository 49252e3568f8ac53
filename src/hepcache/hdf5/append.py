"""Append to an earlier output, and add keys to it: in place, all at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

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
from hepcache.hdf5.model import (
    Concatenated,
    Int64Array,
    Progress,
    TableOptions,
    display_path,
    no_progress,
)
from hepcache.hdf5.output import OutputFile, WriteContext, fill_output, writing
from hepcache.hdf5.plan import Plan
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
        The output, changed in place. Until the append is complete and durable
        it is, for all who open it, as it was, even if this process is killed.
    options
        ``key``, ``events``, ``sort``, ``attributes``, ``memory_bytes`` and the
        effort matter; the datasets' layout stays.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Raises
    ------
    ConfigurationError, TableFileError, TableMismatchError
        As in :func:`~hepcache.hdf5.concatenate`; and the output has
        partition keys but ``key`` was not given, or the other way around.

    Notes
    -----
    New chunks go behind the file's end, which no reader looks at; changes of
    what is there are held back, and made through a journal at the end. If that
    last step is cut off, the next ``append`` or
    :func:`~hepcache.hdf5.recover_output` finishes it.
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
            matched = _sort_new(match_files(tables, key=options.key, attributes=equal), options)
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
    """Add partition keys to a file, in place.

    Parameters
    ----------
    path
        One input, or a concatenation of many whose list of events tells runs
        and subruns apart.
    options
        ``key`` and ``events`` say of what keys are made; by default of ``/spill/evt``.
    executor, jobs, progress
        As in :func:`~hepcache.hdf5.concatenate`.

    Raises
    ------
    ConfigurationError
        No key was named.
    TableFileError
        The file can't be read or written, or has such keys.
    TableMismatchError
        Keys can't be made; every group concerned is named.
    """
    options = options or TableOptions(key="evt")
    if options.key is None:
        raise ConfigurationError("key", "the name of a dataset, such as evt", None)
    name = os.fspath(path)
    with writing(name, 1, options, executor, jobs, progress) as context:
        context.pending.recover()
        tables = survey_all([name], context.executor)
        matched = match_files([replace(tables[0], size=-1)], key=options.key)
        if matched.keys:
            there = display_path(matched.keys[0].path)
            raise TableFileError(name, f"has partition keys already ({there})")
        with context.done.timed("keys"):
            plan, keys = plan_output(matched, context, virtual=True)
        _change(plan, keys, context, OutputFile.create_keys)
    return context.done


def recover_output(path: str | os.PathLike[str]) -> None:
    """Finish a change of a file that was cut off while it became visible, if there is one.

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
    if options.key is not None:
        event_group, groups = key_groups(inputs, options.key, options.event_group)
        columns = {column.group: column for column in inputs.keys}
        missing = [group for group in groups if group not in columns]
        if missing:
            where = display_path(inputs.schema.groups[missing[0]].path)
            raise TableFileError(
                path, f"{where} has no partition keys; add them first with hepcache hdf5 add-key"
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
