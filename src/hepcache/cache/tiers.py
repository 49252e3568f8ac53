"""The cache as small mappings, each a tier, to be nested as zict does.

Every tier maps names to values and passes one contract suite
(``tests/cache/test_contract.py``); what a tier can't keep is simply not there.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Protocol, TypeVar, cast

import zict

from hepcache.cache.inventory import columns
from hepcache.cache.model import ColumnKey, Entry
from hepcache.cache.store import ColumnCache

__all__ = ["ColumnMapping", "MemoryOver", "in_memory"]


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


K = TypeVar("K")
V = TypeVar("V", bound=_Sized)


class ColumnMapping(MutableMapping[ColumnKey, Entry]):
    """The SSD tier: stored columns by key.

    Parameters
    ----------
    cache
        The host's cache.
    """

    def __init__(self, cache: ColumnCache) -> None:
        self.cache = cache

    def __getitem__(self, key: ColumnKey) -> Entry:
        entry, _ = self.cache.get(key)
        if entry is None:
            raise KeyError(key)
        return entry

    def __setitem__(self, key: ColumnKey, entry: Entry) -> None:
        if not self.cache.put(key, entry):
            # What was there before would be another value than the one just given.
            self.cache.discard(key)

    def __delitem__(self, key: ColumnKey) -> None:
        if not self.cache.discard(key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[ColumnKey]:
        return (stored.key for stored in columns(self.cache.layout) if stored.key is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def in_memory(limit_bytes: int) -> MutableMapping[Any, Any]:
    """Return a tier in this process's memory that keeps what was used last.

    Parameters
    ----------
    limit_bytes
        How much it may keep. A value that is larger than all of it is not kept.

    Examples
    --------
    >>> import numpy as np
    >>> tier = in_memory(100)
    >>> tier["x"] = np.zeros(10)
    >>> tier["y"] = np.zeros(10)
    >>> list(tier)
    ['y']
    """
    tier: MutableMapping[Any, Any] = zict.LRU(limit_bytes, {}, weight=lambda _, one: one.nbytes)
    return tier


class MemoryOver(MutableMapping[K, V]):
    """A tier with memory in front of it, which keeps what was read last.

    Parameters
    ----------
    tier
        The slower one, such as :func:`hepcache.cachestrategy` gives. What it
        holds may come and go by other processes, but a key must always stand
        for the same value, as it does where names carry a file's UUID.
    limit_bytes
        Memory to use. It pays where columns are kept encoded; raw ones are
        in the page cache already.

    Notes
    -----
    ``zict.Cache`` knows only what was written through it: not what lay on
    the SSD before, nor what another process puts there.
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
