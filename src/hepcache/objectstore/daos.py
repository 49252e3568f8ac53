"""Objects in a container of DAOS, through libdaos.

Names are distribution keys of one DAOS object, spread over its targets by the hash of the
key. The bytes of an object of ours are an array of one-byte records under the attribute
key ``data``, so that ranges can be fetched; their number is the single value ``size``,
which is written in the same operation. DAOS reads what was never written as zeros; the
size is fetched with every range, so that this can't be taken for data.

A format with keys of its own takes the store's :class:`Container`.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from ctypes.util import find_library
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, unquote

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.objectstore.fetch import begin_in_threads
from hepcache.objectstore.store import (
    Request,
    Store,
    check_prefix,
    check_whole,
    join_name,
    listed_name,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

DEFAULT_CLASS = "SX"
"""Object class where none is asked for, which is ROOT's default, too."""


class ObjectId(ctypes.Structure):
    """daos_obj_id_t: the upper half of ``hi`` is DAOS's own."""

    _fields_ = (("lo", c_uint64), ("hi", c_uint64))


class IoVector(ctypes.Structure):
    """d_iov_t: memory, the room in it, and the part in use; also a key."""

    _fields_ = (("buffer", c_void_p), ("room", c_size_t), ("length", c_size_t))


class ScatterGatherList(ctypes.Structure):
    """d_sg_list_t: where the bytes of one descriptor go or come from."""

    _fields_ = (("count", c_uint32), ("count_out", c_uint32), ("vectors", POINTER(IoVector)))


class Extent(ctypes.Structure):
    """daos_recx_t: consecutive records of an array; ours are bytes."""

    _fields_ = (("start", c_uint64), ("count", c_uint64))


class IoDescriptor(ctypes.Structure):
    """daos_iod_t: what of one attribute key is read or written."""

    _fields_ = (
        ("name", IoVector),
        ("kind", c_int),
        ("size", c_uint64),
        ("flags", c_uint64),
        ("count", c_uint),
        ("extents", POINTER(Extent)),
    )


class KeyDescriptor(ctypes.Structure):
    """daos_key_desc_t: the length of one key of a listing."""

    _fields_ = (("length", c_uint64), ("kind", c_uint32))


_HANDLE = c_uint64  # daos_handle_t is a structure of this alone
_EVENT = c_void_p
_KEY = POINTER(IoVector)
_DESCRIPTORS = POINTER(IoDescriptor)
_LISTS = POINTER(ScatterGatherList)
_OPERATION = [_HANDLE, _HANDLE, c_uint64]  # object, transaction, flags
_LISTING = [POINTER(c_uint32), POINTER(KeyDescriptor), _LISTS, c_void_p, _EVENT]
_CALLS: dict[str, list[Any]] = {
    "daos_init": [],
    "daos_pool_connect": [c_char_p, c_char_p, c_uint, POINTER(_HANDLE), c_void_p, _EVENT],
    "daos_pool_disconnect": [_HANDLE, _EVENT],
    "daos_cont_create_with_label": [_HANDLE, c_char_p, c_void_p, c_void_p, _EVENT],
    "daos_cont_open": [_HANDLE, c_char_p, c_uint, POINTER(_HANDLE), c_void_p, _EVENT],
    "daos_cont_close": [_HANDLE, _EVENT],
    "daos_oclass_name2id": [c_char_p],
    "daos_obj_generate_oid": [_HANDLE, POINTER(ObjectId), c_int, c_uint32, c_uint16, c_uint32],
    "daos_obj_open": [_HANDLE, ObjectId, c_uint, POINTER(_HANDLE), _EVENT],
    "daos_obj_close": [_HANDLE, _EVENT],
    "daos_obj_fetch": [*_OPERATION, _KEY, c_uint, _DESCRIPTORS, _LISTS, c_void_p, _EVENT],
    "daos_obj_update": [*_OPERATION, _KEY, c_uint, _DESCRIPTORS, _LISTS, _EVENT],
    "daos_obj_punch_dkeys": [*_OPERATION, c_uint, _KEY, _EVENT],
    "daos_obj_punch_akeys": [*_OPERATION, _KEY, c_uint, _KEY, _EVENT],
    "daos_obj_list_akey": [_HANDLE, _HANDLE, _KEY, *_LISTING],
    "daos_obj_list_dkey": [_HANDLE, _HANDLE, *_LISTING],
}


