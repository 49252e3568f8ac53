"""Ntuples where they are: in an object store, or in a ROOT file at any origin."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hepcache.columns.ntuple_source import NTupleSource, told
from hepcache.columns.origin import Origin
from hepcache.columns.source import TreeRef
from hepcache.errors import OriginError
from hepcache.fileset import look
from hepcache.fileset.freshness import storage_options
from hepcache.objectstore.metadata import load_metadata
from hepcache.objectstore.ntuple import NTuple
from hepcache.objectstore.reading import Options
from hepcache.objectstore.rootfile import anchor_in_file, only_file
from hepcache.objectstore.store import Pending, Request, Store, open_store
from hepcache.objectstore.together import Deferred

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["file_source", "object_source"]


class _Counting:
    """A store that counts what is read from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.requested_bytes = self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._begin, found) if name == "begin" else found

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        self._count(requested=requests)
        found = await self._store.read(requests)
        self._count(read=requests)
        return found

    def _begin(
        self, begin: Callable[..., Pending], requests: Sequence[Request], room: object
    ) -> Pending:
        self._count(requested=requests)
        return _Counted(begin(requests, room), partial(self._count, read=requests))

    def _count(self, requested: Sequence[Request] = (), read: Sequence[Request] = ()) -> None:
        with self._lock:
            self.requested_bytes += sum(request.length for request in requested)
            self.read_bytes += sum(request.length for request in read)


class _Counted:
    """Ranges that are counted when they are there."""

    def __init__(self, pending: Pending, count: Callable[[], None]) -> None:
        self._pending, self._count = pending, count
        self.cancel = pending.cancel

    def result(self) -> Sequence[Buffer]:
        found = self._pending.result()
        self._count()
        return found


class _InFile:
    """A file at its origin, as much of a store as reading needs."""

    def __init__(self, origin: Origin) -> None:
        self.uri, self._origin = origin.path, origin

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        found: list[Buffer] = [b""] * len(requests)

        def use(number: int, data: memoryview) -> None:
            found[number] = data

        ranges = [(request.start, request.length) for request in requests]
        await asyncio.to_thread(self._origin.gather, ranges, use)
        return found


class _InLocalFile(_InFile):
    """A file that a thread can read from where it decodes."""

    def begin(self, requests: Sequence[Request], _: object = None) -> Deferred:
        self._origin.hint([(one.start, one.length) for one in requests])
        return Deferred(self._ranges, requests)

    def _ranges(self, _: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        return list(self._origin.obtain(list(zip(starts, lengths, strict=True))))


def object_source(ref: TreeRef) -> NTupleSource:
    """Open an ntuple in an object store.

    Parameters
    ----------
    ref
        The ntuple, as the catalogue knew it.

    Raises
    ------
    OriginError
        The store can't be reached, or holds another ntuple than the catalogue knew.
    """
    options = storage_options(ref.options)
    store: Any = _Counting(told(ref, lambda: open_store(ref.path, **options)))
    try:
        ntuple = told(ref, lambda: NTuple(store))
        _check(ref, ntuple, options)
    except BaseException:
        store.close()
        raise
    return NTupleSource(ref, ntuple, store)


def _check(ref: TreeRef, ntuple: NTuple, options: dict[str, Any]) -> None:
    metadata = ntuple.metadata
    found, expected = (metadata.uuid, metadata.entries), (ref.uuid, ref.boundaries[-1])
    if ref.validator and look(ref.path, options).validator != ref.validator:
        found = (f"{found[0]}, written again", found[1])
    if found != expected:
        raise OriginError(
            ref.path,
            f"the ntuple was replaced while it was being analysed (UUID and entries were "
            f"{expected}, now {found}); run again to take up the new one",
        )


def file_source(ref: TreeRef, origin: Origin, tree: Any) -> NTupleSource:
    """Open an ntuple in a ROOT file, to be read by pages.

    uproot takes seconds to list the fields of one of a thousand, and decodes
    one page after the other.

    Parameters
    ----------
    ref
        The ntuple.
    origin
        The file; the source closes it.
    tree
        The ntuple as uproot has it, which was found to be the one that ``ref`` means.

    Raises
    ------
    OriginError
        The file is damaged, or can't be read.
    """
    store: Any = _InLocalFile(origin) if origin.local else _InFile(origin)
    metadata = told(ref, lambda: load_metadata(store, anchor_in_file(tree), only_file))
    options = Options(gap_bytes=origin.gap_bytes, request_bytes=origin.most_bytes)
    if not origin.local:
        # An answer from afar has many ranges, and few are waited for at a time.
        options = replace(options, group_bytes=8 << 20, ahead=4)
    return NTupleSource(ref, NTuple(store, metadata, options), origin, tree)
