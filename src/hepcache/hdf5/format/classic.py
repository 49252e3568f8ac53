"""Groups and datasets of a file in HDF5's earliest format, found in bulk.

What is read here: superblock version 0 or 1, groups as symbol tables, object
headers of version 1, layouts of version 3 (HDF5 File Format Specification
Version 3.0, sections II.A, III.A to III.D, IV.A.1). That is what the library
writes by default, and what grid jobs leave. All else raises
:class:`UnsupportedLayoutError`, and HDF5's library reads the file instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from h5py import h5t
from numpy.typing import NDArray

from hepcache.hdf5.format.attributes import VARIABLE_CLASSES, AttributeHash
from hepcache.hdf5.format.btrees import leaf_keys
from hepcache.hdf5.format.library import is_variable
from hepcache.hdf5.format.mapped import MappedFile, UnsupportedLayoutError, distinct, expand_ranges
from hepcache.hdf5.model import Column, Filter, Group, Int64Array, Schema, Storage

CONTIGUOUS, CHUNKED = 1, 2
_SPACE, _TYPE, _FILL_OLD, _FILL, _LAYOUT, _FILTERS, _TABLE = 0x1, 0x3, 0x4, 0x5, 0x8, 0xB, 0x11
_ATTRIBUTE, _CONTINUATION = 0xC, 0x10
_IGNORED = (0x0, 0xE, 0x12, 0x16)  # nothing, modification times, reference count
_KEPT = (_SPACE, _TYPE, _FILL_OLD, _FILL, _LAYOUT, _FILTERS, _TABLE)
_MOST_MESSAGES = 256
_GROUP_NODE = 0
_SOFT_LINK = 2  # cache type of a symbol
_NONE = np.zeros(0, np.int64)

_ColumnFields = tuple[bytes, int, int, tuple[int, ...], bool, Storage]
"""Type, bytes of a value, rank, further dimensions, whether they are variable, storage."""


class ClassicTables:
    """Groups and datasets of one file; the schema is made only when it is asked for.

    ``lengths`` are the first dimensions of datasets, ``addresses`` where their chunk indexes
    or contiguous data begin, shape ``(n_columns,)``, -1 for none. ``digest`` is equal for
    files of equal schemas.
    """

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self._levels = list(_walk_groups(file))
        hashed = xxhash.xxh3_128()
        lengths = []
        addresses = []
        for level in self._levels:
            hashed.update(level.parent.tobytes() + level.is_group.tobytes())
            hashed.update(str(level.names.dtype).encode() + level.names.tobytes())
            datasets = level.messages.of(~level.is_group)
            lengths.append(_lengths(file, datasets, hashed))
            addresses.append(_addresses(file, datasets, hashed))
            for kind in (_TYPE, _FILL_OLD, _FILL, _FILTERS):
                for rows, payload in _payloads(file, datasets, kind):
                    hashed.update(rows.tobytes() + payload.tobytes())
        order = self._order()
        self.lengths = np.concatenate(lengths)[order]
        self.addresses = np.concatenate(addresses)[order]
        self.digest = b"direct" + hashed.digest()

    def _order(self) -> Int64Array:
        """Return how to bring datasets, level by level, in the order of their groups."""
        parents = [level.parent[~level.is_group] for level in self._levels]
        order: Int64Array = np.argsort(np.concatenate(parents), kind="stable")
        return order

    def attributes(self) -> bytes | None:
        """Return a hash that is equal only for files of equal attributes, empty without any.

        There is none for rare types, and where texts of attributes may lie among those of rows.
        """
        hashed = AttributeHash(self._file)
        try:
            for level in self._levels:
                hashed.add(*level.messages.attributes)
            if hashed.has_variable_text and self._has_variable_rows():
                return None
            return hashed.digest()
        except UnsupportedLayoutError:
            return None

    def _has_variable_rows(self) -> bool:
        kinds = []
        for level in self._levels:
            datasets = level.messages.of(~level.is_group)
            kinds.append(self._file.gather(datasets.address[_TYPE], "u1") & 0xF)
        ordered = np.concatenate(kinds)[self._order()]
        return bool(np.isin(ordered[self.lengths > 0], VARIABLE_CLASSES).any())

    def scalars(self) -> list[bytes]:
        """Return the paths of the datasets without dimensions."""
        flags = []
        for level in self._levels:
            found = np.zeros(len(level.headers), np.bool_)
            datasets = ~level.is_group
            spaces = level.messages.address[_SPACE][datasets]
            found[datasets] = self._file.gather(spaces + 1, "u1") == 0
            flags.append(found)
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
            datasets = level.messages.of(~level.is_group)
            fields = _columns(self._file, datasets)
            for parent, is_group in zip(
                level.parent.tolist(), level.is_group.tolist(), strict=True
            ):
                if is_group:
                    groups.append(Group(next(paths)))
                else:
                    columns.append(Column(next(paths), parent, *next(fields)))
        return Schema(tuple(groups), tuple(columns[n] for n in self._order().tolist()))


@dataclass(frozen=True, slots=True)
class _Messages:
    """Header messages of many objects.

    By type of message, ``address`` says where its payload begins in every object,
    shape ``(n_objects,)``, -1 where it has none, and ``size`` its bytes. ``attributes`` are
    numbers of objects, addresses and sizes of all their attributes.
    """

    address: dict[int, Int64Array]
    size: dict[int, Int64Array]
    attributes: tuple[Int64Array, Int64Array, Int64Array]

    def __len__(self) -> int:
        return len(self.address[_TYPE])

    def of(self, chosen: NDArray[np.bool_]) -> _Messages:
        """Return the messages of some of the objects, without attributes."""
        return _Messages(
            {kind: address[chosen] for kind, address in self.address.items()},
            {kind: size[chosen] for kind, size in self.size.items()},
            (_NONE, _NONE, _NONE),
        )


def _read_messages(file: MappedFile, headers: Int64Array) -> _Messages:
    """Walk the headers of many objects in step, one message of each at a time."""
    if (file.gather(headers, "u1") != 1).any():
        raise UnsupportedLayoutError("object header of another version")
    count = len(headers)
    address = {kind: np.full(count, -1, np.int64) for kind in _KEPT}
    size = {kind: np.zeros(count, np.int64) for kind in _KEPT}
    attributes = [(_NONE, _NONE, _NONE)]
    owner = np.arange(count)
    at = headers + 16
    end = at + file.gather_int64(headers + 8, "<u4")
    for _ in range(_MOST_MESSAGES):
        active = at + 8 <= end
        owner = owner[active]
        at = at[active]
        end = end[active]
        if not len(owner):
            owners, begins, nbytes = zip(*attributes, strict=True)
            found = np.concatenate(owners), np.concatenate(begins), np.concatenate(nbytes)
            return _Messages(address, size, found)
        kinds = file.gather(at, "<u2")
        sizes = file.gather_int64(at + 2, "<u2")
        shared = file.gather(at + 4, "u1") & 2
        blocks = [(owner, at + 8 + sizes, end)]
        for kind in distinct(kinds):
            chosen = kinds == kind
            objects = owner[chosen]
            begin = at[chosen] + 8
            if kind in _IGNORED:
                continue
            if kind == _ATTRIBUTE:
                if shared[chosen].any():
                    raise UnsupportedLayoutError("a shared attribute")
                attributes.append((objects, begin, sizes[chosen]))
            elif kind == _CONTINUATION:
                start = file.gather_int64(begin, "<u8")
                blocks.append((objects, start, start + file.gather_int64(begin + 8, "<u8")))
            elif kind in _KEPT and not shared[chosen].any() and (address[kind][objects] < 0).all():
                address[kind][objects] = begin
                size[kind][objects] = sizes[chosen]
            else:
                raise UnsupportedLayoutError(f"header message {kind:#x}")
        owner, at, end = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    raise UnsupportedLayoutError("a header of very many messages")


def _payloads(
    file: MappedFile, messages: _Messages, kind: int
) -> list[tuple[Int64Array, NDArray[np.uint8]]]:
    """Return the payloads of a message by their size: which objects, and their bytes."""
    address = messages.address[kind]
    size = messages.size[kind]
    found = []
    for nbytes in distinct(size[address >= 0]):
        rows = np.flatnonzero((address >= 0) & (size == nbytes))
        found.append((rows, file.gather_bytes(address[rows], nbytes)))
    return found


@dataclass(frozen=True, slots=True)
class _Level:
    """The members of all groups of one depth, in the order of the file.

    ``parent`` numbers the group that holds a member among all groups found; ``names``
    end in zeros; ``headers`` are the addresses of the object headers. All have the
    shape ``(n_members,)``.
    """

    parent: Int64Array
    names: NDArray[np.bytes_]
    headers: Int64Array
    messages: _Messages
    is_group: NDArray[np.bool_]


def _walk_groups(file: MappedFile) -> Iterator[_Level]:
    """Yield the root alone, then its members, then the members of the groups in it, and so on."""
    headers = _root_header(file)
    messages = _read_messages(file, headers)
    root = np.ones(1, np.bool_)
    yield _Level(np.full(1, -1, np.int64), np.array([b""]), headers, messages, root)
    first = 0
    visited = set(headers.tolist())
    while True:
        tables = messages.address[_TABLE]
        tables = tables[tables >= 0]
        if not len(tables):
            return
        names, headers, owner = _members(file, tables)
        if not len(headers):
            return
        again = visited.intersection(headers.tolist())
        visited.update(headers.tolist())
        if again or len(set(headers.tolist())) != len(headers):
            raise UnsupportedLayoutError("an object of several names")
        messages = _read_messages(file, headers)
        is_group = messages.address[_TABLE] >= 0
        is_dataset = np.logical_and.reduce(
            [messages.address[kind] >= 0 for kind in (_SPACE, _TYPE, _LAYOUT)]
        )
        if (is_group == is_dataset).any():
            raise UnsupportedLayoutError("an object that is no group and no dataset")
        yield _Level(owner + first, names, headers, messages, is_group)
        first += len(tables)


def _root_header(file: MappedFile) -> Int64Array:
    """Return the address of the root group's header, shape ``(1,)``."""
    start = bytes(file.map[:24])
    if start[:8] != b"\x89HDF\r\n\x1a\n" or start[8] > 1:
        raise UnsupportedLayoutError("superblock of another version")
    if start[9:11] != b"\0\0" or start[12:15] != b"\0\x08\x08":
        raise UnsupportedLayoutError("numbers of other sizes")
    at = np.array([24 + 4 * start[8]])
    base, _, end, driver = (int(file.gather(at + 8 * n, "<u8")[0]) for n in range(4))
    if base or driver != 2**64 - 1 or end > file.size:
        raise UnsupportedLayoutError("user block, file driver or truncated file")
    return file.gather_int64(at + 40, "<u8")


