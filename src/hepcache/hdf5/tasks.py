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
_TASK_PARTS = 8192

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
    goal = min(_TASK_BYTES, options.memory_bytes // (16 * workers))
    goal = max(_LEAST_TASK_BYTES, min(goal, int(sizes.sum()) // (16 * workers)))
    make = _Jobs(plan, numbers, keys)
    jobs: list[ChunkJob | KeyJob] = []
    size = parts = 0
    for number, chunk, nbytes in zip(
        numbers.tolist(), chunks.tolist(), sizes.tolist(), strict=True
    ):
        if skip(number, chunk):
            continue
        job = make.job(number, chunk)
        own = len(job.parts) if isinstance(job, ChunkJob) else len(job.runs)
        if jobs and (size + nbytes > goal or parts + own > _TASK_PARTS):
            yield make.task(jobs, size)
            jobs, size, parts = [], 0, 0
        jobs.append(job)
        size, parts = size + nbytes, parts + own
    if jobs:
        yield make.task(jobs, size)


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
        self._spans: tuple[tuple[int, int, int], list[tuple[int, int, int]]] = ((-1, 0, 0), [])

    def _parts(self, group: int, rows: int, chunk: int) -> list[tuple[int, int, int]]:
        """Return file, first row and end of what makes one chunk of a group's columns."""
        if self._spans[0] == (group, rows, chunk):
            return self._spans[1]
        edges = self._plan.edges[:, group]
        begin, end = chunk * rows, min((chunk + 1) * rows, int(edges[-1]))
        first = int(np.searchsorted(edges, begin, side="right")) - 1
        last = int(np.searchsorted(edges, end, side="left"))
        starts = self._plan.inputs.starts
        spans = []
        for file in range(first, last):
            low, high = int(edges[file]), int(edges[file + 1])
            if low < high:
                shift = (0 if starts is None else int(starts[file, group])) - low
                spans.append((file, max(begin, low) + shift, min(end, high) + shift))
        self._spans = ((group, rows, chunk), spans)
        return spans

    def job(self, number: int, chunk: int) -> ChunkJob | KeyJob:
        """Return one chunk's job, in which files have their numbers among all inputs."""
        plan = self._plan
        column, target, origin = (
            plan.schema.columns[number],
            plan.targets[number],
            plan.origin[number],
        )
        assert target is not None
        spans = self._parts(column.group, target.rows, chunk)
        if origin < 0:
            found = [
                self._key_part(file, column.group, start, stop) for file, start, stop in spans
            ]
            return KeyJob(
                number, chunk, column, target, [one[0] for one in found], [one[1] for one in found]
            )
        addresses = self._addresses[:, self._at[origin]]
        variants = plan.inputs.variants
        return ChunkJob(
            number,
            chunk,
            column,
            target,
            [
                (file, variants[file].storages[origin], int(addresses[file]), start, stop)
                for file, start, stop in spans
            ],
        )

    def _key_part(self, file: int, group: int, start: int, stop: int) -> tuple[KeyRuns, int]:
        runs, offset = self._keys(file, group)
        ends = np.cumsum(runs.rows)
        first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left")
        begins = ends - runs.rows
        rows = np.minimum(ends, stop) - np.maximum(begins, start)
        chosen = slice(int(first), int(last) + 1)
        return KeyRuns(runs.events[chosen], rows[chosen]), offset

    def task(self, jobs: Sequence[ChunkJob | KeyJob], size: int) -> ChunkTask:
        """Return a task that names only the files that its jobs need."""
        files: dict[int, int] = {}
        for job in jobs:
            if isinstance(job, ChunkJob):
                for part in job.parts:
                    files.setdefault(part[0], len(files))
        local = [
            job._replace(parts=[(files[part[0]], *part[1:]) for part in job.parts])
            if isinstance(job, ChunkJob)
            else job
            for job in jobs
        ]
        return ChunkTask([self._plan.inputs.source(file) for file in files], local, size)