@cache
def library() -> ctypes.CDLL:
    """Load libdaos, and start its client once for the process.

    ``HEPCACHE_LIBDAOS`` names another library than the system's. Raises ImportError
    where it is not installed, OSError where its client does not start.
    """
    path = os.environ.get("HEPCACHE_LIBDAOS") or find_library("daos") or "libdaos.so.2"
    try:
        found = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"objects in DAOS need libdaos, part of DAOS's client packages ({error})"
        ) from error
    for name, arguments in _CALLS.items():
        # DAOS 2 exports today's interface of these under a second name.
        newer = f"{name}2" if name in ("daos_pool_connect", "daos_cont_open") else name
        call = getattr(found, newer, None) or getattr(found, name)
        call.argtypes, call.restype = arguments, c_int
        setattr(found, name, call)
    if value := found.daos_init():
        raise OSError(f"libdaos does not start (DER {value}): is daos_agent running?")
    return found


_READ_WRITE = 1 << 1  # DAOS_PC_RW, DAOS_COO_RW
_OBJECT_READ_WRITE = 1 << 2  # DAOS_OO_RW
_SINGLE, _ARRAY = 1, 2  # DAOS_IOD_SINGLE, DAOS_IOD_ARRAY
_MUST_EXIST = (1 << 3) | (1 << 6)  # DAOS_COND_DKEY_FETCH, DAOS_COND_AKEY_FETCH
_NO_PERMISSION, _EXISTS, _NOT_THERE, _TOO_LARGE = -1001, -1004, -1005, -2013
_AT_END = 3  # DAOS_ANCHOR_TYPE_EOF
_KEYS = 128


class ObjectIdentity(NamedTuple):
    """Which object of a container."""

    low: int
    high: int  # 32 bits of it are DAOS's own
    kind: int  # daos_otype_t: what its keys are
    object_class: int  # how it is spread and protected


Value = tuple[IoDescriptor, list[IoVector]]
"""What of one attribute key is read or written, and its memory."""


