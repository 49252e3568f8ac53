"""Objects of a container of DAOS, by identity and keys: what the calls of libdaos do."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_uint32, c_uint64
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
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

__all__ = ["Container", "Identity", "Value", "array", "single"]

_READ_WRITE = 1 << 1  # DAOS_PC_RW, DAOS_COO_RW
_OBJECT_READ_WRITE = 1 << 2  # DAOS_OO_RW
_SINGLE, _ARRAY = 1, 2  # DAOS_IOD_SINGLE, DAOS_IOD_ARRAY
_MUST_EXIST = (1 << 3) | (1 << 6)  # DAOS_COND_DKEY_FETCH, DAOS_COND_AKEY_FETCH
_NO_PERMISSION, _EXISTS, _NOT_THERE, _TOO_LARGE = -1001, -1004, -1005, -2013
_AT_END = 3  # DAOS_ANCHOR_TYPE_EOF
_KEYS = 128


class Identity(NamedTuple):
    """Which object.

    Attributes
    ----------
    low, high
        Its number; of the upper half, 32 bits are DAOS's own.
    kind
        ``daos_otype_t``: what its keys are.
    object_class
        How it is spread and protected.
    """

    low: int
    high: int
    kind: int
    object_class: int


Value = tuple[IoDescriptor, list[IoVector]]
"""What of one attribute key is read or written, and its memory."""


class Container:
    """A container, which is made where there is none.

    Parameters
    ----------
    uri
        For messages.
    pool, label
        Labels of pool and container.

    Notes
    -----
    All calls block, and may be made from many threads at once. ``name`` is
    what messages call the object.
    """

    def __init__(self, uri: str, pool: str, label: str) -> None:
        self._uri, self._daos = uri, library()
        daos, at, self._box = self._daos, c_uint64(), c_uint64()
        value = daos.daos_pool_connect(pool.encode(), None, _READ_WRITE, byref(at), None, None)
        if value == _NOT_THERE:
            raise ObjectMissingError(uri, "", f"there is no pool {pool!r}; see 'daos pool list'")
        self._ask("", value)
        self._ends = [weakref.finalize(self, daos.daos_pool_disconnect, at, None)]
        made = daos.daos_cont_create_with_label(at, label.encode(), None, None, None)
        if made not in (_EXISTS, _NO_PERMISSION):
            self._ask("", made)
        box = byref(self._box)
        self._ask("", daos.daos_cont_open(at, label.encode(), _READ_WRITE, box, None, None))
        self._ends.append(weakref.finalize(self, daos.daos_cont_close, self._box, None))

    def object_class(self, name: str) -> int:
        """Return DAOS's number of an object class.

        Raises
        ------
        ConfigurationError
            There is none of that name.
        """
        found = int(self._daos.daos_oclass_name2id(name.encode()))
        if found <= 0:
            raise ConfigurationError("object_class", "one that DAOS knows, as SX", name)
        return found

    def update(self, name: str, what: Identity, key: bytes, values: Sequence[Value]) -> None:
        """Store attribute keys of one distribution key: all, or none."""
        descriptors, lists = _lists(values)
        with self._opened(name, what) as handle:
            value = self._daos.daos_obj_update(
                handle, 0, 0, byref(_iov(key)), len(values), descriptors, lists, None
            )
        self._ask(name, value)

    def fetch(
        self, name: str, what: Identity, key: bytes, values: Sequence[Value]
    ) -> list[int] | None:
        """Fill memory, and return the sizes of single values (of records, for arrays).

        ``None`` says that a single value has no room in its memory.

        Raises
        ------
        ObjectMissingError
            One of the keys isn't there.
        """
        descriptors, lists = _lists(values)
        with self._opened(name, what) as handle:
            value = self._daos.daos_obj_fetch(
                handle, 0, _MUST_EXIST, byref(_iov(key)), len(values), descriptors, lists,
                None, None,
            )  # fmt: skip
        if value == _TOO_LARGE:
            return None
        self._ask(name, value)
        return [one.size for one in descriptors]

    def sizes(
        self, name: str, what: Identity, key: bytes, attributes: Sequence[bytes]
    ) -> list[int]:
        """Return the sizes of single values; 0 where there is none."""
        values = [IoDescriptor(_iov(one), _SINGLE, 0, 0, 1, None) for one in attributes]
        descriptors = (IoDescriptor * len(values))(*values)
        with self._opened(name, what) as handle:
            value = self._daos.daos_obj_fetch(
                handle, 0, 0, byref(_iov(key)), len(values), descriptors, None, None, None
            )
        if value != _NOT_THERE:
            self._ask(name, value)
        return [one.size for one in descriptors]

    def keys(self, what: Identity, key: bytes | None = None) -> Iterator[bytes]:
        """Yield an object's distribution keys, or the attribute keys of one."""
        buffer = ctypes.create_string_buffer(_KEYS * 1024)
        found = (KeyDescriptor * _KEYS)()
        # Larger than daos_anchor_t, whose first 16 bits say how far it is.
        anchor = ctypes.create_string_buffer(256)
        while int.from_bytes(anchor.raw[:2], "little") != _AT_END:
            vector = IoVector(ctypes.addressof(buffer), len(buffer), len(buffer))
            place, count = Sgl(1, 0, ctypes.pointer(vector)), c_uint32(_KEYS)
            rest = byref(count), found, byref(place), anchor, None
            with self._opened("", what) as handle:
                if key is None:
                    value = self._daos.daos_obj_list_dkey(handle, 0, *rest)
                else:
                    value = self._daos.daos_obj_list_akey(handle, 0, byref(_iov(key)), *rest)
            if value == _NOT_THERE:
                return
            self._ask("", value)
            at = 0
            for one in found[: count.value]:
                yield buffer.raw[at : at + one.length]
                at += one.length

    def punch(
        self, name: str, what: Identity, key: bytes, attributes: Sequence[bytes] = ()
    ) -> None:
        """Remove a distribution key, or only some of its attribute keys."""
        with self._opened(name, what) as handle:
            if attributes:
                some = (IoVector * len(attributes))(*map(_iov, attributes))
                value = self._daos.daos_obj_punch_akeys(
                    handle, 0, 0, byref(_iov(key)), len(attributes), some, None
                )
            else:
                value = self._daos.daos_obj_punch_dkeys(handle, 0, 0, 1, byref(_iov(key)), None)
        if value != _NOT_THERE:
            self._ask(name, value)

    def close(self) -> None:
        """Close the container and the pool."""
        for end in reversed(self._ends):
            end()

    @contextmanager
    def _opened(self, name: str, what: Identity) -> Iterator[c_uint64]:
        """Open an object, which asks no server."""
        number, handle = ObjectId(what.low, what.high), c_uint64()
        self._ask(
            name,
            self._daos.daos_obj_generate_oid(
                self._box, byref(number), what.kind, what.object_class, 0, 0
            ),
        )
        mode = _OBJECT_READ_WRITE
        self._ask(name, self._daos.daos_obj_open(self._box, number, mode, byref(handle), None))
        try:
            yield handle
        finally:
            self._daos.daos_obj_close(handle, None)

    def _ask(self, name: str, value: int) -> None:
        """Raise what a negative answer means."""
        if value >= 0:
            return
        if value == _NOT_THERE:
            raise ObjectMissingError(self._uri, name, "there is no such object")
        if value == _NO_PERMISSION:
            hint = "see 'daos container get-acl'"
            raise ObjectAccessError(self._uri, name, f"this user may not do that; {hint}")
        raise ObjectStoreError(self._uri, name, f"DAOS answers DER {-value}; see daos_errno.h")


