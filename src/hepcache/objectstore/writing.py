"""Whole arrays, and trees that uproot reads, as ntuples of objects in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hepcache.errors import ConfigurationError
from hepcache.objectstore.anchor import Anchor
from hepcache.objectstore.sink import Sink, WriteOptions
from hepcache.objectstore.store import Store

__all__ = ["write_array", "write_tree"]


def write_array(
    store: Store | str, name: str, array: Any, options: WriteOptions | None = None
) -> Anchor:
    """Write an array of records as an ntuple.

    Parameters
    ----------
    store
        Where to: a store or a URI.
    name
        The ntuple's name.
    array
        An array of records, or a dict of arrays.
    options
        How.
    """
    sink = Sink(store, name, options)
    try:
        sink.extend(array)
        return sink.close()
    except BaseException:
        sink.abort()
        raise


def write_tree(
    store: Store | str,
    tree: Any,
    options: WriteOptions | None = None,
    *,
    name: str | None = None,
    fields: Sequence[str] | None = None,
    step_bytes: str = "64 MB",
    progress: Callable[[int], None] | None = None,
) -> Anchor:
    """Write a TTree or RNTuple that uproot has opened, a part at a time.

    Parameters
    ----------
    store
        Where to: a store or a URI.
    tree
        uproot's tree.
    options
        How.
    name
        The ntuple's name; the tree's, if not given.
    fields
        Its branches or top-level fields; all, if not given.
    step_bytes
        Decoded data that is read at a time, as uproot's ``iterate`` has it.
    progress
        Called with the number of entries that were written.
    """
    known = [key for key in tree.keys(recursive=False) if fields is None or key in fields]
    missing = set(fields or ()).difference(known)
    if missing:
        raise ConfigurationError("fields", "fields of the tree", sorted(missing))
    sink = Sink(store, name or tree.name, options)
    try:
        if not tree.num_entries:
            sink.extend(tree.arrays(filter_name=known.__contains__))
        for array in tree.iterate(filter_name=known.__contains__, step_size=step_bytes):
            sink.extend(array[known])
            if progress is not None:
                progress(len(array))
        return sink.close()
    except BaseException:
        sink.abort()
        raise