class Container:
    """A container, given by the labels of its pool and itself; made where there is none.

    All calls block, and may be made from many threads at once. ``uri`` and
    ``name`` are what messages call the store and the object.
    """

    def __init__(self, uri: str, pool: str, label: str) -> None:
        self._uri = uri
        self._daos = daos = library()
        pool_handle = c_uint64()
        self._handle = c_uint64()
        value = daos.daos_pool_connect(
            pool.encode(), None, _READ_WRITE, byref(pool_handle), None, None
        )
        if value == _NOT_THERE:
            raise ObjectMissingError(uri, "", f"there is no pool {pool!r}; see 'daos pool list'")
        self._raise_for("", value)
        self._ends = [weakref.finalize(self, daos.daos_pool_disconnect, pool_handle, None)]
        made = daos.daos_cont_create_with_label(pool_handle, label.encode(), None, None, None)
        if made not in (_EXISTS, _NO_PERMISSION):
            self._raise_for("", made)
        value = daos.daos_cont_open(
            pool_handle, label.encode(), _READ_WRITE, byref(self._handle), None, None
        )
        self._raise_for("", value)
        self._ends.append(weakref.finalize(self, daos.daos_cont_close, self._handle, None))

    def object_class(self, name: str) -> int:
        """Return DAOS's number of an object class; ConfigurationError if there is none."""
        found = int(self._daos.daos_oclass_name2id(name.encode()))
        if found <= 0:
            raise ConfigurationError("object_class", "one that DAOS knows, as SX", name)
        return found

    def update(self, name: str, what: ObjectIdentity, key: bytes, values: Sequence[Value]) -> None:
        """Store attribute keys of one distribution key: all, or none."""
        descriptors, lists = _lists(values)
        with self._opened(name, what) as handle:
            value = self._daos.daos_obj_update(
                handle, 0, 0, byref(_iov(key)), len(values), descriptors, lists, None
            )
        self._raise_for(name, value)

    def fetch(
        self, name: str, what: ObjectIdentity, key: bytes, values: Sequence[Value]
    ) -> list[int] | None:
        """Fill memory, and return the sizes of single values (of records, for arrays).

        ``None`` says that a single value is larger than its memory. Raises
        ObjectMissingError where one of the keys isn't there.
        """
        descriptors, lists = _lists(values)
        with self._opened(name, what) as handle:
            place = byref(_iov(key))
            value = self._daos.daos_obj_fetch(
                handle, 0, _MUST_EXIST, place, len(values), descriptors, lists, None, None
            )
        if value == _TOO_LARGE:
            return None
        self._raise_for(name, value)
        return [descriptor.size for descriptor in descriptors]

    def sizes(
        self, name: str, what: ObjectIdentity, key: bytes, attributes: Sequence[bytes]
    ) -> list[int]:
        """Return the sizes of single values; 0 where there is none."""
        values = [
            IoDescriptor(_iov(attribute), _SINGLE, 0, 0, 1, None) for attribute in attributes
        ]
        descriptors = (IoDescriptor * len(values))(*values)
        with self._opened(name, what) as handle:
            value = self._daos.daos_obj_fetch(
                handle, 0, 0, byref(_iov(key)), len(values), descriptors, None, None, None
            )
        if value != _NOT_THERE:
            self._raise_for(name, value)
        return [descriptor.size for descriptor in descriptors]

    def keys(self, what: ObjectIdentity, key: bytes | None = None) -> Iterator[bytes]:
        """Yield an object's distribution keys, or the attribute keys of one."""
        buffer = ctypes.create_string_buffer(_KEYS * 1024)
        found = (KeyDescriptor * _KEYS)()
        # Larger than daos_anchor_t, whose first 16 bits say how far it is.
        anchor = ctypes.create_string_buffer(256)
        while int.from_bytes(anchor.raw[:2], "little") != _AT_END:
            vector = IoVector(ctypes.addressof(buffer), len(buffer), len(buffer))
            memory = ScatterGatherList(1, 0, ctypes.pointer(vector))
            count = c_uint32(_KEYS)
            rest = byref(count), found, byref(memory), anchor, None
            with self._opened("", what) as handle:
                if key is None:
                    value = self._daos.daos_obj_list_dkey(handle, 0, *rest)
                else:
                    value = self._daos.daos_obj_list_akey(handle, 0, byref(_iov(key)), *rest)
            if value == _NOT_THERE:
                return
            self._raise_for("", value)
            begin = 0
            for descriptor in found[: count.value]:
                yield buffer.raw[begin : begin + descriptor.length]
                begin += descriptor.length

    def punch(
        self, name: str, what: ObjectIdentity, key: bytes, attributes: Sequence[bytes] = ()
    ) -> None:
        """Remove a distribution key, or only some of its attribute keys."""
        with self._opened(name, what) as handle:
            if attributes:
                vectors = (IoVector * len(attributes))(*map(_iov, attributes))
                value = self._daos.daos_obj_punch_akeys(
                    handle, 0, 0, byref(_iov(key)), len(attributes), vectors, None
                )
            else:
                value = self._daos.daos_obj_punch_dkeys(handle, 0, 0, 1, byref(_iov(key)), None)
        if value != _NOT_THERE:
            self._raise_for(name, value)

    def close(self) -> None:
        """Close the container and the pool."""
        for end in reversed(self._ends):
            end()

    @contextmanager
    def _opened(self, name: str, what: ObjectIdentity) -> Iterator[c_uint64]:
        """Open an object, which asks no server."""
        number, handle = ObjectId(what.low, what.high), c_uint64()
        value = self._daos.daos_obj_generate_oid(
            self._handle, byref(number), what.kind, what.object_class, 0, 0
        )
        self._raise_for(name, value)
        mode = _OBJECT_READ_WRITE
        value = self._daos.daos_obj_open(self._handle, number, mode, byref(handle), None)
        self._raise_for(name, value)
        try:
            yield handle
        finally:
            self._daos.daos_obj_close(handle, None)

    def _raise_for(self, name: str, value: int) -> None:
        """Raise what a negative answer means."""
        if value >= 0:
            return
        if value == _NOT_THERE:
            raise ObjectMissingError(self._uri, name, "there is no such object")
        if value == _NO_PERMISSION:
            hint = "see 'daos container get-acl'"
            raise ObjectAccessError(self._uri, name, f"this user may not do that; {hint}")
        raise ObjectStoreError(self._uri, name, f"DAOS answers DER {-value}; see daos_errno.h")


def single_value(attribute: bytes, memory: NDArray[np.uint8]) -> Value:
    """Return a single value: its attribute key and its memory."""
    descriptor = IoDescriptor(_iov(attribute), _SINGLE, memory.nbytes, 0, 1, None)
    descriptor.keep = attribute  # its memory lives as long as this
    return descriptor, [IoVector(memory.ctypes.data, memory.nbytes, memory.nbytes)]


def array_value(
    attribute: bytes, starts: Sequence[int], memory: Sequence[NDArray[np.uint8]]
) -> Value:
    """Return ranges of an array of bytes."""
    pairs = zip(starts, memory, strict=True)
    extents = (Extent * len(memory))(*(Extent(first, part.nbytes) for first, part in pairs))
    descriptor = IoDescriptor(_iov(attribute), _ARRAY, 1, 0, len(memory), extents)
    descriptor.keep = attribute
    return descriptor, [IoVector(part.ctypes.data, part.nbytes, part.nbytes) for part in memory]


