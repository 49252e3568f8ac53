"""The cache as small mappings, each a tier, to be nested as zict does.

Every tier maps names to values and passes one contract suite
(``tests/cache/test_contract.py``); what a tier can't keep is simply not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import unquote

import numpy as np
import zict
from numpy.typing import NDArray

from hepcache.cache.column_cache import ColumnCache
from hepcache.cache.contents import stored_columns
from hepcache.cache.model import ColumnKey, Entry

_TAG = "buffers"
"""In the place of a content's tag: coffea's keys know the file's UUID only."""


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


K = TypeVar("K")
V = TypeVar("V", bound=_Sized)


def in_memory(limit_bytes: int) -> MutableMapping[Any, Any]:
    """Return a tier in this process's memory that keeps what was used last.

    ``limit_bytes``: how much it may keep. A value that is larger than all of it is not kept.

    >>> import numpy as np
    >>> tier = in_memory(100)
    >>> tier["x"] = np.zeros(10)
    >>> tier["y"] = np.zeros(10)
    >>> list(tier)
    ['y']
    """
    tier: MutableMapping[Any, Any] = zict.LRU(
        limit_bytes, {}, weight=lambda _, value: value.nbytes
    )
    return tier


class MemoryOver(MutableMapping[K, V]):
    """A tier with memory in front of it, which keeps the entries that were read last.

    Parameters
    ----------
    tier
        The slower tier, such as :func:`hepcache.cachestrategy` returns. Other
        processes may add and remove its entries, but a key must always stand
        for the same value, as it does if names contain a file's UUID.
    limit_bytes
        Memory to use. It is useful if columns are stored compressed; raw ones are
        in the page cache already.

    Notes
    -----
    ``zict.Cache`` knows only entries that were written through it: not older
    ones on the SSD, nor those of other processes.
    """

    def __init__(self, tier: MutableMapping[K, V], limit_bytes: int) -> None:
        self.tier, self.memory = tier, in_memory(limit_bytes)

    def __getitem__(self, key: K) -> V:
        try:
            return cast("V", self.memory[key])
        except KeyError:
            value = self.memory[key] = self.tier[key]
            return value

    def __setitem__(self, key: K, value: V) -> None:
        self.memory.pop(key, None)
        self.tier[key] = value

    def __delitem__(self, key: K) -> None:
        self.memory.pop(key, None)
        del self.tier[key]

    def __contains__(self, key: object) -> bool:
        return key in self.memory or key in self.tier

    def __iter__(self) -> Iterator[K]:
        return iter(self.tier)

    def __len__(self) -> int:
        return len(self.tier)


class BufferMapping(MutableMapping[str, NDArray[Any]]):
    """Buffers by name, stored in a host's cache across processes and restarts.

    Notes
    -----
    coffea names a buffer ``uuid/tree/start-stop/...``; any other string is also a
    valid name. A buffer that can't be stored is missing afterwards. coffea's
    keys contain the entry range of a chunk, so another chunksize misses here,
    as it does with coffea's own cache; :class:`hepcache.Runner` has no such limit.
    A pickled mapping becomes the cache of the host where it is unpickled.

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

    def __reduce__(self) -> tuple[Any, ...]:
        return cachestrategy, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> BufferMapping:
        # Copies of arrays go on reading from what is one volume for all.
        return self

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
        for stored in stored_columns(self.cache.layout):
            if stored.key is not None and stored.key.tag == _TAG:
                entry, _ = self.cache.get(stored.key)
                if entry is not None:
                    yield entry.meta.decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        return sum(1 for _ in self)


def buffer_key(name: str) -> ColumnKey:
    """Return the key under which a named buffer is kept.

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
    or pass its result to ``NanoEventsFactory.from_root(buffer_cache=...)``.
    """
    return _opened(os.getpid())


@lru_cache(maxsize=1)
def _opened(pid: int) -> BufferMapping:  # noqa: ARG001 - a forked child opens its own
    return BufferMapping(ColumnCache.from_settings())
