"""All that hepcache uses of awkward without its promise to keep it.

``tests/upstream/test_awkward.py`` names each part, so that an upgrade that changes one
fails there. Without one of them ``ak.from_buffers`` makes the contents.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import awkward as ak
import numpy as np

from hepcache.upstream.names import is_there, look_up

__all__ = [
    "IS_LAZY",
    "UNKNOWN",
    "LazyContents",
    "from_parquet_table",
    "index_to_dtype",
    "lazy_record",
    "made_at_once",
    "made_of_buffers",
    "virtual_buffer",
]

_LOSS = "the contents of all columns are made for each chunk, not of those that are used"
_BYTEORDER = "<" if sys.byteorder == "little" else ">"

# Asking awkward for its singletons costs more than what they are wanted for.
_BACKEND: Any = look_up("awkward._backends.numpy:NumpyBackend.instance", _LOSS)
_BACKEND = _BACKEND and _BACKEND()
UNKNOWN: Any = look_up("awkward._nplikes.shape:unknown_length", _LOSS)
_VirtualNDArray: Any = look_up("awkward._nplikes.virtual:VirtualNDArray", _LOSS)
_reconstitute: Any = look_up("awkward.operations.ak_from_buffers:_reconstitute", _LOSS)
_PARTS = [
    is_there(f"awkward.contents:RecordArray.{part}", ak.contents.RecordArray([], [], 0), _LOSS)
    for part in ("_contents", "_fields", "_length", "_length_generator", "_parameters")
]

_with_awkward_types: Any = look_up(
    "awkward._connect.pyarrow:convert_native_arrow_table_to_awkward",
    "hepcache.arrays() gives columns of parquet files without awkward's names of records",
)

# awkward's unknown length can't be compared with None.
IS_LAZY = all(
    part is not None for part in (_BACKEND, UNKNOWN, _VirtualNDArray, _reconstitute)
) and all(_PARTS)
"""Whether contents can be made when they are touched."""

index_to_dtype = {
    name: np.dtype(kind)
    for name, kind in {"i8": "i1", "u8": "u1", "i32": "i4", "u32": "u4", "i64": "i8"}.items()
}
"""Types of the elements of an index, by awkward's names."""


def from_parquet_table(table: Any) -> ak.contents.Content:
    """Return a table of a parquet file as ``ak.from_parquet`` does.

    ``table``: pyarrow's, with the metadata of the file's schema.
    """
    if _with_awkward_types is not None:
        table = _with_awkward_types(table)
    return ak.from_arrow(table, highlevel=False)


class LazyContents(list[Any]):
    """Contents of a record array, each made when it is first asked for."""

    def __init__(self, make: Callable[[int], ak.contents.Content], length: int) -> None:
        super().__init__([None] * length)
        self._make = make

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        content = super().__getitem__(index)
        if content is None:
            content = self._make(range(len(self))[index])
            super().__setitem__(index, content)
        return content

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        return (self[i] for i in reversed(range(len(self))))

    def __add__(self, other: list[Any]) -> list[Any]:
        return [*self, *other]

    def copy(self) -> list[Any]:
        """Return all contents, made."""
        return list(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy elsewhere holds what there is; it can't make more.
        return (list, (list(self),))

    @property
    def made(self) -> int:
        """Number of contents that exist."""
        return sum(content is not None for content in super().__iter__())


class _LazyRecord(ak.contents.RecordArray):
    """A record array that believes its length, instead of making all contents to check it.

    Every content is made of that length. Its ``__class__`` is that of a plain
    record array, and a copy elsewhere is one.
    """

    _length: Any
    _length_generator: Any

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return ak.contents.RecordArray

    @property
    def length(self) -> Any:
        """The number of entries."""
        if self._length is UNKNOWN:
            self._length = self._length_generator()
            self._length_generator = None
        return self._length

    def __reduce__(self) -> tuple[Any, ...]:
        return _plain_record, (list(self._contents), self._fields, self.length, self._parameters)


def _plain_record(*values: Any) -> ak.contents.RecordArray:
    contents, fields, length, parameters = values
    return ak.contents.RecordArray(contents, fields, length, parameters=parameters)


def lazy_record(
    fields: Sequence[str],
    length: Any,
    parameters: dict[str, Any],
    make: Callable[[int], ak.contents.Content],
    length_generator: Callable[[], int] | None = None,
) -> ak.contents.RecordArray:
    """Return a record array whose contents are made when they are touched.

    ``length``: number of entries; ``UNKNOWN`` until ``length_generator`` is asked.
    ``make``: makes the content of a position, of at least ``length`` entries.
    """
    record = _LazyRecord([], [], 0, parameters=parameters)
    record._length, record._length_generator = length, length_generator  # noqa: SLF001
    record._contents = LazyContents(make, len(fields))  # noqa: SLF001
    record._fields = list(fields)
    return record


def made_at_once(
    form: ak.forms.RecordForm,
    length: int,
    parameters: Mapping[str, Any],
    buffers: Mapping[str, Callable[[], Any]],
    name: Callable[..., str],
    keep: Callable[[str, str], bool],
) -> ak.contents.RecordArray:
    """Return a record array in awkward's public way: all its contents are made at once.

    What these contents hold is loaded when it is used.
    """
    record = ak.from_buffers(
        form, length, buffers, name, enable_virtualarray_caching=keep, highlevel=False
    )
    return ak.contents.RecordArray(
        record.contents, record.fields, length, parameters=dict(parameters)
    )


def made_of_buffers(
    form: ak.forms.Form,
    length: Any,
    buffers: Mapping[str, Callable[[], Any]],
    name: Callable[..., str],
    shape: Callable[[], tuple[int]],
    keep: Callable[[str, str], bool],
) -> ak.contents.Content:
    """Return what ``ak.from_buffers`` makes of a form, also where its length isn't known yet.

    ``length``: number of entries; ``UNKNOWN`` until ``shape`` is asked.
    ``name``: returns a buffer's name, called with ``form_key``, ``attribute`` and ``form``.
    ``shape``: returns the number of entries.
    """

    def buffer_name(part: ak.forms.Form, attribute: str) -> str:
        return name(form_key=part.form_key, attribute=attribute, form=part)

    return _reconstitute(
        form, length, buffers, buffer_name, _BACKEND, _BYTEORDER, False, shape, keep
    )


def virtual_buffer(
    buffer: Callable[[], Any],
    name: str,
    dtype: Any,
    length: Any,
    shape: Callable[[], tuple[int]],
    *,
    keep: bool,
) -> Any:
    """Return a buffer that is loaded when it is used, as ``ak.from_buffers`` makes it.

    ``length``: number of elements; ``UNKNOWN`` until ``shape`` is asked.
    It returns an array of shape ``(length,)``; using it raises TypeError where the buffer is
    shorter.
    """
    counts: list[tuple[int]] = []

    def once() -> tuple[int]:
        if not counts:
            counts.append(shape())
        return counts[0]

    def load() -> Any:
        (count,) = once()
        array = np.asarray(buffer()).view(dtype).reshape(-1)
        if array.size < count:
            raise TypeError(f"size of array ({array.size}) is less than size of form ({count})")
        return array[:count]

    load.__awkward_raw_generator__ = buffer  # type: ignore[attr-defined]
    return _VirtualNDArray(
        _BACKEND.nplike, (length,), dtype, load, once, name, __enable_caching__=keep
    )
