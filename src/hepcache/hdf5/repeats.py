"""Whether files list an event twice, found out in little memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.hdf5.keys import repeated_events

__all__ = ["Listed"]


class Listed:
    """The events that files list.

    What tells events apart lies, beyond some memory, in a temporary file. Files whose
    values can't meet, as those of different subruns, are never compared.

    Parameters
    ----------
    memory_bytes
        What may be held in memory.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._spool = tempfile.SpooledTemporaryFile(memory_bytes)  # noqa: SIM115 - lives as long as this
        self._names: tuple[bytes, ...] = ()
        self._places: list[dict[bytes, tuple[int, np.dtype[Any], int]]] = []
        self._lows: list[list[Any]] = []
        self._highs: list[list[Any]] = []

    def add(self, columns: Mapping[bytes, NDArray[Any]]) -> None:
        """Take the events of one file, shape ``(n_events,)`` each; at least one."""
        self._names = tuple(columns)
        self._lows.append([values.min() for values in columns.values()])
        self._highs.append([values.max() for values in columns.values()])
        places = {}
        for name, values in columns.items():
            places[name] = self._spool.seek(0, 2), values.dtype, len(values)
            self._spool.write(values.tobytes())
        self._places.append(places)

    def repeated(self) -> str:
        """Return the first event that is in more than one file, in words, or ``""``."""
        # Without runs and subruns, events of several files may well have equal numbers.
        if len(self._places) < 2 or len(self._names) < 2:
            return ""
        labels = self._meeting()
        numbers, counts = np.unique(labels, return_counts=True)
        for label in numbers[counts > 1].tolist():
            found = repeated_events(
                [self._load(file) for file in np.flatnonzero(labels == label).tolist()]
            )
            if found:
                return found
        return ""

    def _meeting(self) -> NDArray[np.int64]:
        """Return a number for every file, the same for those that may have events in common."""
        lows, highs = (
            [np.array(one) for one in zip(*rows, strict=True)]
            for rows in (self._lows, self._highs)
        )
        labels = np.arange(len(self._places))
        for file in range(len(labels)):
            meets = np.ones(len(labels), np.bool_)
            for low, high in zip(lows, highs, strict=True):
                meets &= (low <= high[file]) & (high >= low[file])
            met = np.unique(labels[meets])
            if len(met) > 1:
                labels[np.isin(labels, met)] = met[0]
        return labels

    def _load(self, file: int) -> dict[bytes, NDArray[Any]]:
        found = {}
        for name, (place, dtype, count) in self._places[file].items():
            self._spool.seek(place)
            found[name] = np.frombuffer(self._spool.read(count * dtype.itemsize), dtype)
        return found

    def close(self) -> None:
        """Give back what is held."""
        self._spool.close()
