"""The file that is written: made empty of data, then filled chunk by chunk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5o, h5p, h5s

from hepcache.hdf5.creation import Makers, copy_attributes
from hepcache.hdf5.journal import JournaledFile
from hepcache.hdf5.library import open_library, plain_value
from hepcache.hdf5.model import Group
from hepcache.hdf5.plan import Plan
from hepcache.hdf5.skeleton import Headers, skeleton
from hepcache.hdf5.virtual import virtual_creation
from hepcache.hdf5.work import Made

__all__ = ["Output"]

_OPEN_DATASETS = 4096
_CACHE_BYTES = 64 << 20
# Files that a reader of ten years ago opens; new features only where they are needed.
_BOUNDS = ("earliest", "v110")


class Output:
    """An output under way.

    Parameters
    ----------
    path
        Where it is written; not yet the name under which it appears.
    journal
        Of its commits.
    plan
        What is written.
    protected
        How much of an existing file stays as it is until a commit; 0 for a new one.

    Raises
    ------
    OSError
        The file can't be written.
    """

    def __init__(self, path: Path, journal: Path, plan: Plan, *, protected: int = 0) -> None:
        self.path, self._plan = path, plan
        self.file = JournaledFile(path, journal, protected)
        self._open: OrderedDict[int, Any] = OrderedDict()
        self._groups: dict[int, Any] = {}
        self._h5: Any = None
        if protected:
            self._open_file("r+")

    def _open_file(self, mode: str) -> None:
        ordered = self._plan.schema.groups[0].ordered
        try:
            self._h5 = h5py.File(
                self.file,
                mode,
                libver=_BOUNDS,
                track_order=ordered or None,
                rdcc_nbytes=_CACHE_BYTES,
            )
        except BaseException:
            self.file.close()
            raise
        cache = self._h5.id.get_mdc_config()
        cache.set_initial_size, cache.initial_size = True, _CACHE_BYTES
        cache.max_size = max(cache.max_size, 2 * _CACHE_BYTES)
        self._h5.id.set_mdc_config(cache)

    def create(self) -> None:
        """Make all groups, datasets and attributes, with their final dimensions."""
        plan = self._plan
        whole = None
        if not plan.virtual and not any(group.ordered for group in plan.schema.groups):
            makers, headers = Makers(plan), Headers()
            for number in range(len(plan.schema.columns)):
                headers.add(*makers.maker(number))
            made = headers.all()
            whole = skeleton(plan.schema, made) if made is not None else None
        if whole is not None:
            self.file.write(whole)
            self._raise()
            self._open_file("r+")
        else:
            self._open_file("w")
            groups = [self._group(group) for group in plan.schema.groups]
            self._create(range(len(plan.schema.columns)), groups)
        self._copy_fixed()

    def create_keys(self) -> None:
        """Make the partition keys in groups that are there."""
        plan = self._plan
        groups = {
            column.group: h5g.open(self._h5.id, b"/" + plan.schema.groups[column.group].path)
            for column, origin in zip(plan.schema.columns, plan.origin, strict=True)
            if origin < 0
        }
        self._create([n for n, origin in enumerate(plan.origin) if origin < 0], groups)

    def _create(self, numbers: Iterable[int], groups: Any) -> None:
        plan, makers = self._plan, Makers(self._plan)
        for number in numbers:
            column, total = plan.schema.columns[number], plan.total(number)
            creation = None
            if plan.virtual and column.rank > 0 and total and plan.origin[number] >= 0:
                creation = virtual_creation(plan, number, self.path.parent)
            _, make = makers.maker(number, creation)
            dataset = make(groups[column.group], column.name)
            if total and len(self._open) < _OPEN_DATASETS:
                self._open[number] = dataset
            self._raise()

    def extend(self) -> None:
        """Give the datasets of an earlier output their new first dimension."""
        for number, column in enumerate(self._plan.schema.columns):
            total = self._plan.total(number)
            if column.rank > 0 and total != self._plan.kept[column.group]:
                self._dataset(number).set_extent((total, *column.tail))

    def _group(self, group: Group) -> Any:
        if not group.path:
            return h5g.open(self._h5.id, b"/")
        creation = None
        if group.ordered:
            creation = h5p.create(h5p.GROUP_CREATE)
            creation.set_link_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
        return h5g.create(self._h5.id, group.path, gcpl=creation)

    def _copy_fixed(self) -> None:
        """Copy attributes, and the datasets without rows, from the first input."""
        plan = self._plan
        first = plan.inputs.tables[0]
        scalars = [n for n, column in enumerate(plan.schema.columns) if column.rank == 0]
        if not first.fixed and not scalars:
            return
        own = {column.path for column in plan.schema.columns}
        own |= {group.path for group in plan.schema.groups}
        source = open_library(first.path)
        try:
            for number in scalars:
                value = plain_value(h5d.open(source, b"/" + plan.schema.columns[number].path))
                self._dataset(number).write(h5s.ALL, h5s.ALL, value)
            for path in first.fixed:
                if path in own:
                    copy_attributes(
                        h5o.open(source, b"/" + path), h5o.open(self._h5.id, b"/" + path)
                    )
        finally:
            source.close()

    def _dataset(self, number: int) -> Any:
        dataset = self._open.pop(number, None)
        if dataset is None:
            while len(self._open) >= _OPEN_DATASETS:
                self._open.popitem(last=False)
            column = self._plan.schema.columns[number]
            if column.group not in self._groups:
                path = b"/" + self._plan.schema.groups[column.group].path
                self._groups[column.group] = h5g.open(self._h5.id, path)
            dataset = h5d.open(self._groups[column.group], column.name)
        self._open[number] = dataset
        return dataset

    def present(self, number: int) -> set[int]:
        """Return the chunks of a column that are in the file."""
        target = self._plan.targets[number]
        if target is None or not target.whole:
            return set()
        rows, found = target.rows, set()
        self._dataset(number).chunk_iter(lambda info: found.add(info.chunk_offset[0] // rows))
        return found

    def write(self, made: Made) -> None:
        """Write one chunk.

        Raises
        ------
        OSError
            The system could not write it.
        """
        column, target = self._plan.schema.columns[made.number], self._plan.targets[made.number]
        assert target is not None
        dataset, start = self._dataset(made.number), made.chunk * target.rows
        offset = (start, *(0 for _ in column.tail))
        if target.whole:
            dataset.write_direct_chunk(offset, made.stored, made.mask)
        else:
            count = (made.rows, *column.tail)
            space = dataset.get_space()
            space.select_hyperslab(offset, count)
            rows = np.frombuffer(made.stored, np.uint8)
            dataset.write(h5s.create_simple(count), space, rows, mtype=dataset.get_type())
        self._raise()

    def copy_variable(self, done: Callable[[int], None]) -> None:
        """Copy the datasets whose values lie outside them, through HDF5's library."""
        plan = self._plan
        if plan.virtual:
            return  # all rows are where they were
        columns = [n for n, one in enumerate(plan.schema.columns) if one.variable and one.rank > 0]
        for file, tables in enumerate(plan.inputs.tables) if columns else ():
            if file == 0 and plan.kept.any():
                continue
            source = open_library(tables.path)
            try:
                for number in columns:
                    group = plan.schema.columns[number].group
                    begin = int(plan.edges[file, group])
                    length = int(plan.edges[file + 1, group]) - begin
                    starts = plan.inputs.starts
                    start = 0 if starts is None else int(starts[file, group])
                    self._copy_rows(source, number, start, begin, length)
                    done(length * plan.schema.columns[number].row_bytes)
            finally:
                source.close()

    def _copy_rows(self, source: Any, number: int, start: int, begin: int, length: int) -> None:
        column, target = self._plan.schema.columns[number], self._plan.targets[number]
        assert target is not None
        taken, into = h5d.open(source, b"/" + column.path), self._dataset(number)
        zeros = tuple(0 for _ in column.tail)
        row = 0
        while row < length:
            # Up to the end of a chunk, so that each is compressed once.
            count = min(length - row, target.rows - (begin + row) % target.rows)
            values = np.empty((count, *column.tail), dtype=taken.dtype)
            memory = h5s.create_simple(values.shape)
            where, there = taken.get_space(), into.get_space()
            where.select_hyperslab((start + row, *zeros), values.shape)
            there.select_hyperslab((begin + row, *zeros), values.shape)
            taken.read(memory, where, values)
            into.write(memory, there, values)
            self._raise()
            row += count

    def flush(self) -> None:
        """Hand all metadata to the file object."""
        self._h5.flush()
        self._raise()

    def close(self) -> None:
        """Close HDF5's side; the file object stays open, for a last commit."""
        self._open.clear()
        self._groups.clear()
        try:
            if self._h5 is not None:
                self._h5.close()
        finally:
            self._raise()

    def abandon(self) -> None:
        """Close all, whatever state it is in; what was not committed is dropped."""
        self._open.clear()
        self._groups.clear()
        # HDF5 must not fail while it closes: it would try again when the process ends.
        self.file.failure = self.file.failure or OSError("given up")
        if self._h5 is not None:
            self._h5.close()
        self.file.close()

    def _raise(self) -> None:
        if self.file.failure is not None:
            raise self.file.failure
