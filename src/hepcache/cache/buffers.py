"""The cache as a mapping of buffers, for coffea's own ``buffer_cache``."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.inventory import columns
from hepcache.cache.model import ColumnKey, Entry
from hepcache.cache.store import ColumnCache

__all__ = ["BufferMapping", "cachestrategy"]

_TAG = "buffers"
"""In the place of a content's tag: coffea's keys know the file's UUID only."""


class BufferMapping(MutableMapping[str, NDArray[Any]]):
    """Buffers by name, kept on the host's volume across processes and restarts.

    Parameters
    ----------
    cache
        The host's cache.

    Notes
    -----
    coffea names a buffer ``uuid/tree/start-stop/...``; any other string is a
    name too. What can't be stored is simply not there afterwards. coffea's
    keys hold the entry range of a chunk, so another chunksize misses here,
    as it does with coffea's own cache; :class:`hepcache.Runner` has no such limit.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     buffers = BufferMapping(ColumnCache(directory, capacity_bytes=1 << 20))
    ...     buffers["f3f0/Events/0-3/x"] = np.arange(3)
    ...     buffers["f3f0/Events/0-3/x"].tolist()
    [0, 1, 2]
    """

    def __init__(self, cache: ColumnCache) -> None:
        self.cache = cache

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry, _ = self.cache.get(buffer_key(name))
        if entry is None or entry.meta != name.encode("utf-8", "surrogatepass"):
            raise KeyError(name)
        return entry.buffers[0]

    def __setitem__(self, name: str, buffer: NDArray[Any]) -> None:
        meta = name.encode("utf-8", "surrogatepass")
        self.cache.put(buffer_key(name), Entry(meta, (np.asarray(buffer),)))

    def __delitem__(self, name: str) -> None:
        if not self.cache.discard(buffer_key(name)):
            raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.cache.get(buffer_key(name))[0] is not None

    def __iter__(self) -> Iterator[str]:
        for stored in columns(self.cache.layout):
            if stored.key is not None and stored.key.tag == _TAG:
                entry, _ = self.cache.get(stored.key)
                if entry is not None:
                    yield entry.meta.decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        return sum(1 for _ in self)


def buffer_key(name: str) -> ColumnKey:
    """Return the key under which a named buffer is kept.

    Examples
    --------
    >>> buffer_key("f3f0/Events/0-100/0/nJet")
    ColumnKey(uuid='f3f0', tag='buffers', tree='Events', start=0, stop=100, column='0/nJet')
    """
    parts = name.split("/", 3)
    if len(parts) == 4:
        uuid, tree, entries, rest = parts
        start, _, stop = unquote(entries).partition("-")
        if uuid and start.isdecimal() and stop.isdecimal():
            return ColumnKey(unquote(uuid), _TAG, unquote(tree), int(start), int(stop), rest)
    return ColumnKey("named", _TAG, "", 0, 0, name)


def cachestrategy() -> BufferMapping:
    """Return this host's cache as a mapping of buffers.

    Use it as ``coffea.processor.Runner(cachestrategy=hepcache.cachestrategy)``,
    or give what it returns to ``NanoEventsFactory.from_root(buffer_cache=...)``.
    """
    return _opened(os.getpid())


@lru_cache(maxsize=1)
def _opened(pid: int) -> BufferMapping:  # noqa: ARG001 - a forked child opens its own
    return BufferMapping(ColumnCache.from_settings())
