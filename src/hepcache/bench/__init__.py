"""The published benchmark, and the frame in which all benchmarks run."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from hepcache.bench.frame import Benchmark

__all__ = ["BENCHMARKS"]

BENCHMARKS: dict[str, Benchmark] = {
    "cycles": Benchmark(
        partial(import_module, "hepcache.bench.cycles"),
        "The same 120 columns of the same events, cycle after cycle, caches cold first.",
    )
}
"""What ships with hepcache."""
