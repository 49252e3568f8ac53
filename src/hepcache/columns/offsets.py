"""Where lists begin and end, made of how many items they have."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from hepcache.columns.column import Flat, Offsets

__all__ = ["RunningTotals", "chained"]


class RunningTotals:
    """The offsets that columns of counts make; equal counts share them."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Offsets] = {}
        self._shared: dict[Hashable, Offsets] = {}

    def of(self, key: Hashable, counts: Flat) -> Offsets:
        """Return the offsets of a column.

        Parameters
        ----------
        key
            The column's name, which always means the same column.
        counts
            Integers.

        Returns
        -------
        numpy.ndarray
            Shape ``(n_entries + 1,)``, dtype ``int64``, from 0; read-only.
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

    Parameters
    ----------
    parts
        Offsets of each range, from any number.

    Examples
    --------
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
