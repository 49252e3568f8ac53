"""Which source reads a tree, by where it is; those that were used last stay open."""

from __future__ import annotations

import threading
from collections import OrderedDict

from hepcache.columns.event_source import EventSource
from hepcache.columns.object_source import object_source
from hepcache.columns.source import Source, TreeRef
from hepcache.columns.uproot_source import UprootSource
from hepcache.fileset import FileRecord
from hepcache.fileset.paths import is_event_url, is_store_uri, table_file

__all__ = ["column_names", "forget_sources", "open_source"]

# Trees stay open in the process from chunk to chunk; few, because what uproot
# makes of one of 2656 branches takes most of a second and tens of MB.
_KEEP_OPEN = 4
_open: OrderedDict[TreeRef, Source] = OrderedDict()
_lock = threading.Lock()


def _new_source(ref: TreeRef) -> Source:
    if is_event_url(ref.path):
        return EventSource(ref)
    if is_store_uri(ref.path):
        return object_source(ref)
    if table_file(ref.path) is not None:
        from hepcache.columns.hdf5_source import HDF5Source  # needs more packages

        return HDF5Source(ref)
    return UprootSource(ref).best()


def open_source(ref: TreeRef) -> Source:
    """Return the open source of a tree; recently used ones stay open.

    Parameters
    ----------
    ref
        The tree.

    Raises
    ------
    OriginError
        See :class:`UprootSource`.
    """
    with _lock:
        source = _open.pop(ref, None)
        if source is None:
            source = _new_source(ref)
        _open[ref] = source
        while len(_open) > _KEEP_OPEN:
            # A thread may still read from it; the last reference closes the file.
            _open.popitem(last=False)
        return source


def column_names(record: FileRecord) -> list[str]:
    """Return the names of a file's columns, in its own order.

    Parameters
    ----------
    record
        What the catalogue knows of the file.

    Raises
    ------
    OriginError
        See :class:`UprootSource`.
    """
    boundaries = (0, record.entries)
    ref = TreeRef(record.path, record.tree, record.uuid, record.tag, record.validator, boundaries)
    source = _new_source(ref)
    try:
        return [str(name) for name in source.tree.keys()]  # noqa: SIM118 - no dict
    finally:
        source.close()


def forget_sources() -> None:
    """Close every source that this process holds open."""
    with _lock:
        while _open:
            _open.popitem()[1].close()
