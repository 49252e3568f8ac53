"""The column cache against other stores of buffers, and its eviction against other policies."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hepcache.bench.buffers import (
    OURS,
    PEERS,
    PLAIN,
    Stores,
    sample_buffers,
    seconds,
    sizes,
    touch_all,
    touch_pages,
)
from hepcache.bench.frame import progress
from hepcache.bench.replay import REPLAYS, hit_ratio
from hepcache.bench.result import BenchResult
from hepcache.bench.traces import TRACES
from hepcache.cache.eviction import DEFAULT_POLICY

__all__ = ["bench"]

_LEAST_HIT_RATIO = 0.01  # of LRU, so that a ratio over none at all stays a number


def bench(*, quick: bool = False, out: Path | None = None) -> BenchResult:  # noqa: ARG001
    """Read buffers of 64 KiB to 4 MiB from hepcache's store and from its peers.

    The peers are coffea's BufferCache on zict.File (plain, and with the codec of its
    documentation), diskcache, and plain memory maps of files, which check nothing and
    are the limit. All hold the same bytes, in the page cache, and are read in turns.
    Then eviction policies replay traces of column uses.
    """
    rows: list[dict[str, Any]] = []
    ratios = {**_throughput(rows, quick=quick), **_eviction(rows)}
    return BenchResult("cache", rows, ratios)


def _throughput(rows: list[dict[str, Any]], *, quick: bool) -> dict[str, float]:
    best_peer, over_plain = [], []
    runs = 7 if quick else 15
    for nbytes, number in sizes(quick=quick):
        progress.print(f"Reading {number} buffers of {nbytes >> 10} KiB, {runs} times")
        with tempfile.TemporaryDirectory(prefix="hepcache-buffers-") as directory:
            stores = Stores(Path(directory), sample_buffers(nbytes, number))
            again = {name: _constant(read) for name, read in stores.readers.items()}
            reached = seconds(stores, again, touch_pages, runs)
            summed = seconds(stores, again, touch_all, runs)
            first = seconds(stores, {OURS: stores.opened}, touch_pages, runs)[OURS]
        rows += [
            {
                "store": name,
                "buffer_bytes": nbytes,
                "first_read_s": first / number if name == OURS else None,
                "read_s": reached[name] / number,
                "read_bytes_per_s": nbytes * number / reached[name],
                "summed_s": summed[name] / number,
            }
            for name in stores.readers
        ]
        best_peer.append(min(reached[name] for name in PEERS) / reached[OURS])
        over_plain.append(reached[OURS] / reached[PLAIN])
    return {"best_peer_throughput": min(best_peer), "plain_mmap_over_limit": max(over_plain)}


def _constant(read: Any) -> Any:
    return lambda: read


def _eviction(rows: list[dict[str, Any]]) -> dict[str, float]:
    ratios = {}
    for name, make in TRACES.items():
        trace = make()
        progress.print(f"Replaying {len(trace.uses)} uses: {trace.summary}")
        found = {policy: hit_ratio(trace, policy) for policy in REPLAYS}
        rows += [
            {"store": f"policy {policy}", "trace": name, "hit_ratio": ratio}
            for policy, ratio in found.items()
        ]
        ratios[f"default_over_lru_{name}"] = found[DEFAULT_POLICY] / max(
            found["lru"], _LEAST_HIT_RATIO
        )
        ratios[f"default_over_possible_{name}"] = found[DEFAULT_POLICY] / found["belady"]
    return ratios
