"""Append to an earlier output, and add keys to it: in place, all at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, TableFileError
from hepcache.hdf5.concat import check_names, understood
from hepcache.hdf5.gather import Inputs, gather, raise_problems, survey_all
from hepcache.hdf5.keywork import Place, read_values
from hepcache.hdf5.model import Column, text
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.outcome import Concatenated, Progress
from hepcache.hdf5.output import Output
from hepcache.hdf5.partition import Keys, find_all_keys, key_groups
from hepcache.hdf5.place import OutputPlace
from hepcache.hdf5.plan import Plan, make_plan
from hepcache.hdf5.pool import DaskClient, executor_for, width
from hepcache.hdf5.rows import RowReader
from hepcache.hdf5.sorting import sorted_inputs
from hepcache.hdf5.survey import SIGNATURE
from hepcache.hdf5.writer import Writer

__all__ = ["add_key", "append", "recover_output"]

_NEW_SUPERBLOCK = 2


def append(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Progress = lambda _phase, _done, _total: None,
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
        As in :func:`~hepcache.hdf5.concat.concatenate`.

    Raises
    ------
    ConfigurationError, TableFileError, TableMismatchError
        As in :func:`~hepcache.hdf5.concat.concatenate`; and the output has
        partition keys but ``key`` was not given, or the other way around.

    Notes
    -----
    New chunks go behind the file's end, which no reader looks at; changes of
    what is there are held back, and made through a journal at the end. If that
    last step is cut off, the next ``append`` or ``recover`` finishes it.
    """
    options = options or TableOptions()
    paths = [os.fspath(path) for path in inputs]
    place = OutputPlace(Path(out))
    check_names(paths, place.path)
    if not place.path.exists():
        raise TableFileError(str(place.path), "is not there to append to")
    done = Concatenated(str(place.path), files=len(paths))
    with _changing(place, executor, jobs) as workforce:
        with done.timed("survey"):
            tables = survey_all([str(place.path), *paths], workforce)
            # It grows meanwhile; what was surveyed of it stays.
            tables[0] = replace(tables[0], size=-1)
            attributes = options.attributes == "equal"
            found = _sorted(gather(tables, key=options.key, attributes=attributes), options)
        with done.timed("keys"):
            plan, keys = _planned(found, options, workforce)
        _change(place, plan, options, keys, workforce, jobs, done, progress, Output.extend)
    done.finish()
    return done