def single(attribute: bytes, memory: NDArray[np.uint8]) -> Value:
    """Return a single value."""
    found = IoDescriptor(_iov(attribute), _SINGLE, memory.nbytes, 0, 1, None)
    found.keep = attribute  # its memory lives as long as this
    return found, [IoVector(memory.ctypes.data, memory.nbytes, memory.nbytes)]


def array(attribute: bytes, starts: Sequence[int], memory: Sequence[NDArray[np.uint8]]) -> Value:
    """Return ranges of an array of bytes."""
    pairs = zip(starts, memory, strict=True)
    places = (Extent * len(memory))(*(Extent(start, one.nbytes) for start, one in pairs))
    found = IoDescriptor(_iov(attribute), _ARRAY, 1, 0, len(memory), places)
    found.keep = attribute
    return found, [IoVector(one.ctypes.data, one.nbytes, one.nbytes) for one in memory]


def _iov(data: bytes) -> IoVector:
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
    vector = IoVector(address, len(data), len(data))
    vector.keep = data
    return vector


def _lists(
    values: Sequence[Value],
) -> tuple[ctypes.Array[IoDescriptor], ctypes.Array[Sgl]]:
    descriptors = (IoDescriptor * len(values))(*(one for one, _ in values))
    lists = (Sgl * len(values))(
        *(Sgl(len(some), 0, (IoVector * len(some))(*some)) for _, some in values)
    )
    return descriptors, lists
