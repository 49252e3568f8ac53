"""TTree baskets of plain numbers, read without an object for each.

uproot makes several Python objects per basket and copies its data twice;
NanoAOD has a hundred baskets per cluster that an analysis wants. Here a
basket's key is checked, its blocks are decompressed by libraries that release
the interpreter lock into memory that each thread uses again, and the
big-endian numbers are written once, into their place in the column. What is
not a plain number (strings, vectors, structures) is left to uproot. Layout:
ROOT's TFile documentation ("TKey", "TBasket") and uproot's models, which the
tests compare with.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import uproot
from numpy.typing import NDArray

from hepcache.io.memory import page_pool
from hepcache.io.root_blocks import decompress_into
from hepcache.io.threads import scratch

_KEY = struct.Struct(">ihiIhh")
_SEEKS_32, _SEEKS_64 = 8, 16
_TAIL = struct.Struct(">Hiiii")
_KEPT_BYTES = 16 << 20
HEAD_BYTES = 512
"""Enough of a basket to know how many numbers it has, if its names are not very long."""

Values: TypeAlias = NDArray[Any]


class BasketError(ValueError):
    """A basket is not what the tree says stands at its place."""

    def __init__(self, basket: Basket, problem: str) -> None:
        self.basket, self.problem = basket, problem
        super().__init__(basket, problem)

    def __str__(self) -> str:
        return f"basket of {self.basket.branch!r} at {self.basket.seek}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Basket:
    """Where a basket of so many entries stands in the file."""

    branch: str
    seek: int
    nbytes: int
    entries: int


class _Key(NamedTuple):
    """What stands before a basket's data, and its trailing numbers: all checked."""

    length: int
    plain_bytes: int
    number_bytes: int


def decode(basket: Basket, raw: memoryview, dtype: np.dtype[Any], out: Values) -> None:
    """Write the numbers of a basket where they belong.

    ``raw``: its ``nbytes`` bytes.
    ``dtype``: of the numbers as they are stored.
    ``out``: shape ``(n_items,)``, native byte order; the lists of a jagged branch stand one after
    the other.
    Raises ``BasketError``: it is damaged, another one, or has not as many numbers; what is in
    ``out`` then has no meaning.
    """
    try:
        numbers = _numbers(basket, raw, dtype)
    except (struct.error, IndexError, ValueError, MemoryError) as error:
        raise BasketError(basket, str(error)) from error
    if len(numbers) != len(out):
        problem = f"{len(numbers)} numbers where {len(out)} are expected"
        raise BasketError(basket, problem)
    out[:] = numbers


def _numbers(basket: Basket, raw: memoryview, dtype: np.dtype[Any]) -> Values:
    """Return the numbers of a basket as they are stored, until this thread asks again."""
    key = _key(basket, raw)
    payload = raw[key.length : basket.nbytes]
    if len(payload) != key.plain_bytes:
        plain = scratch(key.plain_bytes, _KEPT_BYTES)
        decompress_into(payload, plain)
        payload = plain.data
    # Behind the numbers stand the entry offsets, which the counter makes needless.
    return np.frombuffer(payload[: key.number_bytes], dtype)


def item_count(basket: Basket, head: memoryview, dtype: np.dtype[Any]) -> int:
    """Return how many numbers a basket has.

    ``head``: its first bytes; :data:`HEAD_BYTES` are nearly always enough.
    Raises ``BasketError``: they are not enough, or not what they should be.
    """
    try:
        key = _key(basket, head)
    except (struct.error, IndexError, ValueError) as error:
        raise BasketError(basket, str(error)) from error
    if key.number_bytes % dtype.itemsize:
        raise BasketError(basket, f"{key.number_bytes} bytes are no whole number of {dtype}")
    return key.number_bytes // dtype.itemsize


def _key(basket: Basket, raw: memoryview) -> _Key:
    nbytes, version, object_length, _, key_length, _ = _KEY.unpack_from(raw)
    position = _KEY.size + (_SEEKS_64 if version > 1000 else _SEEKS_32)
    class_name, position = _string(raw, position)
    branch, position = _string(raw, position)
    *_, entries, last = _TAIL.unpack_from(raw, max(key_length - _TAIL.size - 1, position))
    found = (class_name, branch, nbytes, entries)
    expected = (b"TBasket", basket.branch.encode(), basket.nbytes, basket.entries)
    if found != expected:
        raise ValueError(f"expected {expected}, found {found}")
    number_bytes = last - key_length
    if not 0 <= number_bytes <= object_length or key_length > nbytes:
        raise ValueError(
            f"a key of {key_length} bytes, {object_length} of data and numbers up to {last} "
            "contradict one another"
        )
    return _Key(key_length, object_length, number_bytes)


