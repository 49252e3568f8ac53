"""Events that the tests of this room write and read."""

from __future__ import annotations

import awkward as ak
import numpy as np

ENTRIES = 3000


def events(seed: int, entries: int = ENTRIES) -> ak.Array:
    draw = np.random.default_rng(seed)
    counts = draw.integers(0, 4, entries)
    return ak.Array(
        {
            "run": draw.integers(0, 9, entries),
            "met": draw.normal(size=entries).astype("f4"),
            "pt": ak.unflatten(draw.exponential(size=counts.sum()), counts),
            "flag": draw.random(entries) < 0.5,
            "name": [f"event {number}" for number in range(entries)],
        }
    )