def _members(
    file: MappedFile, tables: Int64Array
) -> tuple[NDArray[np.bytes_], Int64Array, Int64Array]:
    """Return names and headers of the members of groups, and the number of each one's group."""
    keys, owner = leaf_keys(file, file.gather_int64(tables, "<u8"), _GROUP_NODE, 8)
    nodes = file.gather_int64(keys + 8, "<u8")
    file.require_signature(nodes, b"SNOD")
    entries, node = expand_ranges(nodes + 8, file.gather_int64(nodes + 6, "<u2"), 40)
    owner = owner[node]
    if (file.gather(entries + 16, "<u4") == _SOFT_LINK).any():
        raise UnsupportedLayoutError("a soft link")
    heaps = file.gather_int64(tables + 8, "<u8")
    file.require_signature(heaps, b"HEAP")
    names = file.gather_int64(heaps + 24, "<u8")[owner] + file.gather_int64(entries, "<u8")
    return _read_names(file, names), file.gather_int64(entries + 8, "<u8"), owner


def _read_names(file: MappedFile, addresses: Int64Array) -> NDArray[np.bytes_]:
    """Return the names that begin at addresses and end at a zero."""
    if not len(addresses):
        return np.zeros(0, "S1")
    for width in (16, 64, 256, 1024):
        nbytes = min(width, file.size - int(addresses.max()))
        rows = file.gather_bytes(addresses, nbytes)
        zero = rows == 0
        if zero.any(axis=1).all():
            length = zero.argmax(axis=1)
            rows[np.arange(nbytes) >= length[:, None]] = 0
            return rows.view(f"S{nbytes}")[:, 0]
    raise UnsupportedLayoutError("a very long name")


