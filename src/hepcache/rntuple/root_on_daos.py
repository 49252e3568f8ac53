"""An ntuple in a container of DAOS, as ROOT lays it out.

ROOT's keys (see :mod:`hepcache.rntuple.naming`) are used for ntuples with an object per
cluster, a distribution key per column and an attribute key per page (mapping
``cluster_column``), which is what ROOT writes and reads. Names that begin with ``.root/``
stand for its keys; the name ``""`` for anchor, header and footer together. All other
names, which the other mappings and the journal of a put need, are those of
:class:`~hepcache.objectstore.daos.DaosStore`.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, ObjectDamagedError, ObjectMissingError
from hepcache.objectstore import Request, Store, open_store
from hepcache.objectstore.daos import (
    DEFAULT_CLASS,
    Container,
    DaosStore,
    ObjectIdentity,
    Value,
    single_value,
)
from hepcache.objectstore.fetch import begin_in_threads
from hepcache.objectstore.store import check_prefix, check_whole
from hepcache.rntuple.anchor import RootKeys, object_class_of, split_root_anchor
from hepcache.rntuple.naming import METADATA, PAGE_LISTS, PREFIX, Key, key_name, key_named

if TYPE_CHECKING:
    from typing_extensions import Buffer

_INTEGERS = 4  # DAOS_OT_MULTI_UINT64
# Clusters in a row without a page, behind which none is looked for: a put has fewer
# objects on their way.
_GAP = 64
_SIZES_AT_ONCE = 128
_TRIES = 5


def ntuple_store(store: Store | str, **options: Any) -> Store:
    """Return the store that an ntuple is in: in DAOS, one that has ROOT's keys.

    Parameters
    ----------
    store
        A store, or a URI, which is opened.
    **options
        Options for :func:`~hepcache.objectstore.open_store`.

    Raises
    ------
    ConfigurationError, ObjectStoreError, ImportError
        As :func:`~hepcache.objectstore.open_store`; or an ntuple is there whose
        pages have another object class than is asked for.
    """
    opened_here = isinstance(store, str)
    found = open_store(store, **options) if isinstance(store, str) else store
    if not isinstance(found, DaosStore):
        return found
    try:
        return _RootStore(found)
    except BaseException:
        if opened_here:
            found.close()
        raise


@contextmanager
def opened(store: Store | str) -> Iterator[Store]:
    """Give the store that an ntuple is in, and close it again if it was given by its URI."""
    found = ntuple_store(store)
    try:
        yield found
    finally:
        if isinstance(store, str):
            found.close()


def root_keys_of(store: Store) -> RootKeys | None:
    """Return how ROOT finds the ntuple in a store, if that has ROOT's keys."""
    keys: RootKeys | None = getattr(store, "root_keys", None)
    return keys