def _iov(data: bytes) -> IoVector:
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
    vector = IoVector(address, len(data), len(data))
    vector.keep = data
    return vector


def _lists(
    values: Sequence[Value],
) -> tuple[ctypes.Array[IoDescriptor], ctypes.Array[ScatterGatherList]]:
    descriptors = (IoDescriptor * len(values))(*(descriptor for descriptor, _ in values))
    lists = (ScatterGatherList * len(values))(
        *(
            ScatterGatherList(len(vectors), 0, (IoVector * len(vectors))(*vectors))
            for _, vectors in values
        )
    )
    return descriptors, lists


_HASHED = 0  # DAOS_OT_MULTI_HASHED
_OBJECT = 0x68657063  # "hepc": the object of a container that has names as its keys


class DaosStore(Store):
    """One place in a container.

    Parameters
    ----------
    uri
        ``daos://pool/container/name``.
    object_class
        DAOS's object class: number of replicas (``RP_2GX``) or parity parts
        (``EC_2P1GX``), and of targets (``S1``, ``SX``). It is part of
        the object's identity: readers must give the same class. ``None`` for ``SX``.
    concurrency
        Operations that one vector read has under way at most.

    Raises
    ------
    ConfigurationError
        DAOS doesn't know the class.
    """

    limit = 1 << 30

    def __init__(
        self,
        container: Container,
        uri: str,
        base: str,
        object_class: str | None = None,
        concurrency: int = 32,
    ) -> None:
        self.uri = uri
        self.container = container
        self.base = base
        self.object_class = object_class
        self.concurrency = concurrency
        number = container.object_class(object_class or DEFAULT_CLASS)
        self._object = ObjectIdentity(0, _OBJECT, _HASHED, number)

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole, in one operation."""
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        size = np.array([flat.nbytes], "<u8").view(np.uint8)
        values = [single_value(b"size", size)]
        if flat.nbytes:
            values.append(array_value(b"data", [0], [flat]))
        self.container.update(name, self._object, self._key(name), values)

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        size = self._fetch(name, [], [])
        return bytes(self.read([Request(name, 0, size)])[0])

    def begin(self, requests: Sequence[Request], _: object = None) -> Future[list[Buffer]]:
        """Begin to read ranges of many objects, with one operation for each."""
        return begin_in_threads(self.read, requests, self.concurrency)

    def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of one object, in one operation."""
        if not requests:
            return []
        buffers = [np.empty(request.length, np.uint8) for request in requests]
        starts = [request.start for request in requests]
        size = self._fetch(requests[0].name, starts, buffers)
        for request in requests:
            check_whole(self.uri, request, min(size - request.start, request.length))
        return [buffer.data for buffer in buffers]

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects; DAOS looks through all keys of the container."""
        check_prefix(prefix)
        for key in self.container.keys(self._object):
            name = listed_name(self.base, key.decode(errors="replace"), prefix)
            if name is None:
                continue
            try:
                yield name, self._fetch(name, [], [])
            except ObjectMissingError:
                continue

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for name in names:
            self.container.punch(name, self._object, self._key(name))

    def close(self) -> None:
        """Close the container and the pool."""
        self.container.close()

    def _key(self, name: str) -> bytes:
        return join_name(self.base, name).encode()

    def _fetch(
        self, name: str, starts: Sequence[int], buffers: Sequence[NDArray[np.uint8]]
    ) -> int:
        """Fill buffers from their first bytes on, and return the object's size."""
        size = np.empty(8, np.uint8)
        values = [single_value(b"size", size)]
        pairs = [pair for pair in zip(starts, buffers, strict=True) if pair[1].nbytes]
        if pairs:
            values.append(array_value(b"data", *zip(*pairs, strict=True)))
        self.container.fetch(name, self._object, self._key(name), values)
        return int(size.view("<u8")[0])


def open_daos(
    uri: str, parts: SplitResult, object_class: str | None = None, concurrency: int | str = 32
) -> DaosStore:
    """Open ``daos://pool/container/name``; see :class:`DaosStore` for the options.

    Raises
    ------
    ConfigurationError
        The URI lacks a pool or a container.
    ImportError
        libdaos is not installed.
    """
    label, _, base = unquote(parts.path).strip("/").partition("/")
    if not parts.netloc or not label:
        raise ConfigurationError("URI", "daos://, a pool and a container in it", uri)
    container = Container(uri, parts.netloc, label)
    return DaosStore(container, uri, base or "ntuple", object_class, int(concurrency))