def _lengths(file: MappedFile, messages: _Messages, hashed: Any) -> Int64Array:
    """Return first dimensions; hash all others."""
    lengths = np.full(len(messages), -1, np.int64)
    for rows, payload in _payloads(file, messages, _SPACE):
        _check_spaces(payload)
        first = np.where(payload[:, 0] == 1, 8, 4)
        ranked = payload[:, 1] > 0
        begin = messages.address[_SPACE][rows] + first
        lengths[rows[ranked]] = file.gather_int64(begin[ranked], "<u8")
        forms = first * 256 + payload[:, 1]
        for form in distinct(forms):
            same = forms == form
            at, rank = divmod(form, 256)
            part = payload[same]
            part[:, at : at + 8 * (rank > 0)] = 0
            most = part[:, at + 8 * rank : at + 8 * rank + 8]
            limited = (most != 255).any(axis=1)
            most[limited] = 0
            hashed.update(rows[same].tobytes() + part.tobytes())
    return lengths


def _check_spaces(payload: NDArray[np.uint8]) -> None:
    version = payload[:, 0]
    rank = payload[:, 1].astype(np.int64)
    flags = payload[:, 2]
    if ((version != 1) & (version != 2)).any() or (flags & 2).any():
        raise UnsupportedLayoutError("a dataspace of another version")
    if ((version == 2) & (payload[:, 3] == 2)).any():
        raise UnsupportedLayoutError("a dataspace without a value")
    needed = np.where(version == 1, 8, 4) + 8 * rank * (1 + (flags & 1))
    if (needed > payload.shape[1]).any():
        raise UnsupportedLayoutError("a dataspace that is too short")


