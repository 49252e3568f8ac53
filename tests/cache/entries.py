"""What tests of the cache share."""

from __future__ import annotations

from hepcache.cache import Entry


def entries_equal(entry: Entry, other: Entry) -> bool:
    """Tell whether two entries hold the same bytes, types and shapes; NaNs count by their bits."""
    described = [
        (one.meta, [(b.dtype.str, b.shape, b.tobytes()) for b in one.buffers])
        for one in (entry, other)
    ]
    return described[0] == described[1]
