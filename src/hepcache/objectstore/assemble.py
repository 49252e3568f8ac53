"""Columns to awkward arrays: the buffers that a field's form asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

__all__ = ["column_numbers", "layouts"]

_Values = NDArray[Any]
_PREFIX = "column-"


def column_numbers(form: ak.forms.Form) -> list[int]:
    """Return the columns that a form is made of, each once."""
    return list(dict.fromkeys(_number(key) for key in _keys(form)))


def layouts(
    forms: Sequence[ak.forms.Form], columns: Mapping[int, _Values], length: int
) -> list[ak.contents.Content]:
    """Return the arrays of fields.

    Parameters
    ----------
    forms
        Their forms, whose keys name columns.
    columns
        Columns by number; offsets have a 0 before the first.
    length
        Number of entries.
    """
    plain = {number: _plain(form, columns) for number, form in enumerate(forms)}
    # All others at once: each of awkward's calls costs as much as some pages.
    others = [form for number, form in enumerate(forms) if plain[number] is None]
    buffers: dict[str, _Values] = {}
    for form in others:
        for key in _keys(form):
            buffers |= _buffers(key, columns[_number(key)])
    record = ak.forms.RecordForm(others, None)
    made = ak.from_buffers(record, length, buffers, highlevel=False).contents if others else []
    left = iter(made)
    return [
        next(left) if values is None else ak.contents.NumpyArray(values[:length])
        for values in plain.values()
    ]


def _plain(form: ak.forms.Form, columns: Mapping[int, _Values]) -> _Values | None:
    """Return the column that a field consists of, if it is no more than that."""
    if not isinstance(form, ak.forms.NumpyForm) or form.parameters or form.inner_shape:
        return None
    number = str(form.form_key).removeprefix(_PREFIX)
    values = columns[int(number)] if number.isdecimal() else None
    return values if values is not None and values.dtype == form.primitive else None


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
