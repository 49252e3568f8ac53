"""Columns of a concatenated HDF5 file, event by event, through its partition keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hepcache.columns.column import Column, Counted, Flat, Nested
from hepcache.columns.source import NothingAhead, TreeRef
from hepcache.errors import OriginError, TableFileError
from hepcache.fileset import look
from hepcache.hdf5.columns import EventColumn, open_events
from hepcache.telemetry import ReadLog

__all__ = ["HDF5Source"]


class HDF5Source(NothingAhead):
    """One file of tables; what is on a file system, its own read-ahead fetches.

    Parameters
    ----------
    ref
        The file and the group that lists its events, as the catalogue knew them.

    Raises
    ------
    OriginError
        The file can't be opened, or is not the one the catalogue knew.
    """

    def __init__(self, ref: TreeRef) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self._reported = 0
        self._require_same()
        try:
            self.tree: Any = open_events(ref.path, ref.tree)
        except TableFileError as error:
            raise OriginError(ref.path, error.problem) from error
        self._tables = self.tree.tables
        if self.tree.num_entries != ref.boundaries[-1]:
            self.close()
            raise OriginError(ref.path, "the file was replaced while it was being analysed")

    @property
    def whole_tree(self) -> Any:
        """The same: there is no more to parse."""
        return self.tree

    def _require_same(self) -> None:
        if self.ref.validator and look(self.ref.path).validator != self.ref.validator:
            raise OriginError(
                self.ref.path,
                "the file was written while it was being analysed; run again to take up "
                "what it holds now",
            )

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the events ``start`` to ``stop``; see :class:`Source`."""
        with self._turn:
            began = time.perf_counter()
            wanted = [self.tree[name] for name in names]
            offsets: dict[str, Any] = {}
            try:
                columns = {one.name: self._column(one, start, stop, offsets) for one in wanted}
            except TableFileError as error:
                raise OriginError(self.ref.path, error.problem) from error
            # It may have been changed in place, under the memory map.
            self._require_same()
            log.read_s += time.perf_counter() - began
            log.used_bytes += self._tables.read_bytes - self._reported
            self.account(log)
            return columns

    def _column(self, one: EventColumn, start: int, stop: int, known: dict[str, Any]) -> Column:
        group, tables = one.group, self._tables
        if group not in known:
            events = tables.range(start, stop, (group,))
            known[group] = events, tables.offsets(events, group)
        events, offsets = known[group]
        if not one.dataset:
            return Flat(np.diff(offsets))
        values = tables.read(events, [one.dataset])[one.dataset]
        values = np.ascontiguousarray(values, one.kind).reshape(len(values), *one.tail)
        if one.tail:
            return Nested(one.layout(values, offsets))
        return Counted(stop - start, values, one.counter) if one.counter else Flat(values)

    def counter(self, name: str) -> str | None:
        """Return the column of lengths of a column's lists, if it is a plain one."""
        one = self.tree[name]
        return one.counter if one.counter and not one.tail else None

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        return name in self.tree

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was read of the file since the last call."""
        read = self._tables.read_bytes
        log.requested_bytes += read - self._reported
        log.origin_bytes += read - self._reported
        self._reported = read

    def close(self) -> None:
        """Let go of the file."""
        self._tables.close()