def _string(raw: memoryview, position: int) -> tuple[bytes, int]:
    length = raw[position]
    position += 1
    if length == 255:
        (length,) = struct.unpack_from(">i", raw, position)
        position += 4
    return bytes(raw[position : position + length]), position + length


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read a column of plain numbers.

    ``baskets``: in order of entries.
    ``flat``: whether an entry is one number; else lists, and whole baskets only.
    """

    baskets: tuple[Basket, ...]
    dtype: np.dtype[Any]
    native: np.dtype[Any]
    low: int
    high: int
    flat: bool


class Assembly:
    """A column that is put together as its baskets come, in any order and by any threads."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._counts: list[int | None] = [
            basket.entries if plan.flat else None for basket in plan.baskets
        ]
        # Those that came before it was known how much stands in front of them.
        self._loose: dict[int, Values] = {}
        self._starts: list[int] = []
        self._out: Values | None = None
        self._lock = threading.Lock()

    def note_count(self, number: int, count: int) -> None:
        """Note how many numbers a basket has, before it comes."""
        self._counts[number] = count

    @property
    def missing_counts(self) -> list[int]:
        """Positions of baskets of which it is not known how many numbers they have."""
        return [number for number, count in enumerate(self._counts) if count is None]

    def decode(self, number: int, raw: memoryview) -> None:
        """Take up a basket; several threads may do so at once.

        Raises ``BasketError``: it is damaged.
        """
        basket, plan = self.plan.baskets[number], self.plan
        with self._lock:
            if self._counts[number] is None:
                self._counts[number] = item_count(basket, raw, plan.dtype)
            self._begin()
            if self._out is not None:
                out = self._out[self._starts[number] : self._starts[number + 1]]
            else:
                count = self._counts[number] or 0
                out = self._loose[number] = page_pool().empty(count, plan.native)
        decode(basket, raw, plan.dtype, out)

    def result(self) -> Values:
        """Return the column's numbers in native byte order, when all baskets have come."""
        self._begin()
        if self._out is None:
            raise ValueError("baskets are missing")
        for number, values in self._loose.items():
            self._out[self._starts[number] : self._starts[number + 1]] = values
        self._loose.clear()
        return self._out[self.plan.low : self.plan.high] if self.plan.flat else self._out

    def _begin(self) -> None:
        """Make room for the numbers as soon as it is known how many there are."""
        if self._out is None and None not in self._counts:
            counts = [count or 0 for count in self._counts]
            self._starts = [0, *accumulate(counts)]
            try:
                self._out = page_pool().empty(self._starts[-1], self.plan.native)
            except (MemoryError, OSError) as error:
                basket = self.plan.baskets[counts.index(max(counts))]
                problem = f"there is no memory for its {max(counts)} numbers"
                raise BasketError(basket, problem) from error


def plan(branch: Any, start: int, stop: int) -> Plan | None:
    """Return how to read a branch directly, or ``None`` where uproot has to."""
    interpretation = getattr(branch, "interpretation", None)
    flat = isinstance(interpretation, uproot.AsDtype)
    number = interpretation if flat else counted_content(branch)
    if number is None or not _plain(number) or start == stop or branch.embedded_baskets:
        return None
    offsets = branch.entry_offsets
    first, last = _basket_range(offsets, start, stop)
    low, high = start - offsets[first], stop - offsets[first]
    if not flat and (low, offsets[last]) != (0, stop):
        # Lists can only be cut with their counts; uproot has them at hand.
        return None
    baskets = _baskets(branch, first, last)
    return Plan(baskets, number.from_dtype, number.to_dtype, low, high, flat)


def stored(branch: Any, start: int, stop: int) -> tuple[Basket, ...]:
    """Return the baskets of a branch, and of those below it, that hold an entry range."""
    found: list[Basket] = []
    for holder in (branch, *getattr(branch, "recursive_branches", ())):
        if start < stop and holder.num_baskets > len(holder.embedded_baskets):
            first, last = _basket_range(holder.entry_offsets, start, stop)
            found += _baskets(holder, first, min(last, len(holder.member("fBasketSeek"))))
    return tuple(basket for basket in found if basket.nbytes > 0)


def _basket_range(offsets: Sequence[int], start: int, stop: int) -> tuple[int, int]:
    return bisect_right(offsets, start) - 1, bisect_left(offsets, stop)


def _baskets(branch: Any, first: int, last: int) -> tuple[Basket, ...]:
    offsets = branch.entry_offsets
    seeks, sizes = branch.member("fBasketSeek"), branch.member("fBasketBytes")
    return tuple(
        Basket(branch.name, int(seeks[i]), int(sizes[i]), offsets[i + 1] - offsets[i])
        for i in range(first, last)
    )


def counted_content(branch: Any) -> Any:
    """Return the interpretation of a list branch's items, if another branch counts them."""
    interpretation = getattr(branch, "interpretation", None)
    if not isinstance(interpretation, uproot.AsJagged) or interpretation.header_bytes:
        return None
    content = interpretation.content
    if not isinstance(content, uproot.AsDtype) or not _plain(content):
        return None
    lengths = branch.count_branch
    if lengths is None or not isinstance(lengths.interpretation, uproot.AsDtype):
        return None
    # A leaf of fixed-size arrays in lists has more items than its counter says.
    return content if branch.member("fLeaves")[0].member("fLen") == 1 else None


def counter_of(branch: Any) -> str | None:
    """Return the name of the branch that counts the items of a branch's lists."""
    return str(branch.count_branch.name) if counted_content(branch) is not None else None


def _plain(number: Any) -> bool:
    return (
        number.from_dtype.names is None
        and not number.inner_shape
        and number.from_dtype.shape == ()
        and number.from_dtype.kind in "biuf"
    )