def add_key(
    path: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    progress: Progress = lambda _phase, _done, _total: None,
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
        As in :func:`~hepcache.hdf5.concat.concatenate`.

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
    place = OutputPlace(Path(path))
    done = Concatenated(str(place.path), files=1)
    with _changing(place, executor, jobs) as workforce:
        tables = survey_all([str(place.path)], workforce)
        found = gather([replace(tables[0], size=-1)], key=options.key)
        if found.keys:
            raise TableFileError(
                str(place.path), f"has partition keys already ({text(found.keys[0].path)})"
            )
        with done.timed("keys"):
            spill, groups = key_groups(found, options.key, options.events)
            room = options.memory_bytes // 8
            keys = find_all_keys(found, options.key, spill, groups, workforce, memory_bytes=room)
            plan = make_plan(found, options, key_groups=groups, virtual=True)
        _change(place, plan, options, keys, workforce, jobs, done, progress, Output.create_keys)
    done.finish()
    return done


def recover_output(path: str | os.PathLike[str]) -> None:
    """Finish a change of a file that was cut off while it became visible, if there is one."""
    place = OutputPlace(Path(path))
    with place.claimed():
        place.recover()


@contextmanager
def _changing(
    place: OutputPlace, executor: Executor | DaskClient | None, jobs: int | None
) -> Iterator[Executor]:
    with understood(place.path), place.claimed(), executor_for(executor, jobs) as workforce:
        place.recover()
        yield workforce


def _change(
    place: OutputPlace,
    plan: Plan,
    options: TableOptions,
    keys: Keys | None,
    executor: Executor,
    jobs: int | None,
    done: Concatenated,
    progress: Progress,
    prepare: Callable[[Output], None],
) -> None:
    """Change a file in place; on any error it is as it was."""
    before = content_bytes(place.path)
    output = None
    try:
        made = output = Output(place.path, place.journal, plan, protected=before)
        workers = width(executor, jobs)
        writer = Writer(output, plan, options, keys, executor, workers, done, progress)
        writer.fill(lambda: prepare(made))
        with done.timed("finish"):
            output.close()
            output.file.commit()
            output.file.close()
    except BaseException:
        if output is not None:
            output.abandon()
        if not place.journal.exists():
            os.truncate(place.path, before)  # what lies behind was never visible
        raise
    finally:
        if keys is not None:
            keys.close()
    done.groups, done.datasets = len(plan.schema.groups) - 1, len(plan.schema.columns)


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


def _sorted(inputs: Inputs, options: TableOptions) -> Inputs:
    """Sort all but the first, which is the earlier output."""
    order = sorted_inputs(inputs, options)
    rest = [n for n, one in enumerate(order.tables) if one is not inputs.tables[0]]
    first = [n for n, one in enumerate(order.tables) if one is inputs.tables[0]]
    return order.ordered([*first, *rest])


def _planned(
    inputs: Inputs, options: TableOptions, executor: Executor
) -> tuple[Plan, Keys | None]:
    path = inputs.tables[0].path
    storages = {column.path: column.storage for column in (*inputs.schema.columns, *inputs.keys)}
    raise_problems({f"{path}: {w}": why for w, why in _not_extensible(inputs).items()})
    if options.key is None:
        return make_plan(inputs, options, existing=storages), None
    spill, groups = key_groups(inputs, options.key, options.events)
    kept = {column.group: column for column in inputs.keys}
    missing = [group for group in groups if group not in kept]
    if missing:
        where = text(inputs.schema.groups[missing[0]].path)
        raise TableFileError(
            path, f"{where} has no partition keys; add them first with hepcache hdf5 add-key"
        )
    existing = _existing_keys(inputs, kept, spill)
    room = options.memory_bytes // 8
    keys = find_all_keys(
        inputs, options.key, spill, groups, executor, memory_bytes=room, existing=existing
    )
    return make_plan(inputs, options, key_groups=groups, existing=storages), keys


def _not_extensible(inputs: Inputs) -> dict[str, str]:
    """Return the datasets of the output that can't grow."""
    grows = (inputs.rows[1:].sum(axis=0) > 0).tolist()
    problems = {}
    for column in (*inputs.schema.columns, *inputs.keys):
        if column.rank < 1 or not grows[column.group]:
            continue
        chunk = column.storage.chunk
        if not chunk or chunk[1:] != column.tail:
            problems[text(column.path)] = (
                "can't grow: it has no chunks of whole rows; write the file anew with "
                "hepcache hdf5 rechunk"
            )
    return problems


def _existing_keys(
    inputs: Inputs, columns: dict[int, Column], spill: int
) -> dict[int, NDArray[np.int64]]:
    """Return the keys that the output has, of groups that have rows."""
    reader = RowReader(inputs.source(0))
    events, problems, found = int(inputs.rows[0, spill]), {}, {}
    try:
        for group, column in columns.items():
            length = int(inputs.rows[0, group])
            if not length:
                continue
            # The survey left keys out, so they are read as any library reads them.
            place = Place(_unaddressed(column), column.storage, -1, length)
            values: NDArray[np.int64] = read_values(reader, place).astype(np.int64)
            ends = values[[0, -1]].tolist()
            if ends[0] < 0 or ends[1] >= events or (np.diff(values) < 0).any():
                problems[text(column.path)] = f"does not number the {events} events of this file"
            found[group] = values
    finally:
        reader.close()
    raise_problems({f"{inputs.tables[0].path}: {w}": why for w, why in problems.items()})
    return found


def _unaddressed(column: Column) -> Column:
    """Return a column that is read through HDF5's library."""
    return column._replace(variable=True)
