"""The first pass over local files beside its floor: the inflating of the same baskets.

The floor is what one thread takes to read the baskets of the wanted columns
from the page cache, and of the counters of their lists, and to inflate each
into memory that it uses again, over the number of cores. No reader that
inflates can be faster. In the same run: uproot alone, with a thread for each
core; coffea's own Runner on two workers; and hepcache on the same two, until
all that it has read is in the caches. And what a file costs before its first
basket, where its branch list is new and where another file had it; and a skim
of many columns and few events, written as an RNTuple (:mod:`hepcache_bench.skim`).
"""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hepcache.bench.frame import no_file_known, progress
from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.cache import ColumnCache
from hepcache.errors import ClusterError
from hepcache.formats.registry import examine, forget_sources, open_source
from hepcache.formats.source import TreeRef
from hepcache.process.forms import FormCache
from hepcache_bench.hot_memory import peak_bytes
from hepcache_bench.many_files import measure_files
from hepcache_bench.skim import measure_skim

__all__ = ["FirstPassPlan", "measure_first_passes"]

_OTHERS = ("lz4:4", "zlib:1", "lzma:1", "rntuple")
_WORKERS = 2


@dataclass(frozen=True, slots=True)
class FirstPassPlan:
    """What to read.

    Attributes
    ----------
    events, files, chunk
        The sample with all branches of NanoAOD: events in all, files, and events of a chunk.
    branches
        Whether its files have all branches, or those only that are read.
    other_events
        Events of the samples in other compressions, and as an RNTuple, which have those only.
    rounds
        Interleaved runs, of which medians are taken; of the other samples there is one.
    catalogued
        Files that nobody knows, of which each takes a megabyte.
    skim_columns, skim_events
        Columns and events of the skim; coffea takes four minutes for 1491 columns.
    """

    events: int = 400_000
    files: int = 4
    chunk: int = 100_000
    all_branches: bool = True
    other_events: int = 50_000
    rounds: int = 3
    catalogued: int = 1000
    skim_columns: int = 1000
    skim_events: int = 1000


@dataclass(slots=True)
class _Sample:
    """Files in one compression, and each reader's seconds and its workers' peak memory."""

    name: str
    paths: list[str]
    events: int
    chunk: int
    rounds: int
    walls: dict[str, list[float]] = field(default_factory=dict)
    peaks: dict[str, list[int]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)

    def median(self, reader: str) -> float:
        return median(self.walls[reader])


