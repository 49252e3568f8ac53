"""The event store: batched reading and ingestion, single loads, and the scan of one column.

The limits are the figures published for HEPnOS on such a machine. The peer that
runs beside us keeps HEPnOS's layout, one value per product of an event, on the same engine.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult
from hepcache.eventstore import Schema, Store, SubRun, Table, connect
from hepcache.eventstore.engines.lmdb import LmdbEngine
from hepcache_bench.eventstore_readers import measure_readers

__all__ = ["PUBLISHED", "bench"]

PUBLISHED = {
    "memory_read_events_per_core_s": 23_000,
    "memory_read_products_per_core_s": 370_000,
    "persistent_read_events_per_s": 8_600,
    "memory_ingest_events_per_core_s": 20_000,
    "persistent_ingest_events_per_s": 3_900,
    "scan_events_per_s": 114_000,
    "point_load_s": 66e-6,
    "point_store_s": 237e-6,
}
_LABELS = tuple(f"product{one:02d}" for one in range(16))
_COLUMNS = ("x", "y", "z", "energy")
_SUBRUNS = 8
_ROWS = 23  # of four float32: about 366 bytes per product, 150 MB in all
_POINTS = 2000
_FEW = 10_000
_EACH = 100_000  # events of a subrun where events are looked up
_LOOK_UPS = 20_000

Sample = list[tuple[np.ndarray, dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]]]


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,  # noqa: ARG001
    events: Annotated[
        int, typer.Option(help="Events of the large store for look-ups; up to 5e7.")
    ] = 0,
) -> BenchResult:
    """Write, read, scan and look up 25 600 events of 16 products, about 150 MB.

    In memory and on disk with synchronous writes, in turns with a peer that keeps one value
    per product of an event. The persistent reading begins with the store's pages dropped
    from the kernel's cache. What is read is compared with what was written. Then events are
    looked up in a small and in a large store, beside LMDB with a key per event, and 64 workers
    on simulated hosts process a store with 1, 8 and 64 readers.
    """
    written = 25_600
    many = events or (100_000 if quick else 1_000_000)
    runs = 3 if quick else 7
    progress.print(f"Making {written} events of {len(_LABELS)} products")
    sample = make_sample(written)
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="hepcache-eventstore-") as directory:
        for number in range(runs):
            progress.print(f"Run {number + 1} of {runs}")
            _run(sample, Path(directory) / str(number), taken)
        progress.print(f"Looking events up among {_FEW} and among {many}")
        look_ups = look_up_times(Path(directory) / "sizes", (_FEW, many))
        read, readers = measure_readers(
            Path(directory) / "readers",
            workers=8 if quick else 64,
            hosts=2 if quick else 8,
            readers=(1, 8) if quick else (1, 8, 64),
            events_each=200 if quick else 1000,
            note=progress.print,
        )
    median = {name: statistics.median(values) for name, values in taken.items()}
    rows, ratios = _figures(median, written)
    rows += read
    ratios |= readers
    for (name, size), taken_s in look_ups.items():
        rows.append({"case": f"{name}, {size} events", "taken_s": taken_s})
    for name in ("look-up", "peer look-up"):
        growth = look_ups[name, many] / look_ups[name, _FEW]
        ratios[f"{name.replace('-', '_').replace(' ', '_')}_growth"] = growth
    progress.print("wanted: the published figures times 1.2 in memory and 3 on disk")
    return BenchResult("eventstore", rows, ratios)


def make_sample(events: int) -> Sample:
    """Return event numbers and, by label, offsets and columns, one entry per subrun."""
    random = np.random.default_rng(7)
    each = events // _SUBRUNS
    sample: Sample = []
    for one in range(_SUBRUNS):
        numbers = np.arange(one * each, (one + 1) * each, dtype=np.uint64) * 3 + 1
        products = {}
        for label in _LABELS:
            offsets = np.zeros(each + 1, np.int64)
            np.cumsum(random.poisson(_ROWS, each), out=offsets[1:])
            products[label] = (
                offsets,
                {name: random.random(offsets[-1], np.float32) for name in _COLUMNS},
            )
        sample.append((numbers, products))
    return sample


def _timed(
    taken: dict[str, list[float]], name: str, work: Callable[[], Any], clock: Callable[[], float]
) -> Any:
    begin = clock()
    value = work()
    taken.setdefault(name, []).append(clock() - begin)
    return value


def _run(sample: Sample, directory: Path, taken: dict[str, list[float]]) -> None:
    core, wall = time.process_time, time.perf_counter
    with connect("mem://") as store:
        _timed(taken, "memory ingest", lambda: ingest(store, sample), core)
        found = _timed(taken, "memory read", lambda: read_all(store), core)
        _compare(found, sample)
    with connect(directory / "store") as store:
        _timed(taken, "persistent ingest", lambda: ingest(store, sample), wall)
    _drop_pages(directory)
    with connect(directory / "store") as store:
        found = _timed(taken, "persistent read", lambda: read_all(store), wall)
        _compare(found, sample)
        _timed(taken, "whole events", lambda: read_all(store), wall)
        _timed(taken, "one column", lambda: read_all(store, _LABELS[7:8], ("energy",)), wall)
        _timed(taken, "event scan", lambda: _scan(store), wall)
        for name, value in _points(store, sample).items():
            taken.setdefault(name, []).append(value)
        taken.setdefault("point store", []).append(_stores(store))
    _peer(sample, directory / "peer", taken)


def ingest(store: Store, sample: Sample) -> None:
    """Write the sample through a batch."""
    run = store.create("bench").create(1)
    schema = Schema.table(dict.fromkeys(_COLUMNS, "float32"), kind="numpy")
    with store.batch(size=1 << 20) as batch:
        for number, (events, products) in enumerate(sample):
            subrun = run.create(number)
            for label, (offsets, columns) in products.items():
                subrun.write(label, Table.build(schema, events, columns, offsets), batch=batch)


def read_all(
    store: Store, labels: Sequence[str] = _LABELS, columns: Sequence[str] | None = None
) -> dict[str, tuple[int, float]]:
    """Read products in load batches, as awkward arrays, and touch every value."""
    found = dict.fromkeys(labels, (0, 0.0))
    for subrun in store["bench"].subruns():
        for low, high, count in subrun.ranges(16384):
            for label in labels:
                table = subrun.read(label, columns, low, high)
                array = table.array()
                if len(array) != count:
                    raise RuntimeError(f"read {len(array)} of {count} products of {label}")
                total = sum(float(one.sum(dtype=np.float64)) for one in table.columns.values())
                events, before = found[label]
                found[label] = events + count, before + total
    return found


def _compare(found: dict[str, tuple[int, float]], sample: Sample) -> None:
    for label, (events, total) in found.items():
        wanted = sum(
            float(one.sum(dtype=np.float64))
            for _, products in sample
            for one in products[label][1].values()
        )
        if events != sum(len(numbers) for numbers, _ in sample) or abs(total - wanted) > 1e-6:
            raise RuntimeError(f"{label}: read {events} events with sum {total}, not {wanted}")


def _drop_pages(directory: Path) -> None:
    """Drop a closed store's files from the kernel's page cache."""
    for path in directory.rglob("*.mdb"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _scan(store: Store) -> int:
    return sum(1 for subrun in store["bench"].subruns() for _ in subrun)


def _subruns(store: Store) -> list[SubRun]:
    return list(store["bench"].subruns())


def _points(store: Store, sample: Sample) -> dict[str, float]:
    """Return median times of finding an event and loading one product, anywhere in the sample.

    The first ones of each row group are given apart as well: they look at checksums.
    """
    random = np.random.default_rng(11)
    subruns = _subruns(store)
    taken: list[float] = []
    first: dict[tuple[int, str], float] = {}
    for _ in range(_POINTS):
        place = int(random.integers(len(subruns)))
        events, products = sample[place]
        at = int(random.integers(len(events)))
        label = _LABELS[int(random.integers(len(_LABELS)))]
        subrun, number = subruns[place], int(events[at])
        begin = time.perf_counter()
        value = subrun[number][label]
        taken.append(time.perf_counter() - begin)
        first.setdefault((place, label), taken[-1])
        offsets, columns = products[label]
        if not np.array_equal(value["x"], columns["x"][offsets[at] : offsets[at + 1]]):
            raise RuntimeError(f"event {number}: a product is not what was written")
    return {
        "point load": statistics.median(taken),
        "point load, first of its leaf": statistics.median(first.values()),
    }


def look_up_times(directory: Path, sizes: Sequence[int]) -> dict[tuple[str, int], float]:
    """Return seconds per look-up of an event, ours and of LMDB with a key per event, by size.

    Both are asked for the same events, in the same random order, until the second time: all is
    in memory then.
    """
    found = {}
    for size in sizes:
        wanted = np.random.default_rng(13).integers(0, size, _LOOK_UPS).tolist()
        with connect(directory / f"store{size}") as store:
            _write_events(store, size)
            subruns = _subruns(store)

            def ours(number: int, subruns: Sequence[SubRun] = subruns) -> bool:
                return subruns[number // _EACH][number % _EACH].number == number % _EACH

            found["look-up", size] = _second_time(ours, wanted)
        engine = LmdbEngine(directory / f"keys{size}", sync=False)
        for start in range(0, size, _EACH):
            with engine.write() as view:
                for number in range(start, min(start + _EACH, size)):
                    view.put(number.to_bytes(16, "big"), b"0123456789abcdef")

        def peer(number: int, engine: LmdbEngine = engine) -> bool:
            with engine.read() as view:
                return view.get(number.to_bytes(16, "big")) is not None

        found["peer look-up", size] = _second_time(peer, wanted)
        engine.close()
    return found


def _write_events(store: Store, events: int) -> None:
    run = store.create("bench").create(1)
    schema = Schema.table({"x": "float32"}, kind="numpy")
    with store.batch() as batch:
        for start in range(0, events, _EACH):
            numbers = np.arange(min(_EACH, events - start), dtype=np.uint64)
            values = {"x": np.zeros(len(numbers), np.float32)}
            table = Table.build(schema, numbers, values, np.arange(len(numbers) + 1))
            run.create(start // _EACH).write("x", table, batch=batch)


def _second_time(look_up: Callable[[int], bool], numbers: Sequence[int]) -> float:
    """Return seconds per call, once all have been made before."""
    for _ in range(2):
        begin = time.perf_counter()
        there = sum(map(look_up, numbers))
        taken = time.perf_counter() - begin
    if there != len(numbers):
        raise RuntimeError(f"{len(numbers) - there} of {len(numbers)} events are not there")
    return taken / len(numbers)


def _stores(store: Store) -> float:
    """Return the time per product of a batch of single stores."""
    subrun = store["bench"].create(2).create(0)
    value = np.arange(92, dtype=np.float32)
    begin = time.perf_counter()
    with store.batch() as batch:
        for number in range(_POINTS):
            event = subrun.create(number, batch=batch)
            event.store("single", value, batch=batch)
    return (time.perf_counter() - begin) / _POINTS


def _peer(sample: Sample, directory: Path, taken: dict[str, list[float]]) -> None:
    """Write and read one value per product of an event, as HEPnOS keeps them."""
    engine = LmdbEngine(directory)
    _timed(taken, "peer ingest", lambda: _peer_ingest(engine, sample), time.perf_counter)
    engine.close()
    _drop_pages(directory)
    engine = LmdbEngine(directory)
    _timed(taken, "peer read", lambda: _peer_read(engine), time.perf_counter)
    engine.close()


def _peer_ingest(engine: LmdbEngine, sample: Sample) -> None:
    for number, (events, products) in enumerate(sample):
        with engine.write() as view:
            for at, event in enumerate(events.tolist()):
                key = number.to_bytes(8, "big") + event.to_bytes(8, "big")
                for label, (offsets, columns) in products.items():
                    rows = slice(offsets[at], offsets[at + 1])
                    value = b"".join(columns[name][rows].tobytes() for name in _COLUMNS)
                    view.put(key + label.encode(), value)


def _peer_read(engine: LmdbEngine) -> float:
    total = 0.0
    with engine.read() as view:
        for _, value in view.scan(b"", None):
            rows = np.frombuffer(value, np.float32).reshape(len(_COLUMNS), -1)
            total += float(rows.sum())
    return total


def _figures(
    median: dict[str, float], events: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    speed = {
        name: (_POINTS if name.startswith("point") else events) / taken
        for name, taken in median.items()
    }
    published = {
        "memory ingest": "memory_ingest_events_per_core_s",
        "memory read": "memory_read_events_per_core_s",
        "persistent ingest": "persistent_ingest_events_per_s",
        "persistent read": "persistent_read_events_per_s",
        "event scan": "scan_events_per_s",
    }
    rows: list[dict[str, Any]] = [
        {
            "case": name,
            "taken_s": taken,
            "events_per_s": None if name.startswith("point") else speed[name],
            "products_per_s": _products(name, speed[name]),
            "published_per_s": PUBLISHED.get(published.get(name, "")),
            "published_s": PUBLISHED.get(f"{name.replace(' ', '_')}_s"),
        }
        for name, taken in median.items()
    ]
    return rows, {
        "memory_read_events_per_core_s": speed["memory read"],
        "persistent_read_events_per_s": speed["persistent read"],
        "memory_ingest_events_per_core_s": speed["memory ingest"],
        "persistent_ingest_events_per_s": speed["persistent ingest"],
        "point_load_us_over_limit": median["point load"] / PUBLISHED["point_load_s"],
        "column_scan": speed["one column"] / speed["whole events"],
        "peer_read": speed["persistent read"] / speed["peer read"],
        "peer_ingest": speed["persistent ingest"] / speed["peer ingest"],
    }


def _products(name: str, events_per_s: float) -> float | None:
    whole = name.rpartition(" ")[2] in ("ingest", "read") or name == "whole events"
    return events_per_s * len(_LABELS) if whole else None
