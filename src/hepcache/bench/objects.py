"""Ntuples in object stores: against the store's own limit, and against uproot."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult

__all__ = ["bench", "interleaved"]

_COLUMNS, _READ = 64, 10
_STEP = 16  # of the numbers' size: as precise as a detector, so that they can be compressed


def bench(
    *,
    quick: bool,
    out: Path | None,
    s3: Annotated[
        str | None,
        typer.Option(envvar="HEPCACHE_BENCH_S3", help="ntpl+s3+http:// place to write to."),
    ] = None,
    rados: Annotated[
        str | None,
        typer.Option(envvar="HEPCACHE_BENCH_RADOS", help="rados:// place to write to."),
    ] = None,
    megabytes: Annotated[int, typer.Option(help="Size of the sample before compression.")] = 0,
    rounds: Annotated[int, typer.Option(help="Interleaved runs of each reader.")] = 5,
) -> BenchResult:
    """Read 10 of 64 columns from each store, and scan page and cluster sizes.

    Parameters
    ----------
    quick
        A small sample and few sizes.
    out
        Where the plot of the scans goes, if it is given.
    s3, rados
        Stores that are running; what is written there is removed again.
    megabytes
        Size of the sample before compression.
    rounds
        Interleaved runs of each reader.
    """
    array = _sample((megabytes or (64 if quick else 512)) << 20)
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home:
        for name, uri in (("s3", s3), ("rados", rados)):
            if uri is None:
                note = f"not running: give --{name}, or set HEPCACHE_BENCH_{name.upper()}"
                rows.append({"case": name, "note": note})
                continue
            for compression, label in (("zstd", "zstd"), ("none", "plain")):
                progress.print(f"{name}, {label}")
                found = _against_raw(uri, array, compression, rounds)
                ratios[f"{name}_{label}_of_raw"] = found["raw_s"] / found["ours_s"]
                rows.append({"case": f"{name} {label}", **found})
        path = _rootfile(Path(home), array)
        if s3 is not None:
            progress.print("uproot over S3")
            found = _against_uproot_s3(s3, path, array, min(rounds, 3))
            ratios["uproot_s3"] = found["uproot_s"] / found["ours_s"]
            rows.append({"case": "uproot s3", **found})
        progress.print("uproot on a local file")
        found = _against_uproot(path, array, rounds)
        ratios["uproot_local"] = found["uproot_s"] / found["ours_s"]
        rows.append({"case": "uproot local", **found})
        stores = {"directory": f"ntpl+file://{home}/scan", "s3": s3, "rados": rados}
        for name, uri in stores.items():
            if uri is not None:
                progress.print(f"scan of {name}")
                rows += _scan(name, f"{uri.partition('?')[0]}-scan", uri, array, quick=quick)
    if out is not None:
        from hepcache.bench.objects_plot import plot_scans

        plot_scans([row for row in rows if row["case"] == "scan"], out / "objects.png")
    return BenchResult("objects", rows, ratios)


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


def _sample(nbytes: int) -> Any:
    import awkward as ak
    import numpy as np

    rng = np.random.default_rng(9)
    entries = nbytes // (4 * _COLUMNS)
    fields = {}
    for number in range(_COLUMNS):
        values = rng.normal(scale=1 + number, size=entries)
        fields[f"c{number:02}"] = (np.round(values * _STEP) / _STEP).astype(np.float32)
    return ak.Array(fields)


def _chosen(array: Any) -> list[str]:
    step = _COLUMNS // _READ
    return list(array.fields[::step][:_READ])


def _against_raw(uri: str, array: Any, compression: str, rounds: int) -> dict[str, Any]:
    """Return seconds of reading from a store, with and without decoding."""
    from hepcache.objectstore.assemble import column_numbers
    from hepcache.objectstore.background import run
    from hepcache.objectstore.ntuple import NTuple
    from hepcache.objectstore.reading import read_raw
    from hepcache.objectstore.sink import WriteOptions
    from hepcache.objectstore.store import open_store
    from hepcache.objectstore.writing import write_array

    place, _, query = uri.partition("?")
    store = open_store(f"{place}-{compression}" + (f"?{query}" if query else ""))
    try:
        began = time.perf_counter()
        write_array(store, "Events", array, WriteOptions(compression=compression))
        write_s = time.perf_counter() - began
        ntuple = NTuple(store)
        names = _chosen(array)
        _check_equal(ntuple.arrays(names), array, names)
        numbers = [n for name in names for n in column_numbers(ntuple.form(name)[0])]
        clusters = len(ntuple.metadata.clusters)
        stored = ntuple.stored_bytes(names, 0, ntuple.entries)

        def raw() -> None:
            run(read_raw(store, ntuple.metadata, numbers, 0, clusters, ntuple.options))

        seconds = interleaved({"raw": raw, "ours": lambda: ntuple.arrays(names)}, rounds)
        return {
            "raw_s": seconds["raw"],
            "ours_s": seconds["ours"],
            "write_s": write_s,
            "stored_bytes": stored,
            "decoded_bytes": 4 * len(array) * len(names),
            "raw_bytes_per_s": stored / seconds["raw"],
            "ours_bytes_per_s": stored / seconds["ours"],
        }
    finally:
        _remove(store)


def _rootfile(home: Path, array: Any) -> Path:
    """Write the sample as uproot writes an RNTuple, a page for each column of a cluster."""
    import uproot

    path = home / "sample.root"
    step = max(1, (16 << 20) // (4 * _COLUMNS))
    with uproot.recreate(path, compression=uproot.ZSTD(5)) as file:
        ntuple = file.mkrntuple("Events", array[:0])
        for start in range(0, len(array), step):
            ntuple.extend(array[start : start + step])
    return path


def _against_uproot(path: Path, array: Any, rounds: int) -> dict[str, Any]:
    import uproot

    from hepcache.objectstore.rootfile import open_in_file

    names = _chosen(array)

    def ours() -> Any:
        with open_in_file(str(path), "Events") as ntuple:
            return ntuple.arrays(names)

    def peer() -> Any:
        with uproot.open(path) as file:
            return file["Events"].arrays(filter_name=names)

    _check_equal(ours(), array, names)
    seconds = interleaved({"ours": ours, "uproot": peer}, rounds)
    return {"ours_s": seconds["ours"], "uproot_s": seconds["uproot"]}


def _against_uproot_s3(uri: str, path: Path, array: Any, rounds: int) -> dict[str, Any]:
    """Return seconds of reading the same columns from the same S3 service."""
    from urllib.parse import urlsplit

    import uproot

    from hepcache.objectstore.ntuple import NTuple
    from hepcache.objectstore.sink import WriteOptions
    from hepcache.objectstore.store import open_store
    from hepcache.objectstore.writing import write_array

    parts = urlsplit(uri)
    names = _chosen(array)
    endpoint = f"{parts.scheme.rpartition('+')[2]}://{parts.netloc}"
    options = {
        "key": os.environ.get("AWS_ACCESS_KEY_ID"),
        "secret": os.environ.get("AWS_SECRET_ACCESS_KEY"),
        "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
    }
    whole, store = open_store(f"{uri}-file"), open_store(f"{uri}-peer")
    try:
        whole.put("", path.read_bytes())
        write_array(store, "Events", array, WriteOptions(compression="zstd"))

        def ours() -> Any:
            return NTuple(store).arrays(names)

        def peer() -> Any:
            place = f"s3://{parts.path.strip('/')}-file"
            with uproot.open({place: None}, **options) as file:
                return file["Events"].arrays(filter_name=names)

        _check_equal(ours(), array, names)
        seconds = interleaved({"ours": ours, "uproot": peer}, rounds)
    finally:
        _remove(whole)
        _remove(store)
    return {"ours_s": seconds["ours"], "uproot_s": seconds["uproot"]}


def _scan(name: str, place: str, uri: str, array: Any, *, quick: bool) -> list[dict[str, Any]]:
    """Return throughput of writing and reading against page and cluster size."""
    from hepcache.objectstore.ntuple import NTuple
    from hepcache.objectstore.objects import MAPPINGS
    from hepcache.objectstore.sink import WriteOptions
    from hepcache.objectstore.store import open_store
    from hepcache.objectstore.writing import write_array

    part = array[: len(array) // 4]
    names = _chosen(part)
    query = uri.partition("?")[2]
    pages = [64 << 10, 1 << 20] if quick else [64 << 10, 256 << 10, 1 << 20, 4 << 20]
    clusters = [16 << 20] if quick else [8 << 20, 32 << 20, 128 << 20]
    cases = [("page", one, clusters[-1]) for one in pages]
    cases += [("cluster", pages[-1], one) for one in clusters if one != clusters[-1]]
    rows = []
    for mapping in MAPPINGS:
        for compression in ("zstd", "none"):
            options = WriteOptions(mapping=mapping, compression=compression)
            for scanned, page_bytes, cluster_bytes in cases:
                store = open_store(place + (f"?{query}" if query else ""))
                how = replace(options, page_bytes=page_bytes, cluster_bytes=cluster_bytes)
                began = time.perf_counter()
                write_array(store, "Events", part, how)
                write_s = time.perf_counter() - began
                ntuple = NTuple(store)
                read_s = interleaved({"read": partial(ntuple.arrays, names)}, 1)["read"]
                rows.append({
                    "case": "scan", "store": name, "mapping": mapping, "compression": compression,
                    "scanned": scanned, "page_bytes": page_bytes, "cluster_bytes": cluster_bytes,
                    "write_bytes_per_s": 4 * len(part) * _COLUMNS / write_s,
                    "read_bytes_per_s": 4 * len(part) * len(names) / read_s,
                })  # fmt: skip
                _remove(store)
    return rows


def _check_equal(found: Any, array: Any, names: Sequence[str]) -> None:
    import numpy as np

    for name in names:
        if np.asarray(found[name]).tobytes() != np.asarray(array[name]).tobytes():
            raise RuntimeError(f"column {name} was not read as it was written")


def _remove(store: Any) -> None:
    store.delete([name for prefix in (".pages/", "") for name, _ in store.list(prefix)])
    store.close()
