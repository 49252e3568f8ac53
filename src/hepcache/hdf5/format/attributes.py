"""Attributes of all objects of a file in HDF5's earliest format, hashed in bulk.

An attribute lies in a message of its object's header: name, type, dataspace and value one
behind the other (HDF5 File Format Specification Version 3.0, section IV.A.2.m). Strings of
variable length lie in collections of a global heap (section III.E), which are hashed whole.
What is rare raises :class:`UnsupportedLayoutError`: HDF5's library looks at it instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.hdf5.format.mapped import MappedFile, UnsupportedLayoutError, distinct
from hepcache.hdf5.model import OWN_ATTRIBUTES, Int64Array

_COMPOUND, _REFERENCE, _VARIABLE, _ARRAY = 6, 7, 9, 10  # classes of types
VARIABLE_CLASSES = (_COMPOUND, _VARIABLE, _ARRAY)
"""Classes of types whose values may lie outside their dataset."""

_HEAP_REFERENCE_BYTES = 16


class AttributeHash:
    """Hashes attributes so that files whose hashes are equal have equal attributes.

    Files of unequal hashes may have equal ones: stored in another order, for example.
    """

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self._hashed = xxhash.xxh3_128()
        self._references: list[Int64Array] = []
        self._count = 0

    @property
    def has_variable_text(self) -> bool:
        """Whether a value lies in the global heap."""
        return bool(self._references)

    def add(self, objects: Int64Array, addresses: Int64Array, sizes: Int64Array) -> None:
        """Take messages of objects of one depth: whose they are, where they begin, their bytes.

        All have the shape ``(n_attributes,)``.
        """
        for size in distinct(sizes):
            chosen = sizes == size
            self._add_equal(
                objects[chosen],
                addresses[chosen],
                self._file.gather_bytes(addresses[chosen], size),
            )

    def _add_equal(
        self, objects: Int64Array, addresses: Int64Array, payload: NDArray[np.uint8]
    ) -> None:
        """Take messages of equal size."""
        if payload.shape[1] < _HEAP_REFERENCE_BYTES:
            raise UnsupportedLayoutError("an attribute that is too short")
        # Version, flags or nothing, bytes of name, type and dataspace.
        start = np.ascontiguousarray(payload[:, :8]).view(np.uint64)[:, 0]
        forms = np.unique(start) if (start != start[0]).any() else start[:1]
        for form in forms:
            same = slice(None) if len(forms) == 1 else start == form
            self._add_alike(objects[same], addresses[same], payload[same])

    def _add_alike(
        self, objects: Int64Array, addresses: Int64Array, payload: NDArray[np.uint8]
    ) -> None:
        """Take messages of which every part begins at the same place."""
        version, flags = payload[0, :2].tolist()
        name_bytes, type_bytes, space_bytes = payload[0, 2:8].copy().view("<u2").tolist()
        if version not in (1, 2, 3) or flags:
            raise UnsupportedLayoutError("an attribute of another version")
        at = 9 if version == 3 else 8
        step = 8 if version == 1 else 1
        begin_type = at + -(-name_bytes // step) * step
        begin_value = begin_type + -(-type_bytes // step) * step
        begin_value += -(-space_bytes // step) * step
        if begin_type + type_bytes > payload.shape[1] or begin_value > payload.shape[1]:
            raise UnsupportedLayoutError("an attribute that is too short")
        if name_bytes in _RECORD_BYTES:
            payload, objects, addresses = _without_records(payload, at, objects, addresses)
            if not len(payload):
                return
        classes = payload[:, begin_type] & 0xF
        for kind in distinct(classes):
            if kind in (_COMPOUND, _REFERENCE, _ARRAY):
                raise UnsupportedLayoutError("an attribute of another type")
            if kind == _VARIABLE:
                variable = classes == kind
                self._add_references(payload, variable, begin_value)
        self._count += len(payload)
        self._hashed.update(objects.tobytes())
        self._hashed.update(payload.tobytes())

    def _add_references(
        self, payload: NDArray[np.uint8], chosen: NDArray[np.bool_], begin: int
    ) -> None:
        """Remember where values lie in the heap, and leave their addresses out of the hash."""
        count = (payload.shape[1] - begin) // _HEAP_REFERENCE_BYTES
        end = begin + count * _HEAP_REFERENCE_BYTES
        references = payload[chosen, begin:end].reshape(-1, _HEAP_REFERENCE_BYTES)
        addresses = np.ascontiguousarray(references[:, 4:12]).view("<i8")[:, 0]
        self._references.append(addresses)
        rest = payload[:, begin:end].reshape(len(payload), count, _HEAP_REFERENCE_BYTES)
        rest[chosen, :, 4:12] = 0

    def digest(self) -> bytes:
        """Return the hash of all, or nothing if there is no attribute."""
        if not self._count:
            return b""
        if self._references:
            self._add_collections(np.concatenate(self._references))
        return b"direct" + self._hashed.digest()

    def _add_collections(self, addresses: Int64Array) -> None:
        """Hash the collections of the heap that values lie in, and in which each of them lies."""
        collections, first, which = np.unique(addresses, return_index=True, return_inverse=True)
        # Numbered as they appear: addresses are another file's own.
        order = np.argsort(first)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        self._hashed.update(number[which].tobytes())
        used = collections[order]
        used = used[used > 0]  # an empty text is nowhere
        self._file.require_signature(used, b"GCOL")
        sizes = self._file.gather_int64(used + 8, "<u8")
        content = memoryview(self._file.map)
        try:
            for begin, size in zip(used.tolist(), sizes.tolist(), strict=True):
                if size < 0 or begin + size > self._file.size:
                    raise UnsupportedLayoutError("a heap outside the file")
                self._hashed.update(content[begin : begin + size])
        finally:
            content.release()


_RECORD_BYTES = {len(name) + 1 for name in OWN_ATTRIBUTES}


def _without_records(payload: NDArray[np.uint8], at: int, *others: Any) -> tuple[Any, ...]:
    """Leave out what hepcache wrote down in a file of the file itself."""
    kept = np.ones(len(payload), np.bool_)
    for name in OWN_ATTRIBUTES:
        wanted = np.frombuffer(name + b"\0", np.uint8)
        if at + len(wanted) <= payload.shape[1]:
            kept &= (payload[:, at : at + len(wanted)] != wanted).any(axis=1)
    return payload[kept], *(values[kept] for values in others)