def _addresses(file: MappedFile, messages: _Messages, hashed: Any) -> Int64Array:
    """Return where data or chunk indexes begin; hash the rest of the layouts."""
    addresses = np.full(len(messages), -1, np.int64)
    for rows, payload in _payloads(file, messages, _LAYOUT):
        kind = payload[:, 1]
        if (payload[:, 0] != 3).any() or (kind > CHUNKED).any():
            raise UnsupportedLayoutError("a layout of another version")
        begin = messages.address[_LAYOUT][rows]
        for layout, at in ((CONTIGUOUS, 2), (CHUNKED, 3)):
            same = kind == layout
            addresses[rows[same]] = file.gather_int64(begin[same] + at, "<u8")
        # What lies in the header itself is data.
        payload[kind == 0, 2:] = 0
        payload[kind == CONTIGUOUS, 2:] = 0
        payload[kind == CHUNKED, 3:11] = 0
        hashed.update(rows.tobytes() + payload.tobytes())
    return addresses


def _columns(file: MappedFile, messages: _Messages) -> Iterator[_ColumnFields]:
    """Yield what headers say of datasets; equal messages are understood once."""
    types: dict[bytes, tuple[bytes, int, bool]] = {}
    storages: dict[tuple[bytes, bytes, bytes, bytes], Storage] = {}
    kinds = (_SPACE, _TYPE, _FILL_OLD, _FILL, _LAYOUT, _FILTERS)
    raw = (_raw_messages(file, messages, kind) for kind in kinds)
    for space, kind, old, fill, layout, filters in zip(*raw, strict=True):
        rank = space[1]
        dims = np.frombuffer(space, "<u8", rank, 8 if space[0] == 1 else 4).tolist()
        if kind not in types:
            decoded = h5t.decode(b"\x03\x00" + kind)
            types[kind] = (decoded.encode(), decoded.get_size(), is_variable(decoded))
        encoded, itemsize, variable = types[kind]
        unaddressed = layout[:3] + layout[11:] if layout[1] == CHUNKED else layout[:2]
        key = (old, fill, unaddressed, filters)
        if key not in storages:
            storages[key] = _storage(*key, rank)
        yield encoded, itemsize, rank, tuple(dims[1:]), variable, storages[key]


def _raw_messages(file: MappedFile, messages: _Messages, kind: int) -> list[bytes]:
    """Return one message of every dataset; nothing where it has none."""
    found = [b""] * len(messages)
    for rows, payload in _payloads(file, messages, kind):
        width = payload.shape[1]
        whole = payload.view(f"V{width}")[:, 0].tolist() if width else [b""] * len(rows)
        for row, message in zip(rows.tolist(), whole, strict=True):
            found[row] = message
    return found


def _storage(old: bytes, fill: bytes, layout: bytes, filters: bytes, rank: int) -> Storage:
    """Return how a dataset lies in its file, from its header's messages without addresses."""
    if layout[1] not in (CONTIGUOUS, CHUNKED):
        return Storage("other")
    value = _fill_value(old, fill)
    if layout[1] == CONTIGUOUS:
        return Storage("contiguous", fill=value)
    chunk = np.frombuffer(layout, "<u4", rank, 3).tolist()
    return Storage("chunked", tuple(chunk), _filter_pipeline(filters), value)


def _fill_value(old: bytes, fill: bytes) -> bytes:
    """Return the bytes of a fill value that isn't zero, from either kind of message."""
    value = b""
    if old:
        value = old[4 : 4 + int.from_bytes(old[:4], "little")]
    if fill and fill[0] in (1, 2):
        defined = fill[3] or fill[0] == 1
        size = int.from_bytes(fill[4:8], "little", signed=True) if defined else 0
        value = fill[8 : 8 + size] if size > 0 else value
    elif fill and fill[0] == 3:
        if fill[1] & 0x20:
            value = fill[6 : 6 + int.from_bytes(fill[2:6], "little")]
    elif fill:
        raise UnsupportedLayoutError("a fill value of another version")
    return value if any(value) else b""


def _filter_pipeline(message: bytes) -> tuple[Filter, ...]:
    """Return the filters of a filter message (version 1 or 2)."""
    if not message:
        return ()
    version = message[0]
    if version not in (1, 2):
        raise UnsupportedLayoutError("a filter pipeline of another version")
    at = 8 if version == 1 else 2
    filters = []
    for _ in range(message[1]):
        number = int.from_bytes(message[at : at + 2], "little")
        at += 2
        name_bytes = 0
        if version == 1 or number >= 256:
            name_bytes = int.from_bytes(message[at : at + 2], "little")
            at += 2
        flags, values = np.frombuffer(message, "<u2", 2, at).tolist()
        at += 4 + (-(-name_bytes // 8) * 8 if version == 1 else name_bytes)
        filters.append((number, flags, tuple(np.frombuffer(message, "<u4", values, at).tolist())))
        at += 4 * values + (4 if version == 1 and values % 2 else 0)
    return tuple(filters)
