"""The keys of a group, looked at without reading them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hepcache.hdf5.keywork import Place
from hepcache.hdf5.rows import RowReader

__all__ = ["RowKeys"]

_PROBE_ROWS = 4096


class RowKeys(Sequence[int]):
    """The keys of a group, of which only what is looked at is read."""

    def __init__(self, reader: RowReader, place: Place, length: int) -> None:
        self._reader, self._place, self._count = reader, place, length
        self._first, self._known = 0, np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < self._count:
            raise IndexError(row)
        if not self._first <= row < self._first + len(self._known):
            step = self._place.storage.chunk[0] if self._place.storage.chunk else _PROBE_ROWS
            self._first = row // step * step
            stop = min(self._first + step, self._count)
            raw = b"".join(self._reader.rows(*self._place[:3], self._first, stop))
            self._known = np.frombuffer(raw, "<i8")
        return int(self._known[row - self._first])
