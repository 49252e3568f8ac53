"""A decoded column of an entry range, and the form in which the cache keeps it.

Three kinds cover everything. *Flat*: one value per entry. *Counted*: lists
whose lengths another column of the tree holds (``nJet`` for ``Jet_pt``), so
that only the content is kept and thirty columns share one set of offsets.
*Nested*: anything else, as awkward buffers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.cache.model import Entry

__all__ = [
    "Column", "Counted", "Flat", "Nested", "from_entry", "from_layout", "joined", "to_entry",
]  # fmt: skip

Values: TypeAlias = NDArray[Any]
Offsets: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flat:
    """One value per entry.

    Attributes
    ----------
    values
        Shape ``(n_entries,)``.
    entry
        What the cache holds of it, if it came from there.
    """

    values: Values
    entry: Entry | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        return int(self.values.nbytes)

    def digest(self) -> tuple[str, bytes]:
        """Return the type of the values and a hash of them: equal ones have the same."""
        entry = self.entry or Entry(b"", (self.values,))
        return self.values.dtype.str, entry.digests[0]


@dataclass(frozen=True, slots=True)
class Counted:
    """Lists whose lengths are another column's values.

    Attributes
    ----------
    length
        Number of entries.
    content
        Shape ``(n_items,)``: the items of all lists, one after the other.
    counter
        Name of the column of lengths.
    """

    length: int
    content: Values
    counter: str

    def __len__(self) -> int:
        return self.length

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        return int(self.content.nbytes)


@dataclass(frozen=True, slots=True)
class Nested:
    """Any other structure.

    Attributes
    ----------
    layout
        Awkward layout of length ``n_entries``.
    """

    layout: ak.contents.Content

    def __len__(self) -> int:
        return int(self.layout.length)

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        return int(self.layout.nbytes)


Column: TypeAlias = Flat | Counted | Nested


def from_layout(layout: ak.contents.Content, counter: str | None) -> Column:
    """Return a layout as a column.

    Parameters
    ----------
    layout
        What was read.
    counter
        The column of the lengths of its lists, if it is one of lists of numbers.
    """
    if counter is not None and isinstance(layout, ak.contents.ListOffsetArray):
        low, high = layout.offsets[0], layout.offsets[-1]
        return Counted(int(layout.length), np.asarray(layout.content.data[low:high]), counter)
    plain = isinstance(layout, ak.contents.NumpyArray) and layout.data.ndim == 1
    return Flat(layout.data) if plain and not layout.parameters else Nested(layout)


def to_entry(column: Column) -> Entry:
    """Return what the cache keeps of a column.

    Parameters
    ----------
    column
        A column of one whole segment.

    Returns
    -------
    Entry
        JSON in ``meta``, numpy arrays in ``buffers``; nothing is pickled.
    """
    meta: dict[str, Any]
    buffers: tuple[Values, ...]
    if isinstance(column, Flat):
        meta, buffers = {"kind": "flat"}, (column.values,)
    elif isinstance(column, Counted):
        meta = {"kind": "counted", "length": column.length, "counter": column.counter}
        buffers = (column.content,)
    else:
        form, length, container = ak.to_buffers(ak.to_packed(column.layout, highlevel=False))
        keys = list(container)
        meta = {"kind": "nested", "length": length, "form": form.to_dict(), "keys": keys}
        buffers = tuple(np.ascontiguousarray(container[key]) for key in keys)
    return Entry(json.dumps(meta, separators=(",", ":")).encode(), buffers)


def from_entry(entry: Entry) -> Column:
    """Return the column that :func:`to_entry` was given, without copying.

    Parameters
    ----------
    entry
        What the cache held.

    Raises
    ------
    ValueError
        The entry was not written by :func:`to_entry`.
    """
    meta = _parsed(entry.meta)
    kind = meta["kind"]
    if kind == "flat":
        return Flat(entry.buffers[0], entry)
    if kind == "counted":
        return Counted(meta["length"], entry.buffers[0], meta["counter"])
    if kind != "nested":
        raise ValueError(f"unknown kind of column {kind!r}")
    container = dict(zip(meta["keys"], entry.buffers, strict=True))
    form = ak.forms.from_dict(meta["form"])
    return Nested(ak.from_buffers(form, meta["length"], container, highlevel=False))


@lru_cache(maxsize=4096)
def _parsed(meta: bytes) -> dict[str, Any]:
    # All columns of a collection have the same few bytes, in every cycle.
    parsed: dict[str, Any] = json.loads(meta)
    return parsed


def joined(arrays: Sequence[Values]) -> Values:
    """Return the arrays one after the other; a single one is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
