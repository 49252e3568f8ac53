"""A decoded column of an entry range, and the form in which the cache keeps it.

Four kinds cover everything. *Flat*: one value per entry. *Counted*: lists
whose lengths another column of the tree holds (``nJet`` for ``Jet_pt``), so
that only the content is kept and thirty columns share one set of offsets.
*Lists*: lists of numbers with lengths of their own, which are kept in few bytes,
and equal lengths share one set of offsets. *Nested*: anything else, as awkward buffers.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.cache.model import Entry

Values: TypeAlias = NDArray[Any]
Offsets: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flat:
    """One value per entry.

    ``values``: shape ``(n_entries,)``.
    ``entry``: what the cache holds of it, if it came from there.
    """

    values: Values
    entry: Entry | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        return int(self.values.nbytes)

    def part_nbytes(self, low: int, high: int) -> int:
        """Return the decoded bytes of entries ``low`` to ``high``."""
        return (high - low) * int(self.values.itemsize)

    def digest(self) -> tuple[str, bytes]:
        """Return the type of the values and a hash of them: equal ones have the same."""
        entry = self.entry or Entry(b"", (self.values,))
        return self.values.dtype.str, entry.digests[0]


@dataclass(frozen=True, slots=True)
class Counted:
    """Lists whose lengths are another column's values.

    ``length``: number of entries.
    ``content``: shape ``(n_items,)``: the items of all lists, one after the other.
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

    def part_nbytes(self, low: int, high: int) -> int:
        """Return the decoded bytes of items ``low`` to ``high``."""
        return (high - low) * int(self.content.itemsize)


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists of numbers, and their lengths.

    ``counts``: length of each list.
    ``content``: shape ``(n_items,)``: the items of all lists, one after the other.
    ``optional_lists``, ``optional_items``: whether lists, or items, could be missing by their
    type; none are.
    """

    counts: Flat
    content: Values
    optional_lists: bool = False
    optional_items: bool = False

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        return self.counts.nbytes + int(self.content.nbytes)

    def layout(self, offsets: Offsets) -> ak.contents.Content:
        """Return the lists between some offsets as an awkward layout."""
        content = ak.contents.NumpyArray(self.content[offsets[0] : offsets[-1]])
        lists = ak.contents.ListOffsetArray(
            ak.index.Index64(offsets - offsets[0] if offsets[0] else offsets),
            ak.contents.UnmaskedArray(content) if self.optional_items else content,
        )
        return ak.contents.UnmaskedArray(lists) if self.optional_lists else lists


@dataclass(frozen=True, slots=True)
class Nested:
    """Any other structure.

    ``layout``: Awkward layout of length ``n_entries``.
    """

    layout: ak.contents.Content

    def __len__(self) -> int:
        return int(self.layout.length)

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        return _nbytes(self.layout, 0, len(self))

    def part_nbytes(self, low: int, high: int) -> int:
        """Return the decoded bytes of entries ``low`` to ``high``."""
        return _nbytes(self.layout, low, high)


Column: TypeAlias = Flat | Counted | Lists | Nested


def _nbytes(layout: ak.contents.Content, low: int, high: int) -> int:
    """Return the bytes of a part of a layout, such that parts add up to the whole."""
    if isinstance(layout, ak.contents.NumpyArray):
        return int(layout.data[low:high].nbytes)
    if isinstance(layout, ak.contents.ListOffsetArray):
        offsets = layout.offsets.data
        own = (high - low) * offsets.itemsize
        return int(own + _nbytes(layout.content, int(offsets[low]), int(offsets[high])))
    if isinstance(layout, ak.contents.RegularArray):
        return _nbytes(layout.content, low * layout.size, high * layout.size)
    if isinstance(layout, ak.contents.RecordArray):
        return sum(_nbytes(content, low, high) for content in layout.contents)
    if isinstance(layout, ak.contents.UnmaskedArray):
        return _nbytes(layout.content, low, high)
    if isinstance(layout, ak.contents.ByteMaskedArray):
        return high - low + _nbytes(layout.content, low, high)
    if isinstance(layout, ak.contents.EmptyArray):
        return 0
    return int(ak.to_packed(layout[low:high], highlevel=False).nbytes)


def from_layout(layout: ak.contents.Content, counter: str | None) -> Column:
    """Return a layout as a column.

    ``counter``: the column of the lengths of its lists, if it is one of lists of numbers.
    """
    if counter is not None and isinstance(layout, ak.contents.ListOffsetArray):
        low, high = layout.offsets[0], layout.offsets[-1]
        return Counted(int(layout.length), np.asarray(layout.content.data[low:high]), counter)
    plain = isinstance(layout, ak.contents.NumpyArray) and layout.data.ndim == 1
    return Flat(layout.data) if plain and not layout.parameters else Nested(layout)


class MissingValuesError(ValueError):
    """There are missing values, and no number of their type that could stand for them."""


def numbers_of(layout: ak.contents.Content) -> tuple[Values, Offsets | None] | None:
    """Return numbers, or lists of them, as coffea has those of parquet files.

    Of what is missing coffea knows nothing: a missing list is an empty one, and a missing floating
    number is NaN.
    It returns the numbers, shape ``(n_items,)``, and the offsets of the lists, shape
    ``(n_entries + 1,)``, from 0, or ``None`` where there are none; ``None`` for all of a column of
    another structure.
    Raises ``MissingValuesError``: integers or booleans are missing.
    """
    missing: NDArray[np.bool_] | None = None
    content, offsets = layout, None
    if content.is_option and content.content.is_list:
        missing = np.asarray(content.mask_as_bool(valid_when=False))
        content = content.project()
    kinds = ak.contents.ListOffsetArray, ak.contents.ListArray
    if isinstance(content, kinds) and not content.parameters:
        lists = content.to_ListOffsetArray64(True)
        offsets = np.asarray(lists.offsets.data)
        content = lists.content[: int(offsets[-1])]
        if missing is not None and missing.any():
            counts = np.zeros(len(missing), dtype=np.int64)
            counts[~missing] = np.diff(offsets)
            offsets = np.zeros(len(missing) + 1, dtype=np.int64)
            np.cumsum(counts, out=offsets[1:])
    elif missing is not None:
        return None
    values = _present(content)
    return None if values is None else (values, offsets)


def _present(content: ak.contents.Content) -> Values | None:
    """Return numbers with NaN for those that are missing; ``None`` where they are no numbers."""
    found = content.content if content.is_option else content
    if not isinstance(found, ak.contents.NumpyArray) or found.data.ndim != 1 or found.parameters:
        return None
    if not content.is_option:
        return np.asarray(content.data)
    missing = np.asarray(content.mask_as_bool(valid_when=False))
    present = np.asarray(content.project().data)
    if not missing.any():
        return present
    if present.dtype.kind != "f":
        raise MissingValuesError(
            f"there are missing values, and no {present.dtype} stands for these in coffea's events"
        )
    values = np.full(len(missing), np.nan, dtype=present.dtype)
    values[~missing] = present
    return values


def lists_of(layout: ak.contents.Content) -> Lists | None:
    """Return lists of numbers of which none are missing; ``None`` for anything else."""
    lists = layout.content if isinstance(layout, ak.contents.UnmaskedArray) else layout
    if not isinstance(lists, ak.contents.ListOffsetArray) or lists.parameters or layout.parameters:
        return None
    optional_items = isinstance(lists.content, ak.contents.UnmaskedArray)
    items = lists.content.content if optional_items else lists.content
    plain = isinstance(items, ak.contents.NumpyArray) and items.data.ndim == 1
    if not plain or items.parameters or lists.content.parameters:
        return None
    offsets = np.asarray(lists.offsets.data)
    counts = np.diff(offsets)
    most = int(counts.max(initial=0))
    kind = np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.int64
    return Lists(
        Flat(counts.astype(kind)),
        np.asarray(items.data)[int(offsets[0]) : int(offsets[-1])],
        optional_lists=lists is not layout,
        optional_items=optional_items,
    )


def to_entry(column: Column) -> Entry:
    """Return what the cache keeps of a column.

    It returns JSON in ``meta``, numpy arrays in ``buffers``; nothing is pickled.
    """
    meta: dict[str, Any]
    buffers: tuple[Values, ...]
    if isinstance(column, Flat):
        meta, buffers = {"kind": "flat"}, (column.values,)
    elif isinstance(column, Counted):
        meta = {"kind": "counted", "length": column.length, "counter": column.counter}
        buffers = (column.content,)
    elif isinstance(column, Lists):
        optional = [column.optional_lists, column.optional_items]
        meta = {"kind": "lists", "optional": optional}
        buffers = (column.counts.values, column.content)
    else:
        form, length, container = ak.to_buffers(ak.to_packed(column.layout, highlevel=False))
        keys = list(container)
        meta = {"kind": "nested", "length": length, "form": form.to_dict(), "keys": keys}
        buffers = tuple(np.ascontiguousarray(container[key]) for key in keys)
    return Entry(json.dumps(meta, separators=(",", ":")).encode(), buffers)


def from_entry(entry: Entry) -> Column:
    """Return the column that :func:`to_entry` was given, without copying."""
    meta = _parsed(entry.meta)
    kind = meta["kind"]
    if kind == "flat":
        return Flat(entry.buffers[0], entry)
    if kind == "counted":
        return Counted(meta["length"], entry.buffers[0], meta["counter"])
    if kind == "lists":
        counts, content = entry.buffers
        return Lists(Flat(counts, entry), content, *meta["optional"])
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
    """Return the arrays one after the other, read-only; a single one is not copied."""
    if len(arrays) == 1:
        return arrays[0]
    found = np.concatenate(arrays)
    # As those of the cache: what is derived of columns would not know of a change.
    found.flags.writeable = False
    return found


class RunningTotals:
    """The offsets that columns of counts make; equal counts share them."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Offsets] = {}
        self._shared: dict[Hashable, Offsets] = {}

    def of(self, key: Hashable, counts: Flat) -> Offsets:
        """Return the offsets of a column.

        It returns an array of shape ``(n_entries + 1,)``, dtype ``int64``, from 0; read-only.
        """
        found = self._found.get(key)
        if found is None:
            # Some writers give every list of a collection a counter of its own.
            content = counts.digest()
            found = self._shared.get(content)
            if found is None:
                found = np.zeros(len(counts) + 1, dtype=np.int64)
                np.cumsum(counts.values, out=found[1:])
                found.flags.writeable = False
                self._shared[content] = found
            self._found[key] = found
        return found


def chained(parts: Sequence[Offsets]) -> Offsets:
    """Return the offsets of consecutive ranges as those of one, from 0.

    >>> chained([np.array([0, 2, 3]), np.array([5, 5, 9])])
    array([0, 2, 3, 3, 7])
    """
    if len(parts) == 1:
        return parts[0] - parts[0][0] if parts[0][0] else parts[0]
    out = np.zeros(sum(len(part) - 1 for part in parts) + 1, dtype=np.int64)
    place = 0
    for part in parts:
        end = place + len(part)
        out[place:end] = part + (out[place] - part[0])
        place = end - 1
    return out
