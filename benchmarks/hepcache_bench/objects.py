"""Ntuples in object stores: against the store's own limit, and against uproot."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult
from hepcache.errors import ClusterError
from hepcache_bench.objects_scan import check_equal, interleaved, remove, scanned

if TYPE_CHECKING:
    from hepcache.objectstore import Request, Store

__all__ = ["bench"]

_COLUMNS, _READ = 64, 10
_SCANNED = 16
_READERS = 8  # at once
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
        str | None, typer.Option(envvar="HEPCACHE_BENCH_RADOS", help="rados:// place to write to.")
    ] = None,
    start: Annotated[
        bool, typer.Option(help="Start versitygw and Ceph for it, where they are installed.")
    ] = True,
    megabytes: Annotated[int, typer.Option(help="Size of the sample before compression.")] = 0,
    rounds: Annotated[int, typer.Option(help="Interleaved runs of each reader.")] = 5,
) -> BenchResult:
    """Read 10 of 64 columns from each store, and scan page and cluster sizes."""
    array = _sample((megabytes or (64 if quick else 256)) << 20)
    few = _sample((megabytes or (16 if quick else 64)) << 20, _SCANNED)
    _warm_up(few)
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = {"s3": s3, "rados": rados}
        for name, uri in stores.items():
            if uri is None:
                stores[name], note = _started(name, stack) if start else (None, "")
                asked = f"give --{name}, or set HEPCACHE_BENCH_{name.upper()}"
                if stores[name] is None:
                    rows.append({"case": name, "note": f"not running: {note or asked}"})
        running = {name: uri for name, uri in stores.items() if uri is not None}
        for name, uri in running.items():
            for compression, label in (("zstd", "zstd"), ("none", "plain")):
                progress.print(f"{name}, {label}")
                found = _against_raw(uri, array, compression, rounds)
                ratios[f"{name}_{label}_of_raw"] = found["raw_s"] / found["ours_s"]
                together = found["together_s"]
                ratios[f"{name}_{label}_{_READERS}_readers_of_raw"] = (
                    found["together_raw_s"] / together
                )
                ratios[f"{name}_{label}_{_READERS}_readers_of_one"] = (
                    _READERS * found["ours_s"] / together
                )
                rows.append({"case": f"{name} {label}", **found})
        path = _rootfile(home, array)
        if "s3" in running:
            progress.print("uproot over S3")
            found = _against_uproot_s3(running["s3"], path, array, min(rounds, 3))
            ratios["uproot_s3"] = found["uproot_s"] / found["ours_s"]
            rows.append({"case": "uproot s3", **found})
        progress.print("uproot on a local file")
        found = _against_uproot(path, array, rounds)
        ratios["uproot_local"] = found["uproot_s"] / found["ours_s"]
        rows.append({"case": "uproot local", **found})
        for name, uri in {"directory": f"ntpl+file://{home}/scan", **running}.items():
            progress.print(f"scan of {name}")
            rows += scanned(name, uri, few, few.fields[::4], quick=quick)
    if out is not None:
        from hepcache_bench.objects_plot import plot_scans

        plot_scans([row for row in rows if row["case"] == "scan"], out / "objects.png")
    return BenchResult("objects", rows, ratios)


def _started(name: str, stack: ExitStack) -> tuple[str | None, str]:
    """Return the URI of a store that runs until the stack ends, or why there is none."""
    from hepcache_bench import object_servers as servers

    missing = servers.missing_for_s3() if name == "s3" else servers.missing_for_ceph()
    if missing is not None:
        return None, f"{missing}, or give --{name}"
    progress.print(f"starting {name}")
    try:
        running = servers.gateway_running() if name == "s3" else servers.ceph_running()
        return stack.enter_context(running), ""
    except ClusterError as error:
        return None, str(error)


def _warm_up(array: Any) -> None:
    """Load and compile what the first ntuple of a process needs."""
    from hepcache.rntuple import open_ntuple, write_array

    uri = "ntpl+mem://bench/warm-up"
    write_array(uri, "Events", array[:1000])
    with open_ntuple(uri) as ntuple:
        ntuple.arrays()
        remove(ntuple.store)


def _sample(nbytes: int, columns: int = _COLUMNS) -> Any:
    import awkward as ak
    import numpy as np

    rng = np.random.default_rng(9)
    entries = nbytes // (4 * columns)
    fields = {}
    for number in range(columns):
        values = rng.normal(scale=1 + number, size=entries)
        fields[f"c{number:02}"] = (np.round(values * _STEP) / _STEP).astype(np.float32)
    return ak.Array(fields)


def chosen(array: Any) -> list[str]:
    step = _COLUMNS // _READ
    return list(array.fields[::step][:_READ])


class _Recorder:
    """A store that notes which ranges are asked of it together."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.groups: list[Sequence[Request]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def begin(self, requests: Sequence[Request], buffer: Any = None) -> Any:
        self.groups.append(requests)
        return self._store.begin(requests, buffer)