class _RootStore(Store):
    """A place in a container that has ROOT's keys besides the names of its store.

    The last part of the URI is the ntuple's name, by which ROOT finds it. The
    anchor tells the object class of an ntuple that is there.
    """

    def __init__(self, store: DaosStore) -> None:
        self.uri = store.uri
        self.limit = store.limit
        self._concurrency = store.concurrency
        self._values = _RootValues(store.uri, store.container, store.base, store.object_class)
        there = self._values.object_class
        if store.object_class not in (None, there):
            expected = f"{there}, as the ntuple at {store.uri} has it, or another URI"
            raise ConfigurationError("object_class", expected, store.object_class)
        self.root_keys = RootKeys(store.base, there)
        self._named = DaosStore(store.container, store.uri, store.base, there, store.concurrency)

    def put(self, name: str, data: Buffer) -> None:
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        key = key_named(name)
        if key is not None:
            self._values.put([key], [flat])
        elif not name and self._values.put_anchor(flat.tobytes()):
            # What another mapping may have left is hidden from now on.
            self._named.delete([""])
        else:
            self._named.put(name, data)
            if not name:
                self._values.remove(METADATA)

    def get(self, name: str) -> bytes:
        key = key_named(name)
        if key is not None:
            return self._values.whole([key])[0].tobytes()
        if not name and self._values.anchored():
            return b"".join(values.tobytes() for values in self._values.whole(METADATA))
        return self._named.get(name)

    def begin(self, requests: Sequence[Request], _: object = None) -> Future[list[Buffer]]:
        return begin_in_threads(self._read, requests, self._concurrency, _distribution)

    def _read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of objects that have a distribution key in common."""
        if not requests:
            return []
        name = requests[0].name
        keys = [key for request in requests if (key := key_named(request.name)) is not None]
        if keys:
            return self._values.read(keys, requests)
        if name or not self._values.anchored():
            return self._named.read(requests)
        whole = memoryview(self.get(""))
        for request in requests:
            check_whole(self.uri, request, min(len(whole) - request.start, request.length))
        return [whole[request.start : request.start + request.length] for request in requests]

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        check_prefix(prefix)
        if prefix == PREFIX:
            yield from self._values.list()
        anchored = not prefix and self._values.anchored()
        if anchored:
            yield "", sum(self._values.sizes(METADATA))
        for name, size in self._named.list(prefix):
            if name or not anchored:
                yield name, size

    def delete(self, names: Sequence[str]) -> None:
        keys = {name: key_named(name) for name in names}
        self._named.delete([name for name, key in keys.items() if key is None])
        # What ROOT's anchor hides has gone before it, so that nobody ever sees it.
        self._values.remove(METADATA if "" in keys else ())
        self._values.remove(key for key in keys.values() if key is not None)

    def close(self) -> None:
        self._named.close()


def _distribution(request: Request) -> Hashable:
    key = key_named(request.name)
    return request.name if key is None else key[:2]


class _RootValues:
    """Single values of one ntuple, under ROOT's keys.

    Objects that have pages are of the class that the anchor says, if one is
    there; else of that which is asked for, or ROOT's default.
    """

    def __init__(
        self, uri: str, container: Container, name: str, object_class: str | None
    ) -> None:
        self._uri = uri
        self._container = container
        self._index = ntuple_index(name)
        self._metadata_class = container.object_class(DEFAULT_CLASS)
        self.object_class = self._class_there() or object_class or DEFAULT_CLASS
        self._page_class = container.object_class(self.object_class)

    def _class_there(self) -> str | None:
        """Return the class that the anchor says, if there is one, and DAOS knows it."""
        try:
            found = object_class_of(self.whole(METADATA[:1])[0].tobytes())
            self._container.object_class(found)
        except (ObjectMissingError, ValueError):
            return None
        return found

    def anchored(self) -> bool:
        """Return whether anchor, header and footer are there."""
        return all(self.sizes(METADATA))

    def put_anchor(self, data: bytes) -> bool:
        """Store anchor, header and footer in one operation; return False if it is no anchor."""
        parts = split_root_anchor(data)
        if parts is not None:
            self.put(METADATA, [np.frombuffer(part, np.uint8) for part in parts])
        return parts is not None

    def put(self, keys: Sequence[Key], data: Sequence[NDArray[np.uint8]]) -> None:
        """Store values of one distribution key, in one operation."""
        self._container.update(key_name(keys[0]), *self._place(keys), _values(keys, data))

    def read(self, keys: Sequence[Key], requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of values of one distribution key, in one operation.

        ``keys`` say for each request where its object is.
        """
        nbytes = dict.fromkeys(keys, 1)
        for key, request in zip(keys, requests, strict=True):
            nbytes[key] = max(nbytes[key], request.start + request.length)
        data = [np.empty(size, np.uint8) for size in nbytes.values()]
        try:
            sizes = self._fetched(list(nbytes), data)
        except ObjectMissingError:
            sizes = None
        if sizes is None:
            # Parts of a value can't be fetched, nor is it said which of several is missing.
            data = self.whole(list(nbytes))
            sizes = [values.nbytes for values in data]
        there = dict(zip(nbytes, zip(data, sizes, strict=True), strict=True))
        found: list[Buffer] = []
        for key, request in zip(keys, requests, strict=True):
            values, size = there[key]
            check_whole(self._uri, request, min(size - request.start, request.length))
            found.append(values[request.start : request.start + request.length].data)
        return found

    def whole(self, keys: Sequence[Key]) -> list[NDArray[np.uint8]]:
        """Return values of one distribution key.

        Raises ObjectMissingError where one isn't there, ObjectDamagedError where
        they were replaced at every try.
        """
        for _ in range(_TRIES):
            sizes = self.sizes(keys)
            for key, size in zip(keys, sizes, strict=True):
                if not size:
                    raise ObjectMissingError(self._uri, key_name(key), f"there is no {key}")
            data = [np.empty(size, np.uint8) for size in sizes]
            if self._fetched(keys, data) == sizes:
                return data
        problem = "it is replaced again and again while it is read"
        raise ObjectDamagedError(self._uri, key_name(keys[0]), problem)

    def sizes(self, keys: Sequence[Key]) -> list[int]:
        """Return the sizes of values of one distribution key; 0 where there is none."""
        attributes = [_bytes(key.attribute) for key in keys]
        return self._container.sizes(key_name(keys[0]), *self._place(keys), attributes)

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove values."""
        groups: dict[tuple[int, int], list[Key]] = {}
        for key in keys:
            groups.setdefault(key[:2], []).append(key)
        for group in groups.values():
            attributes = [_bytes(key.attribute) for key in group]
            self._container.punch(key_name(group[0]), *self._place(group), attributes)

    def _of_object(self, low: int) -> Iterator[tuple[str, int]]:
        identity = self._identity(low)
        for distribution in self._container.keys(identity):
            column = int.from_bytes(distribution, "little")
            keys = [
                Key(low, column, int.from_bytes(attribute, "little"))
                for attribute in self._container.keys(identity, distribution)
            ]
            for first in range(0, len(keys), _SIZES_AT_ONCE):
                batch = keys[first : first + _SIZES_AT_ONCE]
                for key, size in zip(batch, self.sizes(batch), strict=True):
                    if size:
                        yield key_name(key), size

    def _fetched(self, keys: Sequence[Key], data: Sequence[NDArray[np.uint8]]) -> list[int] | None:
        return self._container.fetch(key_name(keys[0]), *self._place(keys), _values(keys, data))

    def _place(self, keys: Sequence[Key]) -> tuple[ObjectIdentity, bytes]:
        return self._identity(keys[0].low), _bytes(keys[0].distribution)

    def _identity(self, low: int) -> ObjectIdentity:
        kind = self._page_class if low < PAGE_LISTS else self._metadata_class
        return ObjectIdentity(low, self._index, _INTEGERS, kind)

    def list(self) -> Iterator[tuple[str, int]]:
        """Yield names and bytes of pages and page lists."""
        yield from self._of_object(PAGE_LISTS)
        empty = 0
        for cluster in itertools.count():
            found = list(self._of_object(cluster))
            yield from found
            empty = 0 if found else empty + 1
            if empty == _GAP:
                return


def _values(keys: Sequence[Key], data: Sequence[NDArray[np.uint8]]) -> list[Value]:
    pairs = zip(keys, data, strict=True)
    return [single_value(_bytes(key.attribute), memory) for key, memory in pairs]


def _bytes(key: int) -> bytes:
    return key.to_bytes(8, "little")


def ntuple_index(name: str) -> int:
    """Return the upper half of the identities of an ntuple's objects.

    It is ``std::hash`` of GNU's C++ library (MurmurHash64A) of its name, folded
    to 32 bits as ``boost::hash_combine`` does; 0 is reserved.

    >>> ntuple_index("Events") == ntuple_index("events")
    False
    """
    whole = _murmur(name.encode())
    seed = whole >> 32
    seed ^= (whole & _MASK_32) + 0x9E3779B9 + (seed << 6 & _MASK_32) + (seed >> 2) & _MASK_32
    return seed or 1


_MASK_32, _MASK_64 = (1 << 32) - 1, (1 << 64) - 1
_FACTOR, _SEED = 0xC6A4A7935BD1E995, 0xC70F6907


def _murmur(data: bytes) -> int:
    def mixed(value: int) -> int:
        return value ^ value >> 47

    found = _SEED ^ len(data) * _FACTOR & _MASK_64
    whole = len(data) & ~7
    for place in range(0, whole, 8):
        word = int.from_bytes(data[place : place + 8], "little")
        word = mixed(word * _FACTOR & _MASK_64) * _FACTOR & _MASK_64
        found = (found ^ word) * _FACTOR & _MASK_64
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK_64
    return mixed(mixed(found) * _FACTOR & _MASK_64)
