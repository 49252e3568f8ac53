"""Ntuples, in object stores and in ROOT files: described, and read by pages."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import awkward as ak
import xxhash

from hepcache.credentials import told_cause, without_credentials
from hepcache.errors import (
    BadFileError,
    ConfigurationError,
    ObjectDamagedError,
    ObjectStoreError,
    OriginError,
    UnknownColumnError,
)
from hepcache.fileset.model import FileRecord
from hepcache.formats.column import Column, from_layout
from hepcache.formats.source import TreeRef, raise_uproots
from hepcache.formats.ttree.tree_description import describe_rntuple
from hepcache.io.origin import OriginFile
from hepcache.io.ranges import Range
from hepcache.io.retry import builtin_of
from hepcache.io.validator import Freshness, storage_options
from hepcache.objectstore import Pending, Request, Store
from hepcache.objectstore.fetch import Deferred, start
from hepcache.rntuple import NTuple, ReadOptions, ntuple_store
from hepcache.rntuple.anchor import anchor_in_file, read_anchor
from hepcache.rntuple.metadata import Metadata, load_metadata
from hepcache.rntuple.naming import name_in_file
from hepcache.rntuple.ntuple import Reading
from hepcache.rntuple.pagelist import CHECKSUM_BYTES
from hepcache.telemetry import ReadLog, place_uses

if TYPE_CHECKING:
    from typing_extensions import Buffer

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Columns that are fetched before they are asked for."""

    names: frozenset[str]
    start: int
    stop: int
    future: Reading | None = None


class NTupleSource:
    """One ntuple."""

    def __init__(
        self, ref: TreeRef, ntuple: NTuple, traffic: OriginFile | _Counting, whole_tree: Any = None
    ) -> None:
        self.ref, self.ntuple = ref, ntuple
        self.whole_tree: Any = self.tree if whole_tree is None else whole_tree
        self._in_file = whole_tree is not None
        self._traffic = traffic
        self._turn = threading.RLock()
        self._reported = 0, 0
        self._numbers = count(1)
        self._ahead: dict[int, _Ahead] = {}

    @property
    def tree(self) -> Any:
        """The ntuple as uproot describes it; it tells of fields, but can't be read."""
        return self.ntuple.metadata.schema.model

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``; see :class:`Source`."""
        with self._turn:
            began = time.perf_counter()
            try:
                layouts = as_origin_errors(self.ref, lambda: self._layouts(names, start, stop))
            except OriginError as error:
                if self._in_file and isinstance(error.__cause__, ObjectDamagedError):
                    raise_uproots(self.whole_tree, names, start, stop, error.problem)
                raise
            # Fetching and decoding overlap; what one has to wait for is both.
            log.read_s += time.perf_counter() - began
            self.account(log)
            log.used_bytes += self.ntuple.stored_bytes(names, start, stop)
            return {name: from_layout(layouts[name], self.counter(name)) for name in names}

    def _layouts(
        self, names: Sequence[str], start: int, stop: int
    ) -> dict[str, ak.contents.Content]:
        found: dict[str, ak.contents.Content] = {}
        for ahead in self._ahead.values():
            if ahead.future is not None and (ahead.start, ahead.stop) == (start, stop):
                there = ahead.names.intersection(names).difference(found)
                if there:
                    arrays = ahead.future.result()
                    found |= {name: arrays[name] for name in there}
        missing = [name for name in names if name not in found]
        if missing:
            found |= self.ntuple.layouts(missing, start, stop)
        return found

    def counter(self, name: str) -> str | None:
        """Return the column of lengths of a column's lists, if it is a plain one.

        ROOT's NanoAOD has such a field for each collection: a cardinality,
        which is a view of the offsets that the lists share.
        """
        form, _ = self._form(name)
        if (
            isinstance(form, ak.forms.ListOffsetForm)
            and isinstance(form.content, ak.forms.NumpyForm)
            and not form.parameters
        ):
            return self.ntuple.metadata.schema.cardinalities.get(form.form_key)
        return None

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        try:
            self._form(name)
        except UnknownColumnError:
            return False
        return True

    def _form(self, name: str) -> Any:
        try:
            return self.ntuple.form(name)
        except UnknownColumnError as error:
            raise UnknownColumnError(name, self.ref.path, error.near) from None

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[Range]:
        """Return a token for what :meth:`read` will need, and its bytes."""
        if not names:
            return []
        with self._turn:
            number = next(self._numbers)
            self._ahead[number] = _Ahead(frozenset(names), start, stop)
            return [(number, self.ntuple.stored_bytes(names, start, stop))]

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch what will be read."""
        with self._turn:
            for number, _ in ranges:
                ahead = self._ahead.get(number)
                if ahead is not None and ahead.future is None:
                    future = self.ntuple.begin(sorted(ahead.names), ahead.start, ahead.stop)
                    self._ahead[number] = _Ahead(ahead.names, ahead.start, ahead.stop, future)

    def await_few(self) -> None:
        """Return when what was expected has come."""
        with self._turn:
            ahead = [wanted.future for wanted in self._ahead.values()]
            coming = [reading.columns for reading in ahead if reading is not None]
        for columns in coming:
            columns.wait()

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop what was expected."""
        with self._turn:
            for number, _ in ranges:
                ahead = self._ahead.pop(number, None)
                if ahead is not None and ahead.future is not None:
                    ahead.future.cancel()

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was asked of the origin since the last call."""
        requested, came = self._traffic.requested_bytes, self._traffic.read_bytes
        log.requested_bytes += requested - self._reported[0]
        log.origin_bytes += came - self._reported[1]
        self._reported = requested, came
        if isinstance(self._traffic, OriginFile):
            log.places = place_uses(log.places, self._traffic.take_uses())

    def close(self) -> None:
        """Close the origin."""
        self._traffic.close()


