"""Partition keys of all files of a concatenation: found by workers, kept in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.event_key import EventKey
from hepcache.hdf5.executors import map_unordered, worker_count
from hepcache.hdf5.inputs import Inputs, raise_problems
from hepcache.hdf5.keys import (
    DuplicateFinder,
    EventIndex,
    KeyRuns,
    count_rows,
    join_runs,
    repeated_event,
    runs_of_keys,
    single_columns,
)
from hepcache.hdf5.model import Int64Array, display_path, object_name
from hepcache.hdf5.rows import (
    ColumnLayout,
    RowReader,
    Source,
    StoredColumn,
    open_source,
    read_integers,
    resting_sources,
)

_KEY_ROWS = 4 << 20

Columns = Mapping[bytes, StoredColumn]
"""Columns of one group that tell events apart, by name."""


class SpooledKeys:
    """Keys by file and group; beyond ``memory_bytes`` they lie in a temporary file.

    ``offsets`` are the numbers of the first event of each file.
    """

    def __init__(self, offsets: Int64Array, memory_bytes: int, groups: Sequence[int] = ()) -> None:
        self._offsets = offsets
        self._groups = list(groups)
        self._spool = tempfile.SpooledTemporaryFile(memory_bytes)  # noqa: SIM115 - lives as long as this
        self._stored: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, file: int, group: int, runs: KeyRuns) -> None:
        """Keep the keys of one group of one file."""
        offset = self._spool.seek(0, 2)
        self._spool.write(runs.events.astype(np.int64).tobytes())
        self._spool.write(runs.rows.astype(np.int64).tobytes())
        self._stored[file, group] = (offset, len(runs.events))

    def __call__(self, file: int, group: int) -> tuple[KeyRuns, int]:
        """Return the keys of one group of one file, and the number of its first event.

        A group without rows has none.
        """
        if (file, group) not in self._stored:
            none = np.zeros(0, np.int64)
            return KeyRuns(none, none), int(self._offsets[file])
        offset, count = self._stored[file, group]
        self._spool.seek(offset)
        both = np.frombuffer(self._spool.read(16 * count), np.int64)
        return KeyRuns(both[:count], both[count:]), int(self._offsets[file])

    @property
    def groups(self) -> list[int]:
        """Groups that have keys, whether or not they have rows."""
        return self._groups

    def counts(self, group: int) -> Int64Array:
        """Return events and rows of a group in all files, shape ``(n_events_with_rows, 2)``."""
        return count_rows([self(file, group) for file in range(len(self._offsets))])

    def close(self) -> None:
        """Remove the temporary file."""
        self._spool.close()


def key_groups(inputs: Inputs, key: EventKey) -> tuple[int, list[int]]:
    """Return the number of the group that lists events, and those of all that can have keys."""
    schema = inputs.schema
    shapes: list[dict[str, int]] = [{} for _ in schema.groups]
    for column in schema.columns:
        if column.rank > 0:
            shapes[column.group][object_name(column.name)] = prod(column.tail)
    wanted = key.group.encode()
    listing = next((n for n, group in enumerate(schema.groups) if group.path == wanted), 0)
    listed = shapes[listing] if listing else {}
    problems = {
        f"/{key.group}/{name}": "is not there, but partition keys are made of it"
        for name in key.required
        if name not in listed
    }
    raise_problems(problems)
    needed = {name: listed[name] for name in key.required}
    return listing, [n for n, own in enumerate(shapes) if needed.items() <= own.items()]


def chosen_groups(
    inputs: Inputs, groups: list[int], event_group: int, patterns: Sequence[str]
) -> list[int]:
    """Return the group of events and those whose full names fit a pattern; all without one."""
    if not patterns:
        return groups
    wanted = [pattern.strip("/") for pattern in patterns]
    names = {group: object_name(inputs.schema.groups[group].path) for group in groups}
    return [
        group
        for group in groups
        if group == event_group or any(fnmatchcase(names[group], part) for part in wanted)
    ]


def groups_without_key(inputs: Inputs, groups: list[int]) -> list[str]:
    """Return the names of groups with rows that can't have keys: their rows name no event."""
    filled = np.flatnonzero(inputs.rows.any(axis=0)).tolist()
    left_out = sorted(set(filled) - set(groups))
    return [display_path(inputs.schema.groups[group].path) for group in left_out]