def _against_raw(uri: str, array: Any, compression: str, rounds: int) -> dict[str, Any]:
    """Return seconds of reading from a store, with and without decoding, by one and by many."""
    from hepcache.objectstore import open_store
    from hepcache.objectstore.fetch import Fetch
    from hepcache.rntuple import NTuple, WriteOptions, write_array

    place, _, query = uri.partition("?")
    own = f"{place}-{compression}" + (f"?{query}" if query else "")
    store = open_store(own)
    others = [open_store(own) for _ in range(_READERS)]  # connections of their own
    try:
        began = time.perf_counter()
        write_array(store, "Events", array, WriteOptions(compression=compression))
        write_s = time.perf_counter() - began
        ntuple = NTuple(store)
        recorder: Any = _Recorder(store)
        names = chosen(array)
        check_equal(NTuple(recorder, ntuple.metadata).arrays(names), array, names)
        requests, options = recorder.groups, ntuple.options
        stored = ntuple.stored_bytes(names, 0, ntuple.entries)

        def raw(at: Store = store) -> None:
            # The same requests, and nothing is decoded: the limit that a store sets.
            ahead = options.groups_ahead, options.requests_ahead
            Fetch(at, requests, lambda _, __: None, *ahead).result()

        readers = [NTuple(at) for at in others]
        with ThreadPoolExecutor(_READERS) as threads:

            def together() -> list[Any]:
                return list(threads.map(lambda reader: reader.arrays(names), readers))

            for found in together():
                check_equal(found, array, names)
            seconds = interleaved(
                {
                    "raw": raw,
                    "ours": lambda: ntuple.arrays(names),
                    "together raw": lambda: list(threads.map(raw, others)),
                    "together": together,
                },
                rounds,
            )
        return {
            "raw_s": seconds["raw"],
            "ours_s": seconds["ours"],
            "readers": _READERS,
            "together_raw_s": seconds["together raw"],
            "together_s": seconds["together"],
            "write_s": write_s,
            "stored_bytes": stored,
            "decoded_bytes": 4 * len(array) * len(names),
            "raw_bytes_per_s": stored / seconds["raw"],
            "ours_bytes_per_s": stored / seconds["ours"],
        }
    finally:
        for at in others:
            at.close()
        remove(store)


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

    from hepcache.rntuple import open_in_file

    names = chosen(array)

    def ours() -> Any:
        with open_in_file(str(path), "Events") as ntuple:
            return ntuple.arrays(names)

    def peer() -> Any:
        with uproot.open(path) as file:
            return file["Events"].arrays(filter_name=names)

    check_equal(ours(), array, names)
    seconds = interleaved({"ours": ours, "uproot": peer}, rounds)
    return {"ours_s": seconds["ours"], "uproot_s": seconds["uproot"]}


def _against_uproot_s3(uri: str, path: Path, array: Any, rounds: int) -> dict[str, Any]:
    """Return seconds of reading the same columns from the same S3 service."""
    from urllib.parse import urlsplit

    import uproot

    from hepcache.objectstore import open_store
    from hepcache.rntuple import NTuple, WriteOptions, write_array

    parts = urlsplit(uri)
    names = chosen(array)
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

        check_equal(ours(), array, names)
        seconds = interleaved({"ours": ours, "uproot": peer}, rounds)
    finally:
        remove(whole)
        remove(store)
    return {"ours_s": seconds["ours"], "uproot_s": seconds["uproot"]}
