"""Which baskets hold an entry range of a branch, if they can be read directly."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import uproot
from numpy.typing import NDArray

from hepcache.columns.baskets import Basket, BasketError

__all__ = ["Plan", "counter_of", "plan", "stored"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read a column of plain numbers.

    Attributes
    ----------
    baskets
        In order of entries.
    dtype
        Type of one number on disk, big-endian.
    native
        Type of one number in memory.
    low, high
        Entries wanted, counted from the first basket's first entry.
    flat
        Whether an entry is one number; else lists, and whole baskets only.
    """

    baskets: tuple[Basket, ...]
    dtype: np.dtype[Any]
    native: np.dtype[Any]
    low: int
    high: int
    flat: bool

    def assembled(self, parts: Sequence[NDArray[Any] | None]) -> NDArray[Any]:
        """Return the column's numbers in native byte order.

        Parameters
        ----------
        parts
            The numbers of every basket, as they stand on disk.

        Raises
        ------
        BasketError
            A basket of a flat column holds another number of entries.
        """
        arrays = [part for part in parts if part is not None]
        if self.flat:
            for basket, array in zip(self.baskets, arrays, strict=True):
                if len(array) != basket.entries:
                    raise BasketError(
                        f"basket of {basket.branch!r} at {basket.seek}: {len(array)} numbers for "
                        f"{basket.entries} entries"
                    )
        out = np.empty(sum(map(len, arrays)), self.native)
        place = 0
        for array in arrays:
            out[place : place + len(array)] = array
            place += len(array)
        return out[self.low : self.high] if self.flat else out


def plan(branch: Any, start: int, stop: int) -> Plan | None:
    """Return how to read a branch directly, or ``None`` where uproot has to.

    Parameters
    ----------
    branch
        An uproot TBranch, or a field of an RNTuple.
    start, stop
        Entry range.
    """
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
    """Return the baskets of a branch, and of those below it, that hold an entry range.

    Parameters
    ----------
    branch
        An uproot TBranch.
    start, stop
        Entry range.
    """
    found: list[Basket] = []
    for one in (branch, *getattr(branch, "recursive_branches", ())):
        if start < stop and one.num_baskets > len(one.embedded_baskets):
            first, last = _basket_range(one.entry_offsets, start, stop)
            found += _baskets(one, first, min(last, len(one.member("fBasketSeek"))))
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