def find_all_keys(
    inputs: Inputs,
    key: EventKey,
    event_group: int,
    groups: list[int],
    executor: Executor,
    *,
    memory_bytes: int,
    existing: Mapping[int, Int64Array] | None = None,
) -> SpooledKeys:
    """Find the event of every row of every file, for the groups that get keys.

    ``existing`` are keys by group that the first file, an earlier output, has already.
    Events that are listed twice or not at all, and rows that are not in their order, raise
    ``TableMismatchError``, which names every file and group.
    """
    rows = inputs.rows[:, event_group]
    keys = SpooledKeys(np.cumsum(rows) - rows, memory_bytes, groups)
    duplicates = DuplicateFinder(memory_bytes)
    problems: dict[str, str] = {}
    tasks = _tasks(inputs, key, event_group, groups, known_first=existing is not None)
    most = max(64, 2 * worker_count(executor))
    try:
        for found in map_unordered(executor, _find_keys, tasks, limit=most):
            path = inputs.tables[found.file].path
            problems |= {f"{path}: {where}": why for where, why in found.problems.items()}
            for group, runs in found.runs.items():
                keys.add(found.file, group, runs)
            if found.events and len(next(iter(found.events.values()))):
                duplicates.add(found.events)
        if existing is not None:
            for group, values in existing.items():
                keys.add(0, group, runs_of_keys(values))
        twice = "" if problems else duplicates.first_duplicate()
        if twice:
            path = display_path(inputs.schema.groups[event_group].path)
            problems[path] = (
                f"lists event {twice} in more than one file; leave out what was joined before"
            )
        raise_problems(problems)
    except BaseException:
        keys.close()
        raise
    finally:
        duplicates.close()
    return keys


@dataclass(frozen=True, slots=True)
class KeyTask:
    """Find the keys of one file.

    ``events`` are columns of the group that lists events, ``groups`` those of the groups
    that get keys, by number.
    """

    file: int
    source: Source
    events: Columns
    groups: Mapping[int, Columns]


def _tasks(
    inputs: Inputs, key: EventKey, event_group: int, groups: list[int], *, known_first: bool
) -> Iterator[KeyTask]:
    """Yield a task for every file with events or rows; of the first one, keys may be known."""
    wanted = [name.encode() for name in key.identity]
    numbers: dict[int, dict[bytes, int]] = {group: {} for group in (event_group, *groups)}
    for number, column in enumerate(inputs.schema.columns):
        if column.group in numbers and column.name in wanted and column.rank > 0:
            numbers[column.group][column.name] = number
    chosen = sorted({number for columns in numbers.values() for number in columns.values()})
    position = {number: n for n, number in enumerate(chosen)}
    addresses = inputs.addresses(np.array(chosen, dtype=np.int64)).tolist()

    def stored(file: int, number: int) -> StoredColumn:
        column = inputs.schema.columns[number]
        layout = ColumnLayout(column, inputs.variants[file].storages[number])
        length = int(inputs.rows[file, column.group])
        return StoredColumn(layout, addresses[file][position[number]], length)

    for file in range(len(inputs.tables)):
        events = {name: stored(file, number) for name, number in numbers[event_group].items()}
        known = known_first and file == 0
        if known and _values_per_row(events) == 1:
            continue  # nothing tells its runs apart
        columns = {
            group: {
                name: stored(file, number)
                for name, number in numbers[group].items()
                if name in events
            }
            for group in groups
            if inputs.rows[file, group] and not known
        }
        if columns or inputs.rows[file, event_group]:
            yield KeyTask(file, inputs.source(file), events, columns)


