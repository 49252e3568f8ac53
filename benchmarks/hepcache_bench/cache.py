"""The column cache against other stores of buffers, and its eviction against other policies."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult
from hepcache_bench.buffers import (
    BEYOND,
    FIRST_USE,
    HELD,
    KEPT,
    PEERS,
    PLAIN,
    Stores,
    sample_buffers,
    seconds,
    sizes,
    touch_all,
    touch_pages,
)
from hepcache_bench.replay import DEFAULT_POLICY, REPLAYS, hit_ratio
from hepcache_bench.traces import TRACES

__all__ = ["bench"]

_LEAST_HIT_RATIO = 0.01  # of LRU, so that a ratio over none at all stays a number
_STATES = {"": HELD, "beyond_memory_": BEYOND, "first_use_": FIRST_USE}
_WANTED = "wanted: best_peer_throughput of at least 2, plain_mmap_over_limit of at most 1.3"


def bench(*, quick: bool = False, out: Path | None = None) -> BenchResult:  # noqa: ARG001
    """Read buffers of 64 KiB to 4 MiB from hepcache's store and from its peers.

    The peers are coffea's BufferCache on zict.File (plain, memory-mapped, and with the
    codec of its documentation), diskcache, and plain memory maps of files, which check
    nothing and are the limit. All hold the same bytes, in the page cache, and are read in
    turns. Then eviction policies replay traces of column uses.
    """
    rows: list[dict[str, Any]] = []
    ratios = {**_throughput(rows, quick=quick), **_eviction(rows)}
    return BenchResult("cache", rows, ratios)


def _throughput(rows: list[dict[str, Any]], *, quick: bool) -> dict[str, float]:
    worst: dict[str, float] = {}
    runs = 9 if quick else 17
    for nbytes, number in sizes(quick=quick):
        progress.print(f"Reading {number} buffers of {nbytes >> 10} KiB, {runs} times")
        with tempfile.TemporaryDirectory(prefix="hepcache-buffers-") as directory:
            stores = Stores(Path(directory), sample_buffers(nbytes, number))
            looked = seconds(stores, stores.openers, lambda _: None, runs)
            read = seconds(stores, stores.openers, touch_pages, runs)
            used = seconds(stores, stores.openers, touch_all, runs)
        rows += [
            {
                "store": name,
                "buffer_bytes": nbytes,
                "look_s": looked[name] / number,
                "read_s": read[name] / number,
                "read_bytes_per_s": nbytes * number / read[name],
                "used_s": used[name] / number,
            }
            for name in stores.openers
        ]
        for state, ours in _STATES.items():
            for measure, taken in (("", read), ("used_", used)):
                best = min(taken[name] for name in PEERS)
                ratios = f"{state}{measure}"
                _note(worst, f"{ratios}best_peer_throughput", best / taken[ours], min)
                _note(worst, f"{ratios}plain_mmap_over_limit", taken[ours] / taken[PLAIN], max)
        _note(worst, "possible_used_best_peer_throughput", best / used[KEPT], min)
    progress.print(_WANTED)
    return worst


def _note(
    worst: dict[str, float], name: str, ratio: float, choose: Callable[[float, float], float]
) -> None:
    """Keep a ratio if it is the worst of all sizes."""
    worst[name] = choose(worst.get(name, ratio), ratio)


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
