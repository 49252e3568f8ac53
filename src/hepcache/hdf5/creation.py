"""How the datasets of an output are made, and their attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t

from hepcache.hdf5.codecs import creation_list
from hepcache.hdf5.library import attributes
from hepcache.hdf5.model import Column
from hepcache.hdf5.plan import Plan
from hepcache.hdf5.work import Target

__all__ = ["Makers", "copy_attributes", "portable_type"]

_TYPE_VERSION = 3  # of an encoded type, as HDF5 1.10 knows them


class Makers:
    """Makes datasets of a plan; what is equal of them is made once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: dict[Any, Any] = {}
        self._types: dict[bytes, Any] = {}

    def maker(self, number: int, creation: Any = None) -> tuple[Any, Callable[[Any, bytes], Any]]:
        """Return a key, equal for equal datasets, and what makes one of a name in a group."""
        column, target = self._plan.schema.columns[number], self._plan.targets[number]
        total = self._plan.total(number)
        if column.type not in self._types:
            self._types[column.type] = portable_type(column.type)
        kind = self._types[column.type]
        key = (column.storage, target, column.rank, column.tail, column.type, total)
        if key not in self._made:
            self._made[key] = (_space(column, target, total), _creation(column, target, total))
        space, usual = self._made[key]
        return key, lambda group, name: h5d.create(group, name, kind, space, creation or usual)


def _creation(column: Column, target: Target | None, total: int) -> Any:
    if target is None or (not target.whole and total):
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_obj_track_times(False)
    else:
        rows = target.rows if target.whole else 128
        creation = creation_list((rows, *column.tail), target.encoding.filters)
    fill = column.storage.fill
    if fill:
        kind = h5t.decode(column.type)
        creation.set_fill_value(np.frombuffer(fill, kind.dtype)[0:1].reshape(()))
    return creation


def _space(column: Column, target: Target | None, total: int) -> Any:
    if column.rank < 0:
        return h5s.create(h5s.NULL)
    if column.rank == 0:
        return h5s.create(h5s.SCALAR)
    shape = (total, *column.tail)
    if target is None or (not target.whole and total):
        return h5s.create_simple(shape)
    return h5s.create_simple(shape, (h5s.UNLIMITED, *column.tail))


def portable_type(encoded: bytes) -> Any:
    """Return a type in a form that old libraries read, if there is one."""
    kind = h5t.decode(encoded)
    if encoded[2] >> 4 <= _TYPE_VERSION:
        return kind
    same = h5t.py_create(kind.dtype, logical=True)
    return same if same.equal(kind) else kind


def copy_attributes(source: Any, into: Any) -> None:
    """Copy the attributes of one object to another one, of another file."""
    for name, kind, shape, value in attributes(source):
        space = h5s.create(h5s.NULL if shape is None else h5s.SCALAR)
        if shape:
            space = h5s.create_simple(shape)
        made = h5a.create(into, name, portable_type(kind), space)
        if value is not None:
            made.write(value)
