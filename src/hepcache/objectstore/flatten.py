"""Awkward arrays to the elements of an ntuple's columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError

__all__ = ["SWITCH", "flattened", "packed"]

SWITCH = np.dtype([("index", "<u8"), ("tag", "<u4")])
"""An element of a variant's column."""


def packed(array: Any) -> ak.contents.RecordArray:
    """Return an array of records in the few kinds of layout that an ntuple knows.

    Offsets begin at 0, options are indexes, nothing is there that no entry
    refers to.

    Parameters
    ----------
    array
        What ``ak.Array`` takes, with named fields.

    Raises
    ------
    ConfigurationError
        It has no fields.
    """
    layout = ak.to_layout(ak.Array(array) if isinstance(array, dict) else array)
    layout = ak.to_packed(ak.to_backend(layout, "cpu", highlevel=False), highlevel=False)
    plain = _plain(layout)
    if not isinstance(plain, ak.contents.RecordArray) or plain.is_tuple:
        raise ConfigurationError("array", "records with named fields", str(ak.type(layout)))
    return plain


def flattened(layout: ak.contents.Content) -> Iterator[NDArray[Any]]:
    """Yield the elements of each column of a packed layout, in the order of the header."""
    if isinstance(layout, ak.contents.NumpyArray):
        yield np.ascontiguousarray(layout.data)
    elif isinstance(layout, ak.contents.ListOffsetArray):
        yield np.ascontiguousarray(layout.offsets.data[1:], dtype=np.int64)
        yield from flattened(layout.content)
    elif isinstance(layout, ak.contents.IndexedOptionArray):
        # Like lists of no or one item.
        yield np.cumsum(layout.index.data >= 0, dtype=np.int64)
        yield from flattened(layout.content)
    elif isinstance(layout, ak.contents.UnionArray):
        switches = np.empty(layout.length, SWITCH)
        # Tag 0 means that there is no value.
        switches["index"], switches["tag"] = layout.index.data, layout.tags.data + 1
        yield switches
        for content in layout.contents:
            yield from flattened(content)
    elif isinstance(layout, ak.contents.RecordArray):
        for content in layout.contents:
            yield from flattened(content)
    else:
        yield from flattened(layout.content)


def _plain(layout: Any) -> Any:
    """Return a packed layout with every kind of node replaced that an ntuple doesn't know."""
    kind, parameters = ak.contents, layout.parameters
    if isinstance(layout, kind.ByteMaskedArray | kind.BitMaskedArray):
        return _plain(ak.to_packed(layout.to_IndexedOptionArray64(), highlevel=False))
    if isinstance(layout, kind.UnmaskedArray):
        return _plain(layout.content)
    if isinstance(layout, kind.IndexedArray):
        return _plain(layout.project())
    if isinstance(layout, kind.NumpyArray):
        return layout if layout.data.ndim == 1 else _plain(layout.to_RegularArray())
    if isinstance(layout, kind.ListArray | kind.ListOffsetArray):
        lists = layout.to_ListOffsetArray64(True)
        content = lists.content[: lists.offsets[-1]]
        return kind.ListOffsetArray(lists.offsets, _plain(content), parameters=parameters)
    if isinstance(layout, kind.IndexedOptionArray):
        index = np.asarray(layout.index.data, np.int64)
        return kind.IndexedOptionArray(
            ak.index.Index64(index), _plain(layout.content), parameters=parameters
        )
    if isinstance(layout, kind.RegularArray):
        return kind.RegularArray(
            _plain(layout.content), layout.size, layout.length, parameters=parameters
        )
    if isinstance(layout, kind.RecordArray):
        contents = [_plain(one[: layout.length]) for one in layout.contents]
        fields = None if layout.is_tuple else layout.fields
        return kind.RecordArray(contents, fields, layout.length, parameters=parameters)
    if isinstance(layout, kind.UnionArray):
        index = ak.index.Index64(np.asarray(layout.index.data, np.int64))
        contents = [_plain(one) for one in layout.contents]
        return kind.UnionArray(layout.tags, index, contents, parameters=parameters)
    return layout
