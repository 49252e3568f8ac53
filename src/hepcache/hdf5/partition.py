"""Keys of all files of a concatenation: found once, kept in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.gather import Inputs, raise_problems
from hepcache.hdf5.image import Places
from hepcache.hdf5.keys import EVENT_COLUMNS, KeyRuns
from hepcache.hdf5.keywork import FileKeys, KeyTask, Place, find_keys
from hepcache.hdf5.model import text
from hepcache.hdf5.pool import as_made, width
from hepcache.hdf5.repeats import Listed

__all__ = ["Keys", "as_runs", "find_all_keys", "key_groups"]


class Keys:
    """Keys by file and group; what is more than some memory lies in a temporary file.

    Parameters
    ----------
    offsets
        Number of the first event of each file.
    memory_bytes
        What may be held in memory.
    """

    def __init__(self, offsets: Places, memory_bytes: int) -> None:
        self._offsets = offsets
        self._spool = tempfile.SpooledTemporaryFile(memory_bytes)  # noqa: SIM115 - lives as long as this
        self._where: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, file: int, group: int, runs: KeyRuns) -> None:
        """Keep the keys of one group of one file."""
        place = self._spool.seek(0, 2)
        self._spool.write(runs.events.astype(np.int64).tobytes())
        self._spool.write(runs.rows.astype(np.int64).tobytes())
        self._where[file, group] = (place, len(runs.events))

    def __call__(self, file: int, group: int) -> tuple[KeyRuns, int]:
        """Return the keys of one group of one file, and the number of its first event."""
        place, count = self._where[file, group]
        self._spool.seek(place)
        both = np.frombuffer(self._spool.read(16 * count), np.int64)
        return KeyRuns(both[:count], both[count:]), int(self._offsets[file])

    def close(self) -> None:
        """Give back what is held."""
        self._spool.close()


def key_groups(inputs: Inputs, key: str, events: str) -> tuple[int, list[int]]:
    """Return the group that lists the events, and those that get keys.

    Raises
    ------
    TableMismatchError
        A group that holds rows, or the list of events, has no such dataset.
    """
    schema = inputs.schema
    name, wanted = key.encode(), events.strip("/").encode()
    have = {column.group for column in schema.columns if column.name == name and column.rank > 0}
    listed = [n for n, group in enumerate(schema.groups) if group.path == wanted and n in have]
    problems = {}
    if not listed:
        problems[text(wanted + b"/" + name)] = "is not there, but partition keys are made of it"
    filled = np.flatnonzero(inputs.rows.any(axis=0)).tolist()
    for group in filled:
        if group not in have:
            where = text(schema.groups[group].path)
            problems[where] = f"has rows but no dataset {key!r}: its rows belong to no event"
    raise_problems(problems)
    return listed[0], sorted(have)


def find_all_keys(
    inputs: Inputs,
    key: str,
    spill: int,
    groups: list[int],
    executor: Executor,
    *,
    memory_bytes: int,
    existing: Mapping[int, NDArray[np.int64]] | None = None,
) -> Keys:
    """Find the event of every row of every file.

    Parameters
    ----------
    inputs
        The files.
    key, spill, groups
        Name of the dataset, number of the group that lists events, and numbers
        of the groups that get keys.
    executor
        Who does the work.
    memory_bytes
        What keys may take in memory.
    existing
        By group: the keys that the first file, an earlier output, has already.

    Raises
    ------
    TableMismatchError
        Events are listed twice, are not listed, or rows are not in their order;
        every file and group is named.
    """
    numbers = _numbers(inputs, key, groups)
    rows = inputs.rows[:, spill]
    keys, listed = Keys(np.cumsum(rows) - rows, memory_bytes), Listed(memory_bytes)
    problems: dict[str, str] = {}
    todo = _tasks(inputs, numbers, spill, groups, existing)
    try:
        for file, found in as_made(executor, _find, todo, most=max(64, 2 * width(executor))):
            path = inputs.tables[file].path
            problems |= {f"{path}: {where}": why for where, why in found.problems.items()}
            for group, runs in found.runs.items():
                keys.add(file, group, runs)
            if found.spill and len(next(iter(found.spill.values()))):
                listed.add(found.spill)
        if existing is not None:
            for group, values in existing.items():
                keys.add(0, group, as_runs(values))
        twice = "" if problems else listed.repeated()
        if twice:
            where = text(inputs.schema.groups[spill].path)
            problems[where] = (
                f"lists event {twice} in more than one file; leave out what was joined before"
            )
        raise_problems(problems)
    except BaseException:
        keys.close()
        raise
    finally:
        listed.close()
    return keys


def _find(numbered: tuple[int, KeyTask]) -> tuple[int, FileKeys]:
    return numbered[0], find_keys(numbered[1])


def _numbers(inputs: Inputs, key: str, groups: list[int]) -> dict[int, dict[bytes, int]]:
    """Return, for every group, its columns that tell events apart."""
    wanted = (*EVENT_COLUMNS, key.encode())
    found: dict[int, dict[bytes, int]] = {group: {} for group in groups}
    for number, column in enumerate(inputs.schema.columns):
        if column.group in found and column.name in wanted and column.rank > 0:
            found[column.group][column.name] = number
    return found


def _tasks(
    inputs: Inputs,
    numbers: Mapping[int, Mapping[bytes, int]],
    spill: int,
    groups: list[int],
    existing: object,
) -> Iterator[tuple[int, KeyTask]]:
    chosen = sorted({n for one in numbers.values() for n in one.values()})
    at = {number: n for n, number in enumerate(chosen)}
    addresses = inputs.addresses(np.array(chosen, dtype=np.int64)).tolist()

    def place(file: int, number: int) -> Place:
        column = inputs.schema.columns[number]
        storage = inputs.variants[file].storages[number]
        length = int(inputs.rows[file, column.group])
        return Place(column, storage, addresses[file][at[number]], length)

    for file in range(len(inputs.tables)):
        listed = {name: place(file, n) for name, n in numbers[spill].items()}
        earlier = existing is not None and file == 0
        if earlier and len(listed) == 1:
            continue  # nothing tells its runs apart
        wanted = {
            group: {name: place(file, n) for name, n in numbers[group].items() if name in listed}
            for group in groups
            if inputs.rows[file, group] and not earlier
        }
        if wanted or inputs.rows[file, spill]:
            yield file, KeyTask(inputs.source(file), listed, wanted)


def as_runs(values: NDArray[np.int64]) -> KeyRuns:
    """Return the runs of keys that are there already, one per row."""
    first = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    return KeyRuns(values[first], np.diff(np.append(first, len(values))))
