"""Numbers at any place of a file, gathered in bulk from a memory map.

HDF5's library takes some 20 to 60 microseconds to open a dataset; gathering
the same numbers of all datasets at once takes about one.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Image", "Places", "UnsupportedLayoutError", "distinct"]

Places = NDArray[np.int64]


class UnsupportedLayoutError(Exception):
    """The file uses something that is left to HDF5's own library."""


def distinct(numbers: NDArray[Any]) -> list[int]:
    """Return the values of small whole numbers, each once, in rising order."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


class Image:
    """A file's bytes as little-endian numbers that begin at any byte.

    Parameters
    ----------
    path
        A file that is not changed while it is read.

    Raises
    ------
    OSError
        The file can't be opened.
    UnsupportedLayoutError
        The file is empty.
    """

    def __init__(self, path: str) -> None:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - opened ten thousand times
            status = os.fstat(file.fileno())
            if not status.st_size:
                raise UnsupportedLayoutError("empty")
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size, self.mtime_ns = status.st_size, status.st_mtime_ns
        self._views: dict[str, NDArray[Any]] = {}

    @property
    def whole(self) -> NDArray[np.uint8]:
        """All bytes of the file, which are read when they are looked at."""
        return np.frombuffer(self.map, np.uint8)

    def at(self, places: Places, kind: str) -> NDArray[Any]:
        """Gather one value of a dtype at every place.

        Raises
        ------
        UnsupportedLayoutError
            A place lies outside the file.
        """
        view = self._views.get(kind)
        if view is None:
            dtype = np.dtype(kind)
            count = self.size - dtype.itemsize + 1
            if count <= 0:
                raise UnsupportedLayoutError("shorter than what should be in it")
            view = np.ndarray((count,), dtype, self.map, strides=(1,))
            self._views[kind] = view
        # A place below 0 is, without its sign, behind any file.
        if len(places) and places.view(np.uint64).max() >= len(view):
            raise UnsupportedLayoutError("an address outside the file")
        return view[places]

    def bytes_at(self, places: Places, nbytes: int) -> NDArray[np.uint8]:
        """Gather rows of bytes, shape ``(n_places, nbytes)``."""
        if not nbytes:
            return np.zeros((len(places), 0), np.uint8)
        return self.at(places, f"V{nbytes}").view(np.uint8).reshape(len(places), nbytes)

    def numbers(self, places: Places, kind: str) -> Places:
        """Gather whole numbers as ``int64``; an undefined address becomes -1."""
        found: Places = self.at(places, kind).astype(np.int64)
        return found

    def expect(self, places: Places, signature: bytes) -> None:
        """Require a signature at every place.

        Raises
        ------
        UnsupportedLayoutError
            It is not there.
        """
        found = self.at(places, f"V{len(signature)}")
        if len(found) and (found.view(f"S{len(signature)}") != signature).any():
            raise UnsupportedLayoutError(f"no {signature!r} where one should be")
