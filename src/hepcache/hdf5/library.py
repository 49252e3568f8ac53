"""The tables of any file, through HDF5's own library; attributes and single values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import xxhash
from h5py import h5a, h5d, h5f, h5g, h5o, h5p, h5s, h5t

from hepcache.hdf5.image import Places, UnsupportedLayoutError
from hepcache.hdf5.messages import is_variable
from hepcache.hdf5.model import Column, Filter, Group, Schema, Storage, text

__all__ = ["fixed_digests", "library_tables", "open_library", "plain_value"]

_CACHE_BYTES = 32 << 20


def open_library(path: str, *, chunk_cache: int = 1 << 20) -> Any:
    """Open a file to read, with a large metadata cache.

    Returns
    -------
    h5py.h5f.FileID
        Close it.

    Raises
    ------
    OSError
        It can't be read; HDF5's own words.
    """
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_cache(0, 521, chunk_cache, 0.75)
    file = h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=access)
    cache = file.get_mdc_config()
    cache.set_initial_size, cache.initial_size = True, _CACHE_BYTES
    cache.max_size = max(cache.max_size, _CACHE_BYTES)
    file.set_mdc_config(cache)
    return file


def library_tables(file: Any, *, follow: bool = False) -> tuple[Schema, Places]:
    """Return schema and first dimensions of an open file.

    Parameters
    ----------
    file
        The file.
    follow
        Whether what external links lead to counts as what is there.

    Raises
    ------
    UnsupportedLayoutError
        It holds what is no table; the message names it.
    """
    groups = [Group(b"", _ordered(h5g.open(file, b"/")))]
    found: list[tuple[Column, int]] = []
    seen = {_identity(file)}
    at = 0
    while at < len(groups):
        parent = groups[at]
        group = h5g.open(file, b"/" + parent.path)
        for name in _names(group, parent.ordered):
            path = parent.path + b"/" + name if parent.path else name
            kind = group.links.get_info(name).type
            if kind != h5py.h5l.TYPE_HARD and not (follow and kind == h5py.h5l.TYPE_EXTERNAL):
                raise UnsupportedLayoutError(f"{text(path)} is a link; replace it by its target")
            one = h5o.open(group, name)
            identity = _identity(one)
            if identity in seen:
                raise UnsupportedLayoutError(f"{text(path)} is a second name of another object")
            seen.add(identity)
            if isinstance(one, h5g.GroupID):
                groups.append(Group(path, _ordered(one)))
            elif isinstance(one, h5d.DatasetID):
                found.append(_column(path, at, one))
            else:
                raise UnsupportedLayoutError(f"{text(path)} is a named type")
        at += 1
    lengths = np.array([length for _, length in found], dtype=np.int64)
    return Schema(tuple(groups), tuple(column for column, _ in found)), lengths


def _identity(one: Any) -> tuple[int, int]:
    found = h5o.get_info(one)
    return found.fileno, found.addr


def _ordered(group: Any) -> bool:
    return bool(group.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED)


def _names(group: Any, ordered: bool) -> list[bytes]:
    names: list[bytes] = []
    index = h5py.h5.INDEX_CRT_ORDER if ordered else h5py.h5.INDEX_NAME
    group.links.iterate(names.append, idx_type=index)
    return names


def _column(path: bytes, group: int, dataset: Any) -> tuple[Column, int]:
    space, kind = dataset.get_space(), dataset.get_type()
    rank = space.get_simple_extent_ndims()
    length = -1
    if space.get_simple_extent_type() == h5s.NULL:
        rank, dims = -1, ()
    else:
        dims = space.get_simple_extent_dims()
        length = dims[0] if rank else -1
    storage = _storage(dataset.get_create_plist(), kind)
    encoded, variable = kind.encode(), is_variable(kind)
    return (
        Column(path, group, encoded, kind.get_size(), rank, tuple(dims[1:]), variable, storage),
        length,
    )


def _storage(creation: Any, kind: Any) -> Storage:
    layout = creation.get_layout()
    fill = b""
    if creation.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED and not is_variable(kind):
        value = np.zeros((), dtype=f"V{kind.get_size()}")
        creation.get_fill_value(_typed(value, kind))
        fill = value.tobytes()
    fill = fill if any(fill) else b""
    if layout == h5d.CHUNKED:
        return Storage("chunked", creation.get_chunk(), _filters(creation), fill)
    plain = layout == h5d.CONTIGUOUS and not creation.get_external_count()
    return Storage("contiguous", fill=fill) if plain else Storage("other", fill=fill)


def _typed(value: Any, kind: Any) -> Any:
    """Return a view of the same bytes in a type that HDF5 converts nothing to."""
    dtype = kind.dtype
    if dtype.itemsize != kind.get_size() or h5t.py_create(dtype, logical=True) != kind:
        raise UnsupportedLayoutError("a fill value of a type that numpy does not have")
    return value.view(dtype)


def _filters(creation: Any) -> tuple[Filter, ...]:
    steps = (creation.get_filter(n) for n in range(creation.get_nfilters()))
    return tuple((number, flags, tuple(values)) for number, flags, values, _ in steps)


def fixed_digests(file: Any, paths: list[bytes]) -> dict[bytes, bytes]:
    """Return a digest of the attributes, and of a scalar's value, of each object that has any."""
    found = {}
    for path in paths:
        one = h5o.open(file, b"/" + path)
        hashed = xxhash.xxh3_128()
        has_some = False
        for name, kind, shape, value in attributes(one):
            has_some = True
            hashed.update(repr((name, kind, shape)).encode() + _flat(value))
        if isinstance(one, h5d.DatasetID) and not one.get_space().get_simple_extent_ndims():
            has_some = True
            hashed.update(_flat(plain_value(one)))
        if has_some:
            found[path] = hashed.digest()
    return found


def attributes(one: Any) -> Iterator[tuple[bytes, bytes, Any, Any]]:
    """Yield name, encoded type, shape and value of an object's attributes."""
    for number in range(h5a.get_num_attrs(one)):
        attribute = h5a.open(one, index=number)
        kind = attribute.get_type()
        if kind.detect_class(h5t.REFERENCE):
            raise UnsupportedLayoutError(
                f"attribute {attribute.name.decode()!r} refers to an object of its own file"
            )
        yield attribute.name, kind.encode(), _shape(attribute), plain_value(attribute)


def _shape(one: Any) -> tuple[int, ...] | None:
    space = one.get_space()
    return None if space.get_simple_extent_type() == h5s.NULL else space.shape


def plain_value(one: Any) -> Any:
    """Return the value of an attribute or of a scalar dataset; ``None`` where it has none."""
    shape = _shape(one)
    if shape is None:
        return None
    value = np.zeros(shape, dtype=one.dtype)
    if isinstance(one, h5d.DatasetID):
        one.read(h5s.ALL, h5s.ALL, value)
    else:
        one.read(value)
    return value


def _flat(value: Any) -> bytes:
    if value is None:
        return b"none"
    if not value.dtype.hasobject:
        return bytes(value.tobytes())
    return repr([_plain(one) for one in value.ravel()]).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return [_plain(one) for one in value.ravel()]
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, np.void):
        return [_plain(value[name]) for name in value.dtype.names or ()] or value.tobytes()
    return value