@dataclass(frozen=True, slots=True)
class FileKeys:
    """Keys of one file: runs by group, its events, and why groups have no keys."""

    file: int
    runs: Mapping[int, KeyRuns]
    events: Mapping[bytes, NDArray[Any]]
    problems: Mapping[str, str]


@resting_sources()
def _find_keys(task: KeyTask) -> FileKeys:
    """Find the event of every row of one file."""
    reader = open_source(task.source)
    values = read_integers(reader, list(task.events.values()), wide=True)
    listed = dict(zip(task.events, values, strict=True))
    events = single_columns(listed)
    twice = repeated_event([events])
    if twice:
        path = _group_path(task.events)
        return FileKeys(task.file, {}, {}, {path: f"lists event {twice} twice"})
    runs: dict[int, KeyRuns] = {}
    problems: dict[str, str] = {}
    for names, groups in _groups_alike(task.groups):
        index = EventIndex(single_columns({name: listed[name] for name in names}))
        for batch in _batches(task.groups, groups):
            try:
                found = _runs(reader, index, [task.groups[group] for group in batch])
                runs |= dict(zip(batch, found, strict=True))
            except ValueError:
                for group in batch:
                    try:
                        runs[group] = _runs_alone(reader, index, task.groups[group])
                    except ValueError as error:
                        problems[_group_path(task.groups[group])] = str(error)
    reader.release()
    return FileKeys(task.file, runs, events, problems)


def _group_path(columns: Columns) -> str:
    first = next(iter(columns.values())).layout.column
    return display_path(first.path.rpartition(b"/")[0])


def _groups_alike(groups: Mapping[int, Columns]) -> Iterator[tuple[tuple[bytes, ...], list[int]]]:
    """Yield groups whose events are told apart by the same columns of the same types."""
    alike: dict[tuple[tuple[bytes, bytes], ...], list[int]] = {}
    for group, columns in groups.items():
        kinds = tuple((name, stored.layout.column.type) for name, stored in columns.items())
        alike.setdefault(kinds, []).append(group)
    for kinds, numbers in alike.items():
        yield tuple(name for name, _ in kinds), numbers


def _batches(groups: Mapping[int, Columns], chosen: list[int]) -> Iterator[list[int]]:
    """Yield groups of a bounded number of rows together."""
    batch: list[int] = []
    rows = 0
    for group in chosen:
        length = _row_count(groups[group])
        if batch and rows + length > _KEY_ROWS:
            yield batch
            batch = []
            rows = 0
        batch.append(group)
        rows += length
    yield batch


def _values_per_row(columns: Columns) -> int:
    return sum(prod(stored.layout.column.tail) for stored in columns.values())


def _row_count(columns: Columns) -> int:
    return next(iter(columns.values())).length


def _runs(reader: RowReader, index: EventIndex, groups: Sequence[Columns]) -> list[KeyRuns]:
    """Return the keys of several groups, found in one go."""
    lengths = [_row_count(columns) for columns in groups]
    if len(groups) == 1 and lengths[0] > _KEY_ROWS:
        return [_runs_alone(reader, index, groups[0])]
    every = [stored for columns in groups for stored in columns.values()]
    values = iter(read_integers(reader, every, wide=True))
    by_name: dict[bytes, list[NDArray[Any]]] = {name: [] for name in groups[0]}
    for columns in groups:
        for name in columns:
            by_name[name].append(next(values))
    whole = {name: np.concatenate(parts) for name, parts in by_name.items()}
    return index.runs_of_many(single_columns(whole), lengths)


def _runs_alone(reader: RowReader, index: EventIndex, columns: Columns) -> KeyRuns:
    """Return the keys of a group, a bounded number of rows at a time."""
    length = _row_count(columns)
    parts = []
    for start in range(0, length, _KEY_ROWS):
        stop = min(length, start + _KEY_ROWS)
        rows = {
            name: read_integers(reader, [stored], start, stop, wide=True)[0]
            for name, stored in columns.items()
        }
        parts.append(index.runs(single_columns(rows)))
    return join_runs(parts)
