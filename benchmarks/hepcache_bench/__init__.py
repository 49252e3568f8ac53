"""Benchmarks of hepcache beside its peers, in the same run."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from hepcache.bench.frame import Benchmark

__all__ = ["BENCHMARKS"]

BENCHMARKS: dict[str, Benchmark] = {
    "cold": Benchmark(
        partial(import_module, "hepcache_bench.origins"),
        "The cold cycle from a disk, a shaped link, https and root://, against plain coffea.",
    ),
    "hot": Benchmark(
        partial(import_module, "hepcache_bench.hot"),
        "Chunks whose columns are cached, against coffea, its own cache, uproot and memory.",
    ),
    "parquet": Benchmark(
        partial(import_module, "hepcache_bench.parquet"),
        "Parquet files whose columns are cached, against coffea's later passes over them.",
    ),
    "reuse": Benchmark(
        partial(import_module, "hepcache_bench.reuse"),
        "Runs that find the results of their chunks, against runs on cached columns.",
    ),
    "analysis": Benchmark(
        partial(import_module, "hepcache_bench.analysis"),
        "A real analysis by coffea alone, and with columns, derived columns and results kept.",
    ),
    "cache": Benchmark(
        partial(import_module, "hepcache_bench.cache"),
        "The cache's store against other stores of buffers; eviction policies on traces.",
    ),
    "placement": Benchmark(
        partial(import_module, "hepcache_bench.placement"),
        "Chunks of unlike length on hosts of unlike speed, against other ways to spread them.",
    ),
    "neighbours": Benchmark(
        partial(import_module, "hepcache_bench.neighbours"),
        "A host with an empty cache, reading from another host's cache and from the origin.",
    ),
    "scale": Benchmark(
        partial(import_module, "hepcache_bench.scale"),
        "A thousand workers and many users, against stock Dask and coffea's executor.",
    ),
    "dashboard": Benchmark(
        partial(import_module, "hepcache_bench.dashboard"),
        "What the dashboard's page takes of the scheduler's core, against Dask's status page.",
    ),
    "simulation": Benchmark(
        partial(import_module, "hepcache_bench.simulation.command"),
        "The published cluster and larger ones, simulated with the real placement code.",
    ),
    "hdf5": Benchmark(
        partial(import_module, "hepcache_bench.hdf5"),
        "Concatenation of HDF5 tables against a plain h5py loop, and against its limit.",
    ),
    "eventstore": Benchmark(
        partial(import_module, "hepcache_bench.eventstore"),
        "The event store against the published figures and one value per product.",
    ),
    "selection": Benchmark(
        partial(import_module, "hepcache_bench.selection.command"),
        "A selection of neutrino candidates, from files and from event stores.",
    ),
    "objects": Benchmark(
        partial(import_module, "hepcache_bench.objects"),
        "Ntuples in object stores against the stores' own limit, and against uproot.",
    ),
}
"""Every comparison by name, in the order in which ``bench all`` runs them."""
