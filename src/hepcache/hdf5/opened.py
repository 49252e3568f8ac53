"""The inputs that a thread has open, of which there are few."""

from __future__ import annotations

import threading
from collections import OrderedDict

from hepcache.hdf5.rows import RowReader, Source

__all__ = ["close_sources", "open_source"]

_MOST_MAPPED_BYTES = 768 << 20
_MOST_OPEN = 64


class _Open(threading.local):
    """What a thread has open; a reader remembers its last chunk, so none is shared."""

    def __init__(self) -> None:
        self.readers: OrderedDict[Source, RowReader] = OrderedDict()
        self.mapped_bytes = 0

    def close_oldest(self) -> None:
        """Close the file used longest ago."""
        _, reader = self.readers.popitem(last=False)
        self.mapped_bytes -= reader.mapped_bytes
        reader.close()


_open = _Open()


def close_sources() -> None:
    """Close the files that this thread has open."""
    while _open.readers:
        _open.close_oldest()


def open_source(source: Source) -> RowReader:
    """Return this thread's reader of a file; those used longest ago are closed."""
    reader = _open.readers.get(source)
    if reader is not None:
        _open.readers.move_to_end(source)
        return reader
    while _open.readers and (
        len(_open.readers) >= _MOST_OPEN or _open.mapped_bytes > _MOST_MAPPED_BYTES
    ):
        _open.close_oldest()
    reader = _open.readers[source] = RowReader(source)
    _open.mapped_bytes += reader.mapped_bytes
    return reader
