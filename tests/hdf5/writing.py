"""Holds a file open for writing, as a job does, until it is told to close it."""

from __future__ import annotations

import sys
from typing import Any

import h5py
import numpy as np


def main(path: str, how: str) -> None:
    """Write 10 rows, and 10 more that may not be in the file before it is closed."""
    latest = how == "swmr"
    with h5py.File(path, "w", libver="latest" if latest else None) as file:
        options: dict[str, Any] = {"maxshape": (None, 1), "chunks": (4, 1), "compression": "gzip"}
        made = file.create_dataset("spill/evt", data=np.arange(10).reshape(-1, 1), **options)
        if latest:
            file.swmr_mode = True
        file.flush()
        made.resize(20, axis=0)
        made[10:] = np.arange(10, 20).reshape(-1, 1)
        print("open", flush=True)
        sys.stdin.readline()
    print("closed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
