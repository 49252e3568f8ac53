"""Objects in a container of DAOS.

All objects of a container are distribution keys of one DAOS object, which
DAOS spreads over its targets by the hash of the key: a key's bytes are an
array of one-byte records under the attribute key ``data``, so that ranges can
be fetched, and their number is the single value ``size``, which is written in
the same operation. DAOS reads what was never written as zeros; the size is
fetched with every range, so that this can't be taken for data.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from ctypes import byref, c_uint32, c_uint64
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.objectstore.libdaos import (
    Extent,
    IoDescriptor,
    IoVector,
    KeyDescriptor,
    ObjectId,
    Sgl,
    library,
)
from hepcache.objectstore.store import Request, check_prefix, join_name
from hepcache.objectstore.together import read_in_threads

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DaosStore", "open_uri"]

_READ_WRITE = 1 << 1  # DAOS_PC_RW, DAOS_COO_RW
_OBJECT_READ_WRITE = 1 << 2  # DAOS_OO_RW
_SINGLE, _ARRAY = 1, 2  # DAOS_IOD_SINGLE, DAOS_IOD_ARRAY
_MUST_EXIST = (1 << 3) | (1 << 6)  # DAOS_COND_DKEY_FETCH, DAOS_COND_AKEY_FETCH
_NO_PERMISSION, _EXISTS, _NOT_THERE = -1001, -1004, -1005
_AT_END = 3  # DAOS_ANCHOR_TYPE_EOF
_OBJECT = 0x68657063  # "hepc": the object of a container that is ours
_KEYS = 128


class DaosStore:
    """Objects of a container.

    Parameters
    ----------
    uri
        ``daos://pool/container/path``.
    pool, container, base
        Labels of pool and container, and the key of the URI in it. A
        container that does not exist is made.
    object_class
        DAOS's object class: how many replicas (``RP_2GX``) or parity parts
        (``EC_2P1GX``), over how many targets (``S1``, ``SX``). It belongs to
        the object's identity: readers must say the same.
    concurrency
        Fetches that one vector read has under way at most.
    """

    limit = 1 << 30

    def __init__(
        self, uri: str, pool: str, container: str, base: str, object_class: str, concurrency: int
    ) -> None:
        self.uri, self._base, self._concurrency = uri, base, concurrency
        self._daos = daos = library()
        kind = daos.daos_oclass_name2id(object_class.encode())
        if kind <= 0:
            raise ConfigurationError("object_class", "one that DAOS knows, as SX", object_class)
        at, box, self._object = c_uint64(), c_uint64(), c_uint64()
        value = daos.daos_pool_connect(pool.encode(), None, _READ_WRITE, byref(at), None, None)
        if value == _NOT_THERE:
            raise ObjectMissingError(uri, "", f"there is no pool {pool!r}; see 'daos pool list'")
        self._ask("", value)
        ends = [weakref.finalize(self, daos.daos_pool_disconnect, at, None)]
        made = daos.daos_cont_create_with_label(at, container.encode(), None, None, None)
        if made not in (_EXISTS, _NO_PERMISSION):
            self._ask("", made)
        label = container.encode()
        self._ask("", daos.daos_cont_open(at, label, _READ_WRITE, byref(box), None, None))
        ends.append(weakref.finalize(self, daos.daos_cont_close, box, None))
        number = ObjectId(0, _OBJECT)
        self._ask("", daos.daos_obj_generate_oid(box, byref(number), 0, kind, 0, 0))
        mode, handle = _OBJECT_READ_WRITE, byref(self._object)
        self._ask("", daos.daos_obj_open(box, number, mode, handle, None))
        ends.append(weakref.finalize(self, daos.daos_obj_close, self._object, None))
        self._ends = ends

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole: bytes and size are one operation."""
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        size = c_uint64(flat.nbytes)
        values = [_single(b"size", size)]
        if flat.nbytes:
            values.append(_array(b"data", [(0, flat.nbytes)], [flat.ctypes.data]))
        descriptors, lists = _lists(values)
        key = _iov(join_name(self._base, name).encode())
        value = self._daos.daos_obj_update(
            self._object, 0, 0, byref(key), len(values), descriptors, lists, None
        )
        self._ask(name, value)

    put_anchor = put

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        size = self._size(name)
        return bytes(self.get_ranges(name, [0], [size])[0])

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object, in one operation."""
        buffers = [np.empty(length, np.uint8) for length in lengths]
        pairs = [
            (start, buffer) for start, buffer in zip(starts, buffers, strict=True) if buffer.nbytes
        ]
        size = self._size(name) if not pairs else self._fetch(name, pairs)
        for start, length in zip(starts, lengths, strict=True):
            if start + length > size:
                problem = f"it ends at byte {size}, before byte {start + length}"
                raise ObjectDamagedError(self.uri, name, problem)
        return [buffer.data for buffer in buffers]

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects, one operation for each object."""
        return await read_in_threads(self.get_ranges, requests, self._concurrency)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects; DAOS looks through all keys of the container."""
        check_prefix(prefix)
        root = self._base if prefix.startswith(".") else f"{self._base}/"
        for key in self._keys():
            if not prefix and key == self._base:
                name = ""
            elif key.startswith(root + prefix):
                name = key.removeprefix(root)
            else:
                continue
            try:
                yield name, self._size(name)
            except ObjectMissingError:
                continue

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for name in names:
            key = _iov(join_name(self._base, name).encode())
            value = self._daos.daos_obj_punch_dkeys(self._object, 0, 0, 1, byref(key), None)
            if value != _NOT_THERE:
                self._ask(name, value)

    def close(self) -> None:
        """Close the object, the container and the pool."""
        for end in reversed(self._ends):
            end()

    def _size(self, name: str) -> int:
        return self._fetch(name, [])

    def _fetch(self, name: str, pairs: Sequence[tuple[int, NDArray[np.uint8]]]) -> int:
        """Fill buffers from their first bytes on, and return the object's size."""
        size = c_uint64()
        values = [_single(b"size", size)]
        if pairs:
            extents = [(start, buffer.nbytes) for start, buffer in pairs]
            values.append(_array(b"data", extents, [buffer.ctypes.data for _, buffer in pairs]))
        descriptors, lists = _lists(values)
        key = _iov(join_name(self._base, name).encode())
        value = self._daos.daos_obj_fetch(
            self._object, 0, _MUST_EXIST, byref(key), len(values), descriptors, lists, None, None
        )
        self._ask(name, value)
        return size.value

    def _keys(self) -> Iterator[str]:
        buffer = ctypes.create_string_buffer(_KEYS * 1024)
        found = (KeyDescriptor * _KEYS)()
        # Larger than daos_anchor_t, whose first 16 bits say how far it is.
        anchor = ctypes.create_string_buffer(256)
        while int.from_bytes(anchor.raw[:2], "little") != _AT_END:
            vector = IoVector(ctypes.addressof(buffer), len(buffer), len(buffer))
            place, count = Sgl(1, 0, ctypes.pointer(vector)), c_uint32(_KEYS)
            value = self._daos.daos_obj_list_dkey(
                self._object, 0, byref(count), found, byref(place), anchor, None
            )
            self._ask("", value)
            at = 0
            for one in found[: count.value]:
                yield buffer.raw[at : at + one.length].decode(errors="replace")
                at += one.length

    def _ask(self, name: str, value: int) -> None:
        """Raise what a negative answer means."""
        if value >= 0:
            return
        if value == _NOT_THERE:
            raise ObjectMissingError(self.uri, name, "there is no such object")
        if value == _NO_PERMISSION:
            hint = "see 'daos container get-acl'"
            raise ObjectAccessError(self.uri, name, f"this user may not do that; {hint}")
        raise ObjectStoreError(self.uri, name, f"DAOS answers DER {-value}; see daos_errno.h")


