"""The work as tasks: chunks of the output, the largest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.image import Places
from hepcache.hdf5.keys import KeyRuns
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.plan import Plan
from hepcache.hdf5.work import ChunkJob, ChunkTask, KeyJob

__all__ = ["KeySource", "tasks"]

_TASK_BYTES = 16 << 20
_LEAST_TASK_BYTES = 1 << 16
_TASK_PARTS = 1 << 16
_FILE_BYTES = 128 << 10  # are made in the time that it takes to open a file

_NO_PARTS = np.zeros((0, 5), np.int64)

KeySource = Callable[[int, int], tuple[KeyRuns, int]]
"""File and group to its keys and the number of the file's first event."""


def tasks(
    plan: Plan,
    options: TableOptions,
    workers: int,
    keys: KeySource,
    skip: Callable[[int, int], bool] = lambda _number, _chunk: False,
) -> Iterator[ChunkTask]:
    """Yield the work, largest chunks first, in tasks of about the same size.

    Parameters
    ----------
    plan, options
        What is written.
    workers
        How many processes share the work.
    keys
        Where keys come from.
    skip
        Column and chunk that are there already.
    """
    numbers, chunks, sizes = _chunk_list(plan)
    if not len(numbers):
        return
    goal = _task_bytes(plan, options, workers, int(sizes.sum()))
    make = _Jobs(plan, numbers, keys)
    jobs: list[tuple[ChunkJob | KeyJob, Places]] = []
    size = parts = 0
    for number, chunk, nbytes in zip(
        numbers.tolist(), chunks.tolist(), sizes.tolist(), strict=True
    ):
        if skip(number, chunk):
            continue
        job, own = make.job(number, chunk)
        count = len(own) or len(getattr(job, "runs", ()))
        if jobs and (size + nbytes > goal or parts + count > _TASK_PARTS):
            yield make.task(jobs, size)
            jobs, size, parts = [], 0, 0
        jobs.append((job, own))
        size, parts = size + nbytes, parts + count
    if jobs:
        yield make.task(jobs, size)


