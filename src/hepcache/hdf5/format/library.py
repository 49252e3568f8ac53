"""Groups and datasets of any file, through HDF5's own library; attributes and single values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import h5py
import numpy as np
import xxhash
from h5py import h5a, h5d, h5f, h5g, h5o, h5p, h5s, h5t

from hepcache.hdf5.format.filters import reading
from hepcache.hdf5.format.mapped import UnsupportedLayoutError, file_locking
from hepcache.hdf5.model import (
    ELSEWHERE,
    OWN_ATTRIBUTES,
    Column,
    Filter,
    Group,
    Int64Array,
    Schema,
    Storage,
    display_path,
)

_CACHE_BYTES = 32 << 20


def open_library(path: str, *, chunk_cache: int = 1 << 20) -> Any:
    """Open a file to read, with a large metadata cache; return h5py's ``FileID``."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_cache(0, 521, chunk_cache, 0.75)
    access.set_file_locking(*file_locking())
    file = h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=access)
    cache = file.get_mdc_config()
    cache.set_initial_size = True
    cache.initial_size = _CACHE_BYTES
    cache.max_size = max(cache.max_size, _CACHE_BYTES)
    file.set_mdc_config(cache)
    return file


def library_tables(file: Any, *, follow: bool = False) -> tuple[Schema, Int64Array]:
    """Return schema and first dimensions of an open file.

    With ``follow``, objects behind external links are part of it. An object that is
    no table raises :class:`UnsupportedLayoutError`, which names it.
    """
    groups = [Group(b"", _is_ordered(h5g.open(file, b"/")))]
    columns: list[Column] = []
    lengths: list[int] = []
    seen = {_identity(file)}
    number = 0
    while number < len(groups):
        parent = groups[number]
        group = h5g.open(file, b"/" + parent.path)
        for name in _names(group, parent.ordered):
            path = parent.path + b"/" + name if parent.path else name
            kind = group.links.get_info(name).type
            if kind != h5py.h5l.TYPE_HARD and not (follow and kind == h5py.h5l.TYPE_EXTERNAL):
                raise UnsupportedLayoutError(
                    f"{display_path(path)} is a link; replace it by its target"
                )
            try:
                member = h5o.open(group, name)
            except (KeyError, OSError) as error:
                if kind != h5py.h5l.TYPE_EXTERNAL:
                    raise
                file, target = map(os.fsdecode, group.links.get_val(name))
                raise UnsupportedLayoutError(
                    f"{display_path(path)} leads to {target} of {file}, which can't be opened; "
                    "put the file back, or merge anew"
                ) from error
            identity = _identity(member)
            if identity in seen:
                raise UnsupportedLayoutError(
                    f"{display_path(path)} is a second name of another object"
                )
            seen.add(identity)
            if isinstance(member, h5g.GroupID):
                groups.append(Group(path, _is_ordered(member)))
            elif isinstance(member, h5d.DatasetID):
                column, length = _column(path, number, member)
                columns.append(column)
                lengths.append(length)
            else:
                raise UnsupportedLayoutError(f"{display_path(path)} is a named type")
        number += 1
    return Schema(tuple(groups), tuple(columns)), np.array(lengths, dtype=np.int64)


def _identity(opened: Any) -> tuple[int, int]:
    found = h5o.get_info(opened)
    return found.fileno, found.addr


def _is_ordered(group: Any) -> bool:
    return bool(group.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED)


def _names(group: Any, ordered: bool) -> list[bytes]:
    names: list[bytes] = []
    index = h5py.h5.INDEX_CRT_ORDER if ordered else h5py.h5.INDEX_NAME
    group.links.iterate(names.append, idx_type=index)
    return names


def _column(path: bytes, group: int, dataset: Any) -> tuple[Column, int]:
    """Return a dataset's column and its first dimension, which is -1 without one."""
    space = dataset.get_space()
    kind = dataset.get_type()
    if space.get_simple_extent_type() == h5s.NULL:
        rank = -1
        dims: tuple[int, ...] = ()
    else:
        rank = space.get_simple_extent_ndims()
        dims = space.get_simple_extent_dims()
    storage = _storage(dataset.get_create_plist(), kind)
    column = Column(
        path,
        group,
        kind.encode(),
        kind.get_size(),
        rank,
        tuple(dims[1:]),
        is_variable(kind),
        storage,
    )
    return column, dims[0] if rank > 0 else -1