def as_origin_errors(ref: TreeRef, work: Callable[[], Any]) -> Any:
    """Return what ``work`` does; a store's error becomes the origin's."""
    try:
        return work()
    except ObjectStoreError as error:
        # Of a file, the store is the file.
        words = f"object {error.name!r}: {error.problem}" if error.name else error.problem
        raise OriginError(ref.path, words) from error


class _Counting:
    """A store that counts what is read from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.requested_bytes = self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def begin(self, requests: Sequence[Request], buffer: Any = None) -> Pending:
        self._count(requested=requests)
        pending = self._store.begin(requests, buffer)
        return _Counted(pending, partial(self._count, read=requests))

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

    def __init__(self, origin: OriginFile) -> None:
        self.uri, self._origin = origin.path, origin

    def begin(self, requests: Sequence[Request], _: object = None) -> Pending:
        return start(self._read(requests))

    async def _read(self, requests: Sequence[Request]) -> list[Buffer]:
        found: list[Buffer] = [b""] * len(requests)

        def use(number: int, data: memoryview) -> None:
            found[number] = data

        ranges = [(request.start, request.length) for request in requests]
        await asyncio.to_thread(self._origin.gather, ranges, use)
        return found


class _InLocalFile(_InFile):
    """A file that a thread can read from where it decodes."""

    def begin(self, requests: Sequence[Request], _: object = None) -> Deferred:
        self._origin.hint([(request.start, request.length) for request in requests])
        return Deferred(self._ranges, requests)

    def _ranges(self, requests: Sequence[Request]) -> list[Buffer]:
        ranges = [(request.start, request.length) for request in requests]
        return list(self._origin.obtain(ranges))


def open_source(ref: TreeRef) -> NTupleSource:
    """Open an ntuple in an object store."""
    options = storage_options(ref.options)
    store: Any = _Counting(as_origin_errors(ref, lambda: ntuple_store(ref.path, **options)))
    try:
        ntuple = as_origin_errors(ref, lambda: NTuple(store))
        _check(ref, ntuple, options)
    except BaseException:
        store.close()
        raise
    return NTupleSource(ref, ntuple, store)


def _check(ref: TreeRef, ntuple: NTuple, options: dict[str, Any]) -> None:
    metadata = ntuple.metadata
    found, expected = (metadata.uuid, metadata.entries), (ref.uuid, ref.boundaries[-1])
    if ref.validator and freshness_of(ref.path, options).validator != ref.validator:
        found = (f"{found[0]}, written again", found[1])
    if found != expected:
        raise OriginError(
            ref.path,
            f"the ntuple was replaced while it was being analysed (UUID and entries were "
            f"{expected}, now {found}); run again to take up the new one",
        )


def file_source(ref: TreeRef, origin: OriginFile, tree: Any) -> NTupleSource:
    """Open an ntuple in a ROOT file, to be read by pages.

    uproot takes seconds to list the fields of one of a thousand, and decodes
    one page after the other.

    ``tree``: the ntuple as uproot has it, which was found to be the one that ``ref`` means.
    """
    store: Any = _InLocalFile(origin) if origin.local else _InFile(origin)
    metadata = as_origin_errors(
        ref, lambda: load_metadata(store, anchor_in_file(tree), name_in_file)
    )
    options = ReadOptions(gap_bytes=origin.gap_bytes, request_bytes=origin.most_bytes)
    if not origin.local:
        # An answer from afar has many ranges, and few are waited for at a time.
        options = replace(options, group_bytes=8 << 20, groups_ahead=4)
    return NTupleSource(ref, NTuple(store, metadata, options), origin, tree)


def freshness_of(path: str, options: Mapping[str, Any]) -> Freshness:
    """Ask for the anchor; see :func:`hepcache.io.validator.freshness_of`."""

    def ask(store: Store) -> Freshness:
        data = store.get("")
        return Freshness(len(data), validator_of(store, data), settled=True)

    return _asked(path, options, ask)


def examine(
    path: str, tree: str | None, options: Mapping[str, Any]
) -> tuple[FileRecord, Freshness]:
    """Describe an ntuple; see :func:`hepcache.formats.registry.examine`."""

    def ask(store: Store) -> tuple[FileRecord, Freshness]:
        data = store.get("")
        metadata = load_metadata(store, data)
        fresh = Freshness(len(data), validator_of(store, data, metadata), settled=True)
        name = metadata.schema.name
        if tree is not None and tree.strip("/").partition(";")[0] != name:
            problem = f"no tree {tree!r} in it; the tree there is: {name}"
            raise BadFileError({without_credentials(path): problem}, KeyError)
        return _record(path, metadata, fresh), fresh

    return _asked(path, options, ask)


def validator_of(store: Store, anchor: bytes, metadata: Metadata | None = None) -> str:
    """Return a text that changes whenever an ntuple is written anew.

    The anchors that we write carry a UUID. Others tell only lengths, so that
    the envelopes, and the checksums of some pages, are looked at as well.

    ``metadata``: the envelopes, if they have been read.
    """
    parsed = read_anchor(anchor, store.uri)
    digest = xxhash.xxh3_128(anchor)
    if not parsed.uuid:
        metadata = metadata or load_metadata(store, anchor)
        digest.update(metadata.digest)
        for stamp in store.begin(_stamps(metadata)).result():
            digest.update(stamp)
    return digest.hexdigest()


def _stamps(metadata: Metadata) -> list[Request]:
    """Return where the checksums of the first pages of the first and last cluster are."""
    ends = metadata.clusters[:1] + metadata.clusters[1:][-1:]
    return [
        Request(
            metadata.name_of(int(pages.objects[0])),
            int(pages.offsets[0] + pages.nbytes[0]),
            CHECKSUM_BYTES,
        )
        for cluster in ends
        for pages in cluster.columns
        if len(pages.elements) and pages.checksummed[0]
    ]


def _record(path: str, metadata: Metadata, fresh: Freshness) -> FileRecord:
    described = describe_rntuple(metadata.schema.model)
    size = sum(
        int(pages.nbytes.sum()) for cluster in metadata.clusters for pages in cluster.columns
    )
    facts = struct.pack("<QQ", metadata.entries, size) + metadata.digest
    return FileRecord(
        path=path,
        tree=metadata.schema.name,
        uuid=metadata.uuid,
        entries=metadata.entries,
        clusters=metadata.boundaries,
        size=size,
        validator=fresh.validator,
        tag=xxhash.xxh3_64_hexdigest(facts + described.layout),
        fingerprint=described.fingerprint,
    )


def _asked(path: str, options: Mapping[str, Any], ask: Callable[[Store], _T]) -> _T:
    public = without_credentials(path)
    try:
        with closing(ntuple_store(path, **options)) as store:
            return ask(store)
    except (ObjectStoreError, ConfigurationError, ImportError) as error:
        raise BadFileError({public: str(error)}, builtin_of(error)) from told_cause(error)