def _task_bytes(plan: Plan, options: TableOptions, workers: int, total: int) -> int:
    """Return how much a task should be: many for an even load, few because each opens files."""
    most = min(_TASK_BYTES, options.memory_bytes // (16 * workers))
    even = total // (16 * workers)
    least = min(len(plan.inputs.tables) * _FILE_BYTES, total // (3 * workers))
    return max(_LEAST_TASK_BYTES, min(most, max(even, least)))


def _chunk_list(plan: Plan) -> tuple[Places, Places, Places]:
    """Return column, chunk and bytes of every chunk to be made, in the order of the work."""
    columns = plan.schema.columns
    numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    chunks: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    sizes: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for n, (column, target) in enumerate(zip(columns, plan.targets, strict=True)):
        total, kept = plan.total(n), int(plan.kept[column.group])
        if target is None or column.variable or total == kept:
            continue
        own = np.arange(kept // target.rows, -(-total // target.rows))
        rows = np.minimum(total, (own + 1) * target.rows) - own * target.rows
        numbers.append(np.full(len(own), n))
        chunks.append(own)
        sizes.append(rows * column.row_bytes)
    number, chunk, size = (np.concatenate(one) for one in (numbers, chunks, sizes))
    wide = np.array([prod(column.tail) > 1 for column in columns], dtype=np.bool_)[number]
    group = np.array([column.group for column in columns], dtype=np.int64)[number]
    # Columns of one group lie in the same rows of the same files, so they are read
    # together; two chunks of a wide column share a chunk of an input.
    order = np.lexsort(
        (np.where(wide, chunk, number), np.where(wide, number, chunk), group, -size)
    )
    return number[order], chunk[order], size[order]


class _Jobs:
    """Makes jobs of numbers of chunks."""

    def __init__(self, plan: Plan, numbers: Places, keys: KeySource) -> None:
        self._plan, self._keys = plan, keys
        origin = np.array(plan.origin, dtype=np.int64)
        filled = np.unique(origin[np.unique(numbers)])
        filled = filled[filled >= 0]
        self._at = {int(column): n for n, column in enumerate(filled.tolist())}
        self._addresses = plan.inputs.addresses(filled)
        self._spans: tuple[tuple[int, int, int], Places] = ((-1, 0, 0), _NO_PARTS)
        known: dict[int, int] = {}
        for one in plan.inputs.variants:
            known.setdefault(id(one), len(known))
        self._variant = np.array([known[id(one)] for one in plan.inputs.variants], dtype=np.int64)
        _, self._example = np.unique(self._variant, return_index=True)

    def _parts(self, group: int, rows: int, chunk: int) -> Places:
        """Return file, first row and end of what makes one chunk of a group's columns."""
        if self._spans[0] == (group, rows, chunk):
            return self._spans[1]
        edges = self._plan.edges[:, group]
        begin, end = chunk * rows, min((chunk + 1) * rows, int(edges[-1]))
        first = int(np.searchsorted(edges, begin, side="right")) - 1
        last = int(np.searchsorted(edges, end, side="left"))
        files = np.arange(first, last)
        low, high = (
            np.maximum(edges[first:last], begin),
            np.minimum(edges[first + 1 : last + 1], end),
        )
        starts = self._plan.inputs.starts
        shift = (0 if starts is None else starts[first:last, group]) - edges[first:last]
        spans = np.column_stack([files, low + shift, high + shift])[low < high]
        self._spans = ((group, rows, chunk), spans)
        return spans

    def job(self, number: int, chunk: int) -> tuple[ChunkJob | KeyJob, Places]:
        """Return one chunk's job, and what it is made of.

        The latter are, in the order of rows, file, variant, address, first row
        and the one behind the last, shape ``(n_parts, 5)``; none for a key.
        """
        plan = self._plan
        column, target, origin = (
            plan.schema.columns[number],
            plan.targets[number],
            plan.origin[number],
        )
        assert target is not None
        spans = self._parts(column.group, target.rows, chunk)
        if origin < 0:
            found = [self._key_part(one[0], column.group, *one[1:]) for one in spans.tolist()]
            runs, offsets = [one[0] for one in found], [one[1] for one in found]
            return KeyJob(number, chunk, column, target, runs, offsets), _NO_PARTS
        files = spans[:, 0]
        parts = np.column_stack(
            [files, self._variant[files], self._addresses[files, self._at[origin]], spans[:, 1:]]
        )
        rows = int((spans[:, 2] - spans[:, 1]).sum())
        return ChunkJob(number, chunk, column, target, rows), parts

    def _key_part(self, file: int, group: int, start: int, stop: int) -> tuple[KeyRuns, int]:
        runs, offset = self._keys(file, group)
        ends = np.cumsum(runs.rows)
        first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left")
        begins = ends - runs.rows
        rows = np.minimum(ends, stop) - np.maximum(begins, start)
        chosen = slice(int(first), int(last) + 1)
        return KeyRuns(runs.events[chosen], rows[chosen]), offset

    def task(self, jobs: Sequence[tuple[ChunkJob | KeyJob, Places]], size: int) -> ChunkTask:
        """Return a task that names only the files that its jobs need."""
        inputs = self._plan.inputs
        counts = [len(parts) for _, parts in jobs]
        whole = np.concatenate([parts for _, parts in jobs])
        owner = np.repeat(np.arange(len(jobs)), counts)
        files, source = np.unique(whole[:, 0], return_inverse=True)
        # What a column of one variant is to the worker: one kind.
        both = owner * len(self._example) + whole[:, 1]
        pairs, kind = np.unique(both, return_inverse=True)
        kinds = []
        for pair in pairs.tolist():
            job, variant = divmod(pair, len(self._example))
            one = jobs[job][0]
            example = inputs.variants[int(self._example[variant])]
            kinds.append((one.column, example.storages[self._plan.origin[one.number]]))
        parts = np.column_stack([owner, source, kind, whole[:, 2:]])
        sources = [inputs.source(file) for file in files.tolist()]
        return ChunkTask(sources, [job for job, _ in jobs], kinds, parts, size)
