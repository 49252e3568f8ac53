"""Columns to awkward arrays: the buffers that a field's form asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

__all__ = ["column_numbers", "layout"]

_Values = NDArray[Any]
_PREFIX = "column-"


def column_numbers(form: ak.forms.Form) -> list[int]:
    """Return the columns that a form is made of, each once."""
    return list(dict.fromkeys(_number(key) for key in _keys(form)))


def layout(
    form: ak.forms.Form, columns: Mapping[int, _Values], length: int
) -> ak.contents.Content:
    """Return a field's array.

    Parameters
    ----------
    form
        Its form, whose keys name columns.
    columns
        Columns by number; offsets have a 0 before the first.
    length
        Number of entries.
    """
    buffers: dict[str, _Values] = {}
    for key in _keys(form):
        buffers |= _buffers(key, columns[_number(key)])
    return ak.from_buffers(form, length, buffers, highlevel=False)


def _keys(form: ak.forms.Form) -> Iterator[str]:
    key = form.form_key
    if key is not None and key.startswith(_PREFIX):
        yield key
    for inner in getattr(form, "contents", ()):
        yield from _keys(inner)
    inner = getattr(form, "content", None)
    if isinstance(inner, ak.forms.Form):
        yield from _keys(inner)


def _number(key: str) -> int:
    return int(key.removeprefix(_PREFIX).partition("-")[0])


def _buffers(key: str, values: _Values) -> dict[str, _Values]:
    if key.endswith("-cardinality"):
        return {f"{key}-data": np.diff(values)}
    if key.endswith("-optional"):
        # Lists of no or one item: the item's place, or -1.
        there = np.diff(values) > 0
        return {f"{key}-index": np.where(there, values[:-1], -1).astype(values.dtype)}
    if values.dtype.names is not None:
        tags = values["tag"].astype(np.int8)
        return {
            f"{key}-tags": tags,
            f"{key}-index": np.where(tags == 0, 0, values["index"]),
            "nones-index": np.array([-1], np.int64),
        }
    return {f"{key}-data": values, f"{key}-offsets": values}
