"""The tables of a file in HDF5's earliest format, without HDF5's library."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
from h5py import h5t
from numpy.typing import NDArray

from hepcache.hdf5 import classic
from hepcache.hdf5.classic import FILL, FILL_OLD, FILTERS, LAYOUT, SPACE, TYPE, Messages
from hepcache.hdf5.image import Image, Places, UnsupportedLayoutError, distinct
from hepcache.hdf5.messages import CHUNKED, CONTIGUOUS, described_layout, is_variable, storage_of
from hepcache.hdf5.model import Column, Group, Schema, Storage

__all__ = ["DirectTables"]

_UNLIMITED = 2**64 - 1


class DirectTables:
    """What :mod:`hepcache.hdf5.classic` finds, as columns of a schema.

    Attributes
    ----------
    lengths, addresses
        As in :class:`~hepcache.hdf5.model.FileTables`.
    digest
        Of all that makes the schema.
    special
        Paths of the objects that have attributes or a scalar value.

    Raises
    ------
    UnsupportedLayoutError
        HDF5's library has to read this file.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._levels = list(classic.walk_groups(image))
        hashed = xxhash.xxh3_128()
        lengths, addresses = [], []
        for level in self._levels:
            hashed.update(level.parent.tobytes() + level.is_group.tobytes())
            hashed.update(str(level.names.dtype).encode() + level.names.tobytes())
            chosen = _only(level.messages, ~level.is_group)
            found = _spaces(image, chosen, hashed)
            lengths.append(found)
            addresses.append(_layouts(image, chosen, hashed))
            for kind in (TYPE, FILL_OLD, FILL, FILTERS):
                for rows, payload in _payloads(image, chosen, kind):
                    hashed.update(rows.tobytes() + payload.tobytes())
        order = self._order()
        self.lengths = np.concatenate(lengths)[order]
        self.addresses = np.concatenate(addresses)[order]
        self.digest = b"direct" + hashed.digest()

    def _order(self) -> Places:
        """Return how to bring datasets, level by level, in the order of their groups."""
        parents = [level.parent[~level.is_group] for level in self._levels]
        order: Places = np.argsort(np.concatenate(parents), kind="stable")
        return order

    @property
    def special(self) -> list[bytes]:
        """Paths of the objects that have attributes or a scalar value."""
        flags = []
        for level in self._levels:
            ranks = np.ones(len(level.headers), np.int64)
            own = ~level.is_group
            ranks[own] = self._image.numbers(level.messages.place[SPACE][own] + 1, "u1")
            flags.append(level.messages.attributes | (ranks == 0))
        if not any(flag.any() for flag in flags):
            return []
        return [
            path for path, flag in zip(self._paths(), np.concatenate(flags), strict=True) if flag
        ]

    def _paths(self) -> list[bytes]:
        """Return the paths of all objects, level by level."""
        paths: list[bytes] = []
        groups: list[bytes] = []
        for level in self._levels:
            names = level.names.tolist()
            for parent, name, is_group in zip(
                level.parent.tolist(), names, level.is_group.tolist(), strict=True
            ):
                path = groups[parent] + b"/" + name if parent > 0 else name
                paths.append(path)
                if is_group:
                    groups.append(path)
        return paths

    def schema(self) -> Schema:
        """Return the schema, which takes longer than all else."""
        paths = iter(self._paths())
        groups: list[Group] = []
        columns: list[Column] = []
        for level in self._levels:
            chosen = _only(level.messages, ~level.is_group)
            made = iter(_Columns(self._image, chosen).all())
            for parent, is_group in zip(
                level.parent.tolist(), level.is_group.tolist(), strict=True
            ):
                if is_group:
                    groups.append(Group(next(paths)))
                else:
                    columns.append(next(made)(next(paths), parent))
        return Schema(tuple(groups), tuple(columns[n] for n in self._order().tolist()))


def _only(messages: Messages, chosen: NDArray[np.bool_]) -> Messages:
    return Messages(
        {kind: place[chosen] for kind, place in messages.place.items()},
        {kind: size[chosen] for kind, size in messages.size.items()},
        messages.attributes[chosen],
    )


def _payloads(
    image: Image, messages: Messages, kind: int
) -> list[tuple[Places, NDArray[np.uint8]]]:
    """Return the payloads of a message by their size: which objects, and their bytes."""
    place, size = messages.place[kind], messages.size[kind]
    found = []
    for nbytes in distinct(size[place >= 0]):
        rows = np.flatnonzero((place >= 0) & (size == nbytes))
        found.append((rows, image.bytes_at(place[rows], nbytes)))
    return found