def _storage(creation: Any, kind: Any) -> Storage:
    layout = creation.get_layout()
    fill = b""
    if creation.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED and not is_variable(kind):
        value = np.zeros((), dtype=f"V{kind.get_size()}")
        creation.get_fill_value(_typed(value, kind))
        fill = value.tobytes()
    fill = fill if any(fill) else b""
    if layout == h5d.CHUNKED:
        steps = (creation.get_filter(n) for n in range(creation.get_nfilters()))
        filters: tuple[Filter, ...] = tuple(
            (number, flags, tuple(values)) for number, flags, values, _ in steps
        )
        return Storage("chunked", creation.get_chunk(), filters, fill)
    if layout == h5d.VIRTUAL or (layout == h5d.CONTIGUOUS and creation.get_external_count()):
        return Storage(ELSEWHERE, fill=fill)
    return Storage("contiguous" if layout == h5d.CONTIGUOUS else "other", fill=fill)


def elsewhere(columns: Iterable[Column]) -> list[bytes]:
    """Return the paths of those columns whose rows lie in other files."""
    return [column.path for column in columns if column.storage.layout == ELSEWHERE]


def _typed(value: Any, kind: Any) -> Any:
    """Return a view of the same bytes in a type to which HDF5 converts nothing."""
    dtype = kind.dtype
    if dtype.itemsize != kind.get_size() or h5t.py_create(dtype, logical=True) != kind:
        raise UnsupportedLayoutError("a fill value of a type that numpy does not have")
    return value.view(dtype)


def is_variable(kind: h5t.TypeID) -> bool:
    """Tell whether values of a type lie outside their dataset."""
    return bool(
        kind.detect_class(h5t.VLEN)
        or (kind.get_class() == h5t.STRING and kind.is_variable_str())
        or (
            kind.get_class() in (h5t.COMPOUND, h5t.ARRAY)
            and kind.detect_class(h5t.STRING)
            and _holds_variable_text(kind)
        )
    )


def _holds_variable_text(kind: h5t.TypeID) -> bool:
    if kind.get_class() == h5t.STRING:
        return bool(kind.is_variable_str())
    if kind.get_class() == h5t.COMPOUND:
        members = (kind.get_member_type(n) for n in range(kind.get_nmembers()))
        return any(_holds_variable_text(member) for member in members)
    return kind.get_class() == h5t.ARRAY and _holds_variable_text(kind.get_super())


def select_rows(dataset: Any, start: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the dataspaces, in memory and in a dataset, of rows from ``start`` on."""
    space = dataset.get_space()
    space.select_hyperslab((start, *(0 for _ in shape[1:])), shape)
    return h5s.create_simple(shape), space


def read_rows(
    dataset: Any, start: int, shape: tuple[int, ...], out: Any, *, kind: Any = None
) -> None:
    """Read the rows of a dataset from ``start`` on, as values of an HDF5 type, into ``out``."""
    memory, space = select_rows(dataset, start, shape)
    with reading(dataset):
        dataset.read(memory, space, out, mtype=kind)


def attribute_digests(file: Any, paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return a digest of the attributes of each object that has any."""
    found = {}
    for path in paths:
        hashed = xxhash.xxh3_128()
        has_some = False
        for name, kind, shape, value in read_attributes(h5o.open(file, b"/" + path)):
            has_some = True
            hashed.update(repr((name, kind, shape, value_text(value))).encode())
        if has_some:
            found[path] = hashed.digest()
    return found


def value_digests(file: Any, paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return a digest of the value of each dataset without dimensions."""
    found = {}
    for path in paths:
        text = value_text(plain_value(h5d.open(file, b"/" + path)))
        found[path] = xxhash.xxh3_128_digest(text.encode())
    return found


def read_attributes(opened: Any) -> Iterator[tuple[bytes, bytes, Any, Any]]:
    """Yield name, encoded type, shape and value of an object's attributes."""
    for number in range(h5a.get_num_attrs(opened)):
        attribute = h5a.open(opened, index=number)
        if attribute.name in OWN_ATTRIBUTES:
            continue
        kind = attribute.get_type()
        if kind.detect_class(h5t.REFERENCE):
            raise UnsupportedLayoutError(
                f"attribute {attribute.name.decode()!r} refers to an object of its own file"
            )
        yield attribute.name, kind.encode(), _shape(attribute), plain_value(attribute)


def _shape(opened: Any) -> tuple[int, ...] | None:
    space = opened.get_space()
    return None if space.get_simple_extent_type() == h5s.NULL else space.shape


def plain_value(opened: Any) -> Any:
    """Return the value of an attribute or of a scalar dataset; ``None`` where it has none."""
    shape = _shape(opened)
    if shape is None:
        return None
    value = np.zeros(shape, dtype=opened.dtype)
    if isinstance(opened, h5d.DatasetID):
        opened.read(h5s.ALL, h5s.ALL, value)
    else:
        opened.read(value)
    return value


def value_text(value: Any) -> str:
    """Return a value of any nesting as text that tells all its bits."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        return f"[{','.join(value_text(item) for item in value.ravel())}]"
    if isinstance(value, np.void) and value.dtype.names:
        return f"({','.join(value_text(value[name]) for name in value.dtype.names)})"
    if isinstance(value, np.generic):
        return value.tobytes().hex()
    return repr(value)