def _iov(data: bytes) -> IoVector:
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
    vector = IoVector(address, len(data), len(data))
    vector.keep = data  # its memory lives as long as this
    return vector


def _single(name: bytes, into: c_uint64) -> tuple[IoDescriptor, list[IoVector]]:
    key, size = _iov(name), ctypes.sizeof(into)
    return IoDescriptor(key, _SINGLE, size, 0, 1, None), [
        IoVector(ctypes.addressof(into), size, size)
    ]


def _array(
    name: bytes, extents: Sequence[tuple[int, int]], addresses: Sequence[int]
) -> tuple[IoDescriptor, list[IoVector]]:
    places = (Extent * len(extents))(*(Extent(*one) for one in extents))
    vectors = [
        IoVector(address, count, count)
        for address, (_, count) in zip(addresses, extents, strict=True)
    ]
    return IoDescriptor(_iov(name), _ARRAY, 1, 0, len(extents), places), vectors


def _lists(
    values: Sequence[tuple[IoDescriptor, list[IoVector]]],
) -> tuple[ctypes.Array[IoDescriptor], ctypes.Array[Sgl]]:
    descriptors = (IoDescriptor * len(values))(*(one for one, _ in values))
    lists = (Sgl * len(values))(
        *(Sgl(len(some), 0, (IoVector * len(some))(*some)) for _, some in values)
    )
    return descriptors, lists


def open_uri(
    uri: str,
    parts: SplitResult,
    object_class: str = "SX",
    concurrency: int | str = 32,
) -> DaosStore:
    """Open ``daos://pool/container/path``; see :class:`DaosStore` for the options.

    Raises
    ------
    ConfigurationError
        The URI lacks a pool or a container.
    ImportError
        libdaos is not installed.
    """
    container, _, base = unquote(parts.path).strip("/").partition("/")
    if not parts.netloc or not container:
        raise ConfigurationError("URI", "daos://, a pool and a container in it", uri)
    base = base or "ntuple"
    return DaosStore(uri, parts.netloc, container, base, object_class, int(concurrency))
