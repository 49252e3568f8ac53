"""The scans of page and cluster size, and what the measurements of object stores share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

__all__ = ["check_equal", "interleaved", "remove", "scanned"]


def interleaved(readers: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of readers that take turns, after a run that is not counted.

    Parameters
    ----------
    readers
        By name.
    rounds
        Runs of each.
    """
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for turn in range(rounds + 1):
        for name, read in readers.items():
            began = time.perf_counter()
            read()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(found) for name, found in seconds.items()}


def scanned(
    name: str, uri: str, array: Any, names: Sequence[str], *, quick: bool
) -> list[dict[str, Any]]:
    """Return throughput of writing and reading against page and cluster size.

    Parameters
    ----------
    name, uri
        The store; what is written to it is removed again.
    array
        What is written.
    names
        Columns that are read.
    quick
        Few sizes.

    Returns
    -------
    list of dict
        A row for each mapping, compression and pair of sizes, with
        decoded bytes per second.
    """
    from hepcache.objectstore import open_store
    from hepcache.rntuple import MAPPINGS, NTuple, WriteOptions, write_array

    place, _, query = uri.partition("?")
    decoded_bytes = {name: array[name].nbytes for name in array.fields}
    pages = [64 << 10, 1 << 20] if quick else [64 << 10, 512 << 10, 4 << 20]
    clusters = [16 << 20] if quick else [4 << 20, 16 << 20, 64 << 20]
    cases = [("page", one, clusters[-1]) for one in pages]
    cases += [("cluster", pages[-1], one) for one in clusters if one != clusters[-1]]
    rows = []
    for mapping in MAPPINGS:
        for compression in ("zstd", "none"):
            options = WriteOptions(mapping=mapping, compression=compression)
            for axis, page_bytes, cluster_bytes in cases:
                store = open_store(f"{place}-scan" + (f"?{query}" if query else ""))
                how = replace(options, page_bytes=page_bytes, cluster_bytes=cluster_bytes)
                began = time.perf_counter()
                write_array(store, "Events", array, how)
                write_s = time.perf_counter() - began
                ntuple = NTuple(store)
                read_s = interleaved({"read": partial(ntuple.arrays, names)}, 1)["read"]
                rows.append({
                    "case": "scan", "store": name, "mapping": mapping, "compression": compression,
                    "scanned": axis, "page_bytes": page_bytes, "cluster_bytes": cluster_bytes,
                    "write_bytes_per_s": sum(decoded_bytes.values()) / write_s,
                    "read_bytes_per_s": sum(decoded_bytes[name] for name in names) / read_s,
                })  # fmt: skip
                remove(store)
    return rows


def check_equal(found: Any, array: Any, names: Sequence[str]) -> None:
    """See that columns are what was written, bit by bit.

    Raises
    ------
    RuntimeError
        One is not.
    """
    import numpy as np

    for name in names:
        if np.asarray(found[name]).tobytes() != np.asarray(array[name]).tobytes():
            raise RuntimeError(f"column {name} was not read as it was written")


def remove(store: Any) -> None:
    """Remove what a store holds, and close it."""
    store.delete([name for prefix in (".pages/", "") for name, _ in store.list(prefix)])
    store.close()