def measure_first_passes(
    plan: FirstPassPlan, scratch: Path
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return rows and ratios.

    ``cold_over_floor``: hepcache's wall time over the floor; its workers have imported all, and
    know no file. ``coffea_cold``: coffea's over hepcache's, both in workers that are new but for
    the imports. ``uproot_cold``: uproot's over hepcache's. ``ntuple_over_floor``: the first of
    these of the RNTuple. ``opening_new_s`` and
    ``opening_known_s``: seconds that a file costs before its first basket. ``coffea_skim``:
    coffea's over hepcache's of the skim. ``peak_memory``: the largest worker's with hepcache over
    that with coffea and its buffer cache. For the others see
    :func:`hepcache_bench.many_files.measure_files`.
    """
    samples = [_made(plan, "zstd:5", scratch)]
    samples += [_made(plan, name, scratch) for name in _OTHERS]
    for sample in samples:
        _measure(sample, scratch)
        if len(sample.outputs) != 1:
            found = ", ".join(sorted(sample.outputs))
            raise ClusterError(f"the runs over {sample.name} did not read the same: {found}")
    rows = [
        {
            "origin": f"local, {sample.name}",
            "reader": reader,
            "wall_s": sample.median(reader),
            "events_per_s": sample.events / sample.median(reader),
            **({"worker_peak_bytes": max(peaks)} if (peaks := sample.peaks.get(reader)) else {}),
        }
        for sample in samples
        for reader in sample.walls
    ]
    main = samples[0]
    openings = _opened(main, scratch)
    rows += [
        {"origin": "local, opening", "reader": f"{kind} branch list", "wall_s": wall_s}
        for kind, wall_s in openings.items()
    ]
    many, many_ratios = measure_files(plan.catalogued, scratch)
    rows += many
    skims = measure_skim(plan.skim_columns, plan.skim_events, scratch / "skim")
    rows += skims
    skim_s = {row["reader"]: row["wall_s"] for row in skims}
    ratios = {
        "coffea_skim": skim_s["coffea"] / skim_s["hepcache"],
        "cold_over_floor": main.median("hepcache") / main.median("floor"),
        "coffea_cold": main.median("coffea, new workers") / main.median("hepcache, new workers"),
        "uproot_cold": main.median("uproot") / main.median("hepcache"),
        "ntuple_over_floor": samples[-1].median("hepcache") / samples[-1].median("floor"),
        "peak_memory": max(main.peaks["hepcache, new workers"]) / max(main.peaks[_BUFFERED]),
        **many_ratios,
        **{f"opening_{kind}_s": wall_s for kind, wall_s in openings.items()},
    }
    return rows, ratios


def _made(plan: FirstPassPlan, name: str, scratch: Path) -> _Sample:
    from hepcache.samples.nanoaod import write_nanoaod

    main = name.startswith("zstd")
    events = plan.events if main else plan.other_events
    files = plan.files if main else 2
    progress.print(f"Making a sample of {events:,} events, {name}")
    chunk = plan.chunk if main else max(events // 4, 1)
    paths = write_nanoaod(
        scratch / f"first-{name.replace(':', '-')}",
        events=events,
        files=files,
        compression="zstd:5" if name == "rntuple" else name,
        cluster=max(chunk // 4, 1),
        branches=None if main and plan.all_branches else BENCHMARK_COLUMNS,
    )
    if name == "rntuple":
        paths = [_as_ntuple(path) for path in paths]
    return _Sample(name, [*map(os.fspath, paths)], events, chunk, plan.rounds if main else 1)


def _as_ntuple(path: Path) -> Path:
    """Write the columns of a tree as an RNTuple beside it."""
    import uproot

    target = path.with_suffix(".ntuple.root")
    with uproot.open(path) as source, uproot.recreate(target) as file:
        tree = source["Events"]
        arrays = tree.arrays(list(BENCHMARK_COLUMNS), how=dict)
        file.mkrntuple("Events", arrays)
    return target


def _measure(sample: _Sample, scratch: Path) -> None:
    from hepcache.clusters import LocalCluster

    with (
        LocalCluster(hosts=_WORKERS, cache_directory=scratch / f"{sample.name}-caches") as cluster,
        cluster.client() as client,
    ):
        client.run(_import_all)
        _run_ours(client, sample)  # what is done once per process is done
        _inflate(sample.paths)  # and the baskets' places are known
        for number in range(sample.rounds):
            progress.print(f"Round {number + 1}: {sample.name}")
            _note(sample, "floor", lambda: _inflate(sample.paths))
            _note(sample, "uproot", lambda: _run_uproot(sample.paths))
            cluster.clear_caches()
            _note(sample, "hepcache", lambda: _run_ours(client, sample), scratch)
            for reader, run in _NEW_WORKERS.items():
                cluster.clear_caches()
                client.restart()
                client.run(_import_all)
                _note(sample, reader, partial(run, client, sample), scratch)
                peaks = client.run(peak_bytes).values()
                sample.peaks.setdefault(reader, []).append(max(peaks))
    cores = os.cpu_count() or 1
    sample.walls["floor"] = [wall_s / cores for wall_s in sample.walls["floor"]]


def _note(
    sample: _Sample, reader: str, run: Callable[[], Any], scratch: Path | None = None
) -> None:
    """Run once, and note how long that took and what came of it."""
    if scratch is None:
        began = time.perf_counter()
        run()
        wall_s = time.perf_counter() - began
    else:
        where = scratch / f"{sample.name}-{reader}-{len(sample.walls.get(reader, ()))}"
        where.mkdir()
        with no_file_known(where):
            began = time.perf_counter()
            sample.outputs.add(str(run()))
            wall_s = time.perf_counter() - began
    sample.walls.setdefault(reader, []).append(wall_s)


def _opened(sample: _Sample, scratch: Path) -> dict[str, float]:
    """Return seconds from a file that nobody knows to where its columns' baskets are known.

    ``new``: nothing is known. ``known``: another file of the same branch list was opened before.
    """
    found: dict[str, list[float]] = {}
    for number in range(sample.rounds + 1):
        cache = ColumnCache(scratch / f"opening-{number}")
        forms = FormCache()
        forget_sources()
        gc.collect()
        for kind, path in zip(("new", "known"), sample.paths, strict=False):
            began = time.perf_counter()
            _open(path, sample.chunk, cache, forms)
            found.setdefault(kind, []).append(time.perf_counter() - began)
        cache.close()
    forget_sources()
    # The first round has imported what is imported once.
    return {kind: median(walls[1:]) for kind, walls in found.items()}


def _open(path: str, chunk: int, cache: ColumnCache, forms: FormCache) -> None:
    """Do what a client and a worker do with a file before they ask for its baskets."""
    from coffea.nanoevents import NanoAODSchema

    from hepcache.fileset.segments import segment_boundaries
    from hepcache.telemetry import ReadLog

    record, _ = examine(path, "Events", {})
    ref = TreeRef(
        path=record.path,
        tree=record.tree,
        uuid=record.uuid,
        tag=record.tag,
        validator=record.validator,
        boundaries=segment_boundaries(record.clusters, chunk),
        store=cache,
    )
    with warnings.catch_warnings():
        # Samples with few branches lack what cross-references lead to.
        warnings.simplefilter("ignore", RuntimeWarning)
        forms.form(ref, NanoAODSchema, cache, {}, ReadLog())
    open_source(ref).ranges(BENCHMARK_COLUMNS, 0, ref.boundaries[1])


def _inflate(paths: Sequence[str]) -> None:
    """Read the baskets or pages of the columns and of their counters, and inflate them."""
    from hepcache.io.root_blocks import decompress_into

    plain = np.empty(64 << 20, np.uint8)
    for path in paths:
        if path not in _places:
            _places[path] = list(_pages(path) if ".ntuple." in path else _baskets(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for seek, nbytes, key_bytes, plain_bytes in _places[path]:
                raw = memoryview(os.pread(descriptor, nbytes, seek))[key_bytes:]
                if len(raw) != plain_bytes:
                    decompress_into(raw, plain[:plain_bytes])
        finally:
            os.close(descriptor)


_Place = tuple[int, int, int, int]
_places: dict[str, list[_Place]] = {}


def _baskets(path: str) -> Iterator[_Place]:
    """Yield position, bytes, bytes of the key and inflated bytes of baskets."""
    import uproot

    from hepcache.formats.ttree.baskets import stored

    with uproot.open(path) as file:
        tree = file["Events"]
        branches = {name: tree[name] for name in BENCHMARK_COLUMNS}
        counters = [branch.count_branch for branch in branches.values()]
        branches |= {counter.name: counter for counter in counters if counter is not None}
        for branch in branches.values():
            for number, basket in enumerate(stored(branch, 0, branch.num_entries)):
                key = branch.basket_key(number)
                yield basket.seek, basket.nbytes, key.fKeylen, key.fObjlen


def _pages(path: str) -> Iterator[_Place]:
    """Yield the same of the pages of an ntuple, which have no keys."""
    from hepcache.rntuple import open_in_file
    from hepcache.rntuple.arrays import column_numbers

    ntuple = open_in_file(path, "Events")
    metadata = ntuple.metadata
    numbers = {
        alternative
        for name in BENCHMARK_COLUMNS
        for number in column_numbers(ntuple.form(name)[0])
        for alternative in metadata.schema.columns[number].alternatives
    }
    for cluster in metadata.clusters:
        for number in sorted(numbers):
            pages = cluster.columns[number] if number < len(cluster.columns) else None
            if pages is not None and not pages.suppressed:
                for seek, nbytes, elements in zip(
                    pages.offsets.tolist(),
                    pages.nbytes.tolist(),
                    pages.elements.tolist(),
                    strict=True,
                ):
                    plain_bytes = metadata.schema.columns[number].plain_bytes(elements)
                    yield seek, nbytes, 0, plain_bytes
    ntuple.store.close()


def _run_uproot(paths: Sequence[str]) -> int:
    import uproot

    values = 0
    with ThreadPoolExecutor(_WORKERS) as threads:
        for path in paths:
            with uproot.open(path) as file:
                arrays = file["Events"].arrays(
                    list(BENCHMARK_COLUMNS),
                    how=dict,
                    decompression_executor=threads,
                    interpretation_executor=threads,
                )
                values += len(arrays)
    return values


def _run_coffea(client: Any, sample: _Sample, **options: Any) -> Any:
    from coffea.processor import Runner

    from hepcache_bench.contenders import StockExecutor

    return _ran(Runner, StockExecutor(client=client, status=False), sample, **options)


def _run_buffered(client: Any, sample: _Sample) -> Any:
    """Run coffea with its cache of a worker's memory, in which columns stay for a next cycle."""
    return _run_coffea(client, sample, cachestrategy=_buffers)


_MEMORY: dict[Any, Any] = {}


def _buffers() -> Any:
    """Return coffea's cache over a worker's memory."""
    from coffea.nanoevents import BufferCache, NoCompressionCodec

    return BufferCache(_MEMORY, NoCompressionCodec())


def _run_ours(client: Any, sample: _Sample) -> Any:
    """Run until all is in the caches."""
    from hepcache.process import Executor, Runner

    output = _ran(Runner, Executor(client=client, status=False), sample)
    client.run(_flush)
    return output


def _ran(kind: Callable[..., Any], executor: Any, sample: _Sample, **options: Any) -> Any:
    from coffea.nanoevents import BaseSchema

    from hepcache.bench.reading import ReadColumns

    runner = kind(executor=executor, schema=BaseSchema, chunksize=sample.chunk, **options)
    files = {"sample": {"files": dict.fromkeys(sample.paths, "Events")}}
    return runner(files, ReadColumns(BENCHMARK_COLUMNS))


_BUFFERED = "coffea, its buffer cache"
_NEW_WORKERS: dict[str, Callable[[Any, _Sample], Any]] = {
    "coffea, new workers": _run_coffea,
    _BUFFERED: _run_buffered,
    "hepcache, new workers": _run_ours,
}


def _flush() -> None:
    from hepcache.process.worker_state import worker_state

    worker_state().flush()


def _import_all() -> None:
    import coffea.nanoevents
    import uproot

    import hepcache.process.dispatch

    assert uproot
    assert coffea.nanoevents
    assert hepcache.process.dispatch