def _spaces(image: Image, messages: Messages, hashed: Any) -> Places:
    """Return first dimensions; hash all others."""
    lengths = np.full(len(messages.attributes), -1, np.int64)
    for rows, payload in _payloads(image, messages, SPACE):
        _check_spaces(payload)
        first = np.where(payload[:, 0] == 1, 8, 4)
        ranked = payload[:, 1] > 0
        begin = messages.place[SPACE][rows] + first
        lengths[rows[ranked]] = image.numbers(begin[ranked], "<u8")
        forms = first * 256 + payload[:, 1]
        for form in distinct(forms):
            same, (at, ranks) = forms == form, divmod(form, 256)
            part = payload[same]
            part[:, at : at + 8 * (ranks > 0)] = 0
            most = part[:, at + 8 * ranks : at + 8 * ranks + 8]
            limited = (most != 255).any(axis=1)
            most[limited] = 0
            hashed.update(rows[same].tobytes() + part.tobytes())
    return lengths


def _check_spaces(payload: NDArray[np.uint8]) -> None:
    version, rank, flags = payload[:, 0], payload[:, 1].astype(np.int64), payload[:, 2]
    if ((version != 1) & (version != 2)).any() or (flags & 2).any():
        raise UnsupportedLayoutError("a dataspace of another version")
    if ((version == 2) & (payload[:, 3] == 2)).any():
        raise UnsupportedLayoutError("a dataspace without a value")
    needed = np.where(version == 1, 8, 4) + 8 * rank * (1 + (flags & 1))
    if (needed > payload.shape[1]).any():
        raise UnsupportedLayoutError("a dataspace that is too short")


def _layouts(image: Image, messages: Messages, hashed: Any) -> Places:
    """Return addresses; hash the rest of the layouts."""
    addresses = np.full(len(messages.attributes), -1, np.int64)
    for rows, payload in _payloads(image, messages, LAYOUT):
        kind = payload[:, 1]
        if (payload[:, 0] != 3).any() or (kind > CHUNKED).any():
            raise UnsupportedLayoutError("a layout of another version")
        begin = messages.place[LAYOUT][rows]
        for layout, at in ((CONTIGUOUS, 2), (CHUNKED, 3)):
            same = kind == layout
            addresses[rows[same]] = image.numbers(begin[same] + at, "<u8")
        # What lies in the header itself is data.
        payload[kind == 0, 2:] = 0
        payload[kind == CONTIGUOUS, 2:] = 0
        payload[kind == CHUNKED, 3:11] = 0
        hashed.update(rows.tobytes() + payload.tobytes())
    return addresses


class _Columns:
    """Makes columns of headers; equal messages are understood once."""

    def __init__(self, image: Image, messages: Messages) -> None:
        self._image, self._messages = image, messages
        self._types: dict[bytes, tuple[bytes, int, bool]] = {}
        self._storages: dict[tuple[bytes, bytes, bytes, bytes], Storage] = {}

    def all(self) -> list[Any]:
        """Return, for every dataset, a function that takes path and group."""
        raw = {kind: self._raw(kind) for kind in (SPACE, TYPE, FILL_OLD, FILL, LAYOUT, FILTERS)}
        return [
            self._maker(*(raw[kind][n] for kind in raw))
            for n in range(len(self._messages.attributes))
        ]

    def _raw(self, kind: int) -> list[bytes]:
        found = [b""] * len(self._messages.attributes)
        for rows, payload in _payloads(self._image, self._messages, kind):
            width = payload.shape[1]
            whole = payload.view(f"V{width}")[:, 0].tolist() if width else [b""] * len(rows)
            for row, one in zip(rows.tolist(), whole, strict=True):
                found[row] = one
        return found

    def _maker(
        self, space: bytes, kind: bytes, old: bytes, fill: bytes, layout: bytes, filters: bytes
    ) -> Any:
        rank, begin = space[1], 8 if space[0] == 1 else 4
        dims = np.frombuffer(space, "<u8", rank, begin).tolist()
        if kind not in self._types:
            found = h5t.decode(b"\x03\x00" + kind)
            self._types[kind] = (found.encode(), found.get_size(), is_variable(found))
        encoded, itemsize, variable = self._types[kind]
        described = described_layout(layout)
        key = (old, fill, described, filters)
        if key not in self._storages:
            self._storages[key] = storage_of(*key, rank)
        storage = self._storages[key]
        tail = tuple(dims[1:])
        return lambda path, group: Column(
            path, group, encoded, itemsize, rank, tail, variable, storage
        )
