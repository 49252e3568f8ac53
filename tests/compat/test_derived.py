"""Derived columns: computed once, the same as ever, and never those of other code or events."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import awkward as ak
import dask.config
import numpy as np
import pytest
import uproot
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema, NanoAODSchema
from distributed import Client
from rich.console import Console
from tests.compat.conftest import equal, write_jets

import hepcache
from hepcache import compat
from hepcache.cache.contents import stored_columns
from hepcache.catalogue.catalogue import Catalogue
from hepcache.process.run_history import RunHistory, work_name
from hepcache.process.worker_state import forget, worker_state
from hepcache.report import CycleReport, RunRecord
from hepcache.results.derived import is_derived
from hepcache.telemetry import DerivedUse

ENTRIES = 200
SEGMENT = 80  # of files with clusters of 40 entries
EXECUTOR = coffea.IterativeExecutor(status=False, retries=0)
_LEAST = 0.25


@pytest.fixture
def short_segments() -> Iterator[None]:
    with dask.config.set({"hepcache.segment.entries": SEGMENT}):
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("derived") / "x.root"
    numbers = np.random.default_rng(1)
    with uproot.recreate(place) as file:
        file.mktree("Events", {"x": np.int64, "y": np.float64, "pt": "var * float32"})
        for start in range(0, ENTRIES, 40):
            counts = numbers.integers(0, 4, 40)
            file["Events"].extend(
                {
                    "x": np.arange(start, start + 40),
                    "y": numbers.normal(size=40),
                    "pt": ak.unflatten(numbers.random(counts.sum(), np.float32), counts),
                }
            )
    return str(place)


@pytest.fixture(scope="module")
def jets(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_jets(tmp_path_factory.mktemp("derived") / "jets.root"))


class Of(compat.ProcessorABC):
    """Returns what a function makes of all events."""

    def __init__(self, function: Callable[[Any], Any], prepare: Any = None) -> None:
        self.function = function
        self.prepare = prepare

    def process(self, events: Any) -> Any:
        start = events.metadata["entrystart"]
        if self.prepare is not None:
            events = self.prepare(events)
        found = self.function(events)
        return {start: ak.materialize(found) if isinstance(found, ak.Array) else found}

    def postprocess(self, accumulator: Any) -> Any:
        return [accumulator[start] for start in sorted(accumulator)]


def run(
    path: str,
    processor: Any,
    chunksize: int = 50,
    *,
    schema: Any = BaseSchema,
    executor: Any = EXECUTOR,
    **metadata: Any,
) -> tuple[Any, RunRecord]:
    runner = hepcache.Runner(executor, schema=schema, chunksize=chunksize)
    fileset = {"dy": {"files": {path: "Events"}, "metadata": metadata}}
    output = runner(fileset, processor)
    assert runner.run_record is not None
    worker_state().flush()
    return output, runner.run_record


def uses(record: RunRecord) -> DerivedUse:
    """Return what the derived columns of a run came to."""
    return sum(record.derived.values(), DerivedUse())


def read_and_computed(record: RunRecord) -> tuple[int, int]:
    found = uses(record)
    assert not found.reason
    return found.read, found.computed


@hepcache.derived
def distance(events: Any, scale: float = 1.0) -> Any:
    return np.hypot(events.x, events.y) * scale


KEPT: dict[str, int] = {}


class Factor:
    """What can't be seen into, so that the file alone tells."""

    def __hepcache_fingerprint__(self) -> str:
        return "factor"

    def get(self) -> int:
        return KEPT["factor"]


FACTOR = Factor()


@hepcache.derived
def corrected(events: Any) -> Any:
    return events.x * FACTOR.get()


class Loading(Of):
    """Reads a file when its process begins, before anything is derived."""

    def __init__(self, table: Path) -> None:
        super().__init__(corrected)
        self.table = table

    def process(self, events: Any) -> Any:
        if not KEPT:
            KEPT["factor"] = json.loads(self.table.read_text())
        return super().process(events)


def _option(events: Any) -> Any:
    return ak.mask(events.y, events.y > 0)


def _records(events: Any) -> Any:
    return ak.zip({"pt": events.pt, "index": ak.local_index(events.pt)}, with_name="Hit")


def _text(events: Any) -> Any:
    return ak.Array([f"event {number}" if number % 3 else "" for number in events.x])


def _nested(events: Any) -> Any:
    return ak.singletons(events.pt, axis=1)


KINDS: dict[str, Callable[[Any], Any]] = {
    "flat": lambda events: events.x + events.y,
    "small": lambda events: ak.values_astype(events.x, np.int8),
    "bits": lambda events: events.y > 0,
    "complex": lambda events: events.y + 1j * events.x,
    "lists": lambda events: events.pt[events.pt > _LEAST],
    "lists of lists": _nested,
    "records": _records,
    "one record": lambda events: ak.zip({"x": events.x, "pt": events.pt}, depth_limit=1),
    "options": _option,
    "text": _text,
    "union": lambda events: ak.concatenate([events.x[:, None], events.pt > _LEAST], axis=1),
    "regular": lambda events: ak.to_regular(ak.concatenate([events.x[:, None]] * 3, axis=1)),
    "numpy": lambda events: np.asarray(events.y) ** 2,
    "numpy, two columns": lambda events: np.stack([np.asarray(events.y)] * 2, axis=1),
    "times": lambda events: np.asarray(events.x).astype("datetime64[s]"),
    "as read": lambda events: events.pt,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_comes_back_as_it_was(path: str, kind: str) -> None:
    expected = KINDS[kind]
    first, computed = run(path, Of(hepcache.derived(expected)))
    again, read = run(path, Of(hepcache.derived(expected)))
    plain = coffea.Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema, chunksize=50)(
        {"dy": {"files": {path: "Events"}}}, Of(expected)
    )
    assert read_and_computed(computed) == (0, 4)
    assert read_and_computed(read) == (4, 0)
    for found in (first, again):
        for ours, theirs in zip(found, plain, strict=True):
            assert type(ours) is type(theirs)
            if isinstance(theirs, np.ndarray):
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)
                ours[...] = ours[::-1].copy()  # a user may
            else:
                assert ours.type == theirs.type
                assert ak.array_equal(ours, theirs, dtype_exact=True)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("sizes", [(50, 40, 30), (30, 200), (200, 7, 80), (80, 100)])
def test_chunks_of_any_size_share_what_is_stored(path: str, sizes: tuple[int, ...]) -> None:
    expected, record = run(path, Of(distance), sizes[0])
    assert read_and_computed(record) == (0, len(record.chunks))
    for size in sizes[1:]:
        found, record = run(path, Of(distance), size)
        assert read_and_computed(record) == (len(record.chunks), 0)
        assert ak.array_equal(ak.concatenate(found), ak.concatenate(expected), dtype_exact=True)


@pytest.mark.usefixtures("short_segments")
def test_stored_ranges_that_overlap_are_joined_once(path: str) -> None:
    fileset = {"dy": {"files": {path: "Events"}}}
    for chunksize, maxchunks in ((50, 1), (30, None), (ENTRIES, None)):
        runner = hepcache.Runner(
            EXECUTOR, schema=BaseSchema, chunksize=chunksize, maxchunks=maxchunks
        )
        output = runner(fileset, Of(distance))
        worker_state().flush()
    assert runner.run_record is not None
    assert uses(runner.run_record).read == 1
    assert [len(part) for part in output] == [ENTRIES]
    expected, _ = run(path, Of(distance.function), ENTRIES)
    assert equal(output, expected)


@pytest.mark.usefixtures("short_segments")
def test_parts_of_other_types_are_not_put_together(path: str) -> None:
    @hepcache.derived
    def mixed(events: Any) -> Any:
        found = events.x * 2
        return ak.values_astype(found, np.int32) if events.x[0] == 80 else found

    run(path, Of(mixed), 40)
    (whole,), record = run(path, Of(mixed), 200)
    assert read_and_computed(record) == (0, 1)
    assert whole.type.content == ak.types.NumpyType("int64")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_behaviours_and_other_collections_are_found(jets: str) -> None:
    @hepcache.derived
    def good_jets(events: Any) -> Any:
        return events.Jet[events.Jet.pt > _LEAST]

    def use(events: Any) -> Any:
        found = good_jets(events)
        events["Good"] = found
        pairs = found[:, :1] + found[:, :1]
        muons = found.matched_muons if hasattr(found, "matched_muons") else found
        return ak.sum(pairs.mass), ak.sum(events.Good.rho), ak.count(muons.pt), str(found.type)

    expected, record = run(jets, Of(use), 30, schema=NanoAODSchema)
    assert read_and_computed(record) == (0, 2)
    found, record = run(jets, Of(use), 30, schema=NanoAODSchema)
    assert read_and_computed(record) == (2, 0)
    assert found == expected


def test_arguments_and_objects_of_methods_count(path: str) -> None:
    class Cuts(Of):
        def __init__(self, least: float) -> None:
            super().__init__(self.passing)
            self.least = least

        def process(self, events: Any) -> Any:
            return {events.metadata["entrystart"]: (self.passing(events), distance(events, 2.0))}

        @hepcache.derived
        def passing(self, events: Any) -> Any:
            return events.y > self.least

    for least in (0.0, 0.5):
        output, record = run(path, Cuts(least))
        assert uses(record).computed == 4 + 4 * (least == 0.0)
        assert ak.all(
            ak.concatenate([passing for passing, _ in output])
            == (uproot.open(path)["Events/y"].array() > least)
        )
    assert read_and_computed(run(path, Cuts(0.5))[1]) == (8, 0)
    assert read_and_computed(run(path, Of(distance))[1]) == (0, 4)


def test_other_code_computes_again(path: str) -> None:
    def scaled(by: int) -> Any:
        @hepcache.derived
        def scaled(events: Any) -> Any:
            return helper(events)

        def helper(events: Any) -> Any:
            return events.x * by

        return scaled

    for by in (2, 3):
        output, record = run(path, Of(scaled(by)))
        assert read_and_computed(record) == (0, 4)
        assert ak.concatenate(output).tolist() == [by * number for number in range(ENTRIES)]
    assert read_and_computed(run(path, Of(scaled(2)))[1]) == (4, 0)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda events: events[events.x % 2 == 0],
        lambda events: events[:],
        lambda events: ak.with_field(events, events.x * 0, "y"),
    ],
)
def test_of_other_events_it_is_computed(path: str, prepare: Any) -> None:
    run(path, Of(distance))
    expected, _ = run(path, Of(distance.function, prepare))
    found, record = run(path, Of(distance, prepare))
    assert uses(record).reason == "its events were filtered or changed before"
    assert (uses(record).read, uses(record).computed) == (0, 4)
    assert ak.array_equal(ak.concatenate(found), ak.concatenate(expected))


def test_events_to_which_something_was_added_are_others(path: str) -> None:
    def changed(events: Any) -> Any:
        events["y"] = events.y * 0
        return events

    run(path, Of(distance))
    found, record = run(path, Of(distance, changed))
    assert uses(record).computed == 4
    assert ak.concatenate(found).tolist() == list(range(ENTRIES))


def test_why_it_is_computed_is_told(path: str) -> None:
    def scaled(by: int) -> Any:
        @hepcache.derived
        def scaled(events: Any, offset: int = 0) -> Any:
            return events.x * by + offset

        return scaled

    def causes(function: Any) -> dict[str, int]:
        return uses(run(path, Of(function))[1]).causes

    assert causes(scaled(2)) == {"new": 4}
    assert causes(scaled(2)) == {}
    both = scaled(3)
    changed = "code changed (test_why_it_is_computed_is_told.scaled.scaled)"
    assert causes(lambda events: (both(events), both(events, 1))[1]) == {changed: 8}
    assert causes(lambda events: (both(events), both(events, 2))[1]) == {"new": 4}
    cache = worker_state().cache
    stored = [column for column in stored_columns(cache.layout) if "scaled" in column.path]
    cache.remove(stored)
    assert causes(scaled(2)) == {"evicted": 4}


_SHIFT = [1]


def shifted(events: Any) -> Any:
    return events.x + _SHIFT[0]


def doubled(numbers: Any) -> Any:
    return 2 * numbers


@hepcache.derived
def shifted_and_doubled(events: Any) -> Any:
    return doubled(shifted(events))


def test_which_function_changed_is_told(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def causes() -> dict[str, int]:
        found = uses(run(path, Of(shifted_and_doubled))[1])
        assert not found.reason
        return found.causes

    assert causes() == {"new": 4}
    monkeypatch.setitem(globals(), "_SHIFT", [2])
    assert causes() == {"code changed (shifted)": 4}
    monkeypatch.setattr(doubled, "__code__", (lambda numbers: numbers * 2).__code__)
    assert causes() == {"code changed (doubled)": 4}
    monkeypatch.undo()
    assert causes() == {}


def test_metadata_count_where_they_are_asked_for(path: str) -> None:
    @hepcache.derived
    def weight(events: Any) -> Any:
        return events.x * events.metadata["xsec"]

    for xsec in (2, 3):
        output, record = run(path, Of(weight), xsec=xsec)
        assert read_and_computed(record) == (0, 4)
        assert ak.sum(ak.concatenate(output)) == xsec * ENTRIES * (ENTRIES - 1) // 2
    assert read_and_computed(run(path, Of(weight), xsec=2)[1]) == (4, 0)
    # Nobody else computes anything again.
    run(path, Of(distance), xsec=2)
    assert read_and_computed(run(path, Of(distance), xsec=3)[1]) == (4, 0)


def test_what_asks_for_the_chunk_is_not_stored(path: str) -> None:
    @hepcache.derived
    def inner(events: Any) -> Any:
        return events.x + events.metadata["entrystart"]

    @hepcache.derived
    def outer(events: Any) -> Any:
        return inner(events) + 1

    for _ in range(2):
        output, record = run(path, Of(outer))
        assert uses(record).read == 0
        assert "entrystart" in uses(record).reason
    found, _ = run(path, Of(outer), 30)
    assert ak.concatenate(found).tolist() != ak.concatenate(output).tolist()


def test_one_may_compute_from_another(path: str) -> None:
    @hepcache.derived
    def outer(events: Any) -> Any:
        return distance(events) + 1

    run(path, Of(distance))
    first, record = run(path, Of(outer))
    assert read_and_computed(record) == (4, 4)
    again, record = run(path, Of(outer))
    assert read_and_computed(record) == (4, 0)
    assert ak.array_equal(ak.concatenate(first), ak.concatenate(again))


@hepcache.derived
def weighted(events: Any) -> Any:
    return events.x * events.metadata["xsec"]


def test_what_another_asked_for_counts(path: str) -> None:
    @hepcache.derived
    def outer(events: Any) -> Any:
        return weighted(events) + 1

    run(path, Of(weighted), xsec=2)
    _, record = run(path, Of(outer), xsec=2)
    assert read_and_computed(record) == (4, 4)
    output, record = run(path, Of(outer), xsec=3)
    assert read_and_computed(record) == (0, 8)
    assert ak.concatenate(output).tolist() == [3 * number + 1 for number in range(ENTRIES)]
    # Both were stored, although one was computed by the other.
    assert read_and_computed(run(path, Of(outer), xsec=3)[1]) == (4, 0)
    assert read_and_computed(run(path, Of(weighted), xsec=3)[1]) == (4, 0)


def test_metadata_that_are_asked_for_in_a_thread_count(path: str) -> None:
    @hepcache.derived
    def threaded(events: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return events.x * pool.submit(lambda: events.metadata["xsec"]).result()

    for xsec in (2, 3):
        output, _ = run(path, Of(threaded), xsec=xsec)
        assert ak.concatenate(output).tolist() == [xsec * number for number in range(ENTRIES)]


def test_metadata_count_as_the_processor_left_them(path: str) -> None:
    def changed(events: Any) -> Any:
        events.metadata["xsec"] *= 5
        return events

    for prepare, factor in ((changed, 10), (None, 2), (changed, 10)):
        output, _ = run(path, Of(weighted, prepare), xsec=2)
        assert ak.concatenate(output).tolist() == [factor * number for number in range(ENTRIES)]


@pytest.mark.parametrize(
    "look",
    [
        lambda metadata: len(metadata),
        lambda metadata: metadata | {"xsec": 0},
        lambda metadata: metadata == {},
        lambda metadata: str(metadata),
        lambda metadata: metadata.pop("entrystart"),
    ],
)
def test_whole_metadata_are_those_of_the_chunk(path: str, look: Any) -> None:
    _, record = run(
        path, Of(hepcache.derived(lambda events: (look(events.metadata), events.x)[1]))
    )
    assert "metadata" in uses(record).reason


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("size", [40, 200])
def test_columns_cannot_be_overwritten_unseen(path: str, size: int) -> None:
    def overwritten(events: Any) -> Any:
        found = ak.to_numpy(events.y)
        found *= 0
        return events

    with pytest.raises(Exception, match="read-only"):
        run(path, Of(distance, overwritten), size)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("size", [40, 200])
@pytest.mark.parametrize("prepare", [None, lambda events: events[events.x >= 0]])
@pytest.mark.parametrize(
    "kind", ["flat", "lists", "records", "small", "regular", "numpy", "as read"]
)
def test_who_writes_into_a_result_sees_the_same_in_every_cycle(
    path: str, kind: str, size: int, prepare: Any
) -> None:
    function = hepcache.derived(KINDS[kind])
    jagged = ("lists", "records", "as read")

    def writes(events: Any) -> Any:
        found = function(events)
        numbers = found.index if kind == "records" else found
        kept = np.asarray(ak.flatten(numbers) if kind in jagged else numbers)
        try:
            kept[...] = 1
        except ValueError as error:
            return str(error)
        return found.tolist()

    seen = [run(path, Of(writes, prepare), size)[0] for _ in range(3)]
    assert seen == seen[:1] * 3
    assert prepare or ("read-only" in seen[0][0]) == (kind != "numpy")


def test_a_result_of_a_table_leaves_the_table_writable(path: str) -> None:
    table = np.arange(ENTRIES)

    @hepcache.derived
    def looked_up(events: Any) -> Any:
        return ak.Array(table)

    run(path, Of(looked_up), ENTRIES)
    table[0] = 5


def test_functions_may_change_their_events(path: str) -> None:
    @hepcache.derived
    def changing(events: Any) -> Any:
        events["y"] = events.x * 2
        events.metadata["seen"] = 3
        return events.x

    def use(events: Any) -> Any:
        changing(events)
        return events.y * events.metadata["seen"]

    for _ in range(2):
        output, record = run(path, Of(use))
        assert ak.concatenate(output).tolist() == [6 * number for number in range(ENTRIES)]
        assert uses(record).reason == "it changes its events or their metadata"


@pytest.mark.parametrize("factor", [2, 3])
def test_attributes_and_behaviours_of_events_are_seen(path: str, factor: int) -> None:
    class Thing(ak.Array):  # type: ignore[misc]
        @property
        def factor(self) -> int:
            return factor

    @hepcache.derived
    def scaled(events: Any) -> Any:
        thing = ak.zip({"x": events.x}, with_name="Thing", behavior=events.behavior)
        return events.x * events.attrs["offset"] * thing.factor

    def prepare(events: Any) -> Any:
        events.attrs["offset"] = 5
        events.behavior = {**(events.behavior or {}), ("*", "Thing"): Thing}
        return events

    output, record = run(path, Of(scaled, prepare))
    assert ak.concatenate(output).tolist() == [5 * factor * number for number in range(ENTRIES)]
    assert uses(record).computed == 4


def test_behaviours_that_others_registered_count(path: str) -> None:
    def registering(factor: int) -> Any:
        class Thing(ak.Array):  # type: ignore[misc]
            @property
            def factor(self) -> int:
                return factor

        def prepare(events: Any) -> Any:
            ak.behavior["*", "Thing"] = Thing
            return events

        return prepare

    # As in a module of its own, which does not import the one that registers.
    thing = "ak.zip({'x': events.x}, with_name='Thing')"
    code = f"def scaled(events):\n    return events.x * {thing}.factor"
    names = {"ak": ak, "__name__": "apart"}
    exec(code, names)
    try:
        for factor in (2, 3):
            scaled: Any = hepcache.derived(names["scaled"])
            output, record = run(path, Of(scaled, registering(factor)))
            assert read_and_computed(record) == (0, 4)
            assert ak.concatenate(output).tolist() == [factor * n for n in range(ENTRIES)]
    finally:
        del ak.behavior["*", "Thing"]


def test_events_that_are_returned_have_their_own_metadata(path: str) -> None:
    @hepcache.derived
    def some(events: Any) -> Any:
        return events[events.x >= 0]

    def use(events: Any) -> Any:
        return dict(some(events).metadata)

    for xsec in (2, 3):
        output, record = run(path, Of(use), xsec=xsec)
        assert [found["xsec"] for found in output] == [xsec] * 4
        assert "metadata" in uses(record).reason


def test_arguments_of_one_entry_per_event_are_of_the_chunk(path: str) -> None:
    @hepcache.derived
    def numbered(events: Any, numbers: Any) -> Any:
        return events.x * 0 + numbers

    def use(events: Any) -> Any:
        return numbered(events, np.arange(len(events)))

    for size in (50, 40, 50):
        output, _ = run(path, Of(use), size)
        assert ak.concatenate(output).tolist() == [*range(size)] * (ENTRIES // size)
    assert read_and_computed(run(path, Of(use), 40)[1]) == (5, 0)


def test_files_that_are_opened_count_by_their_content(path: str, tmp_path: Path) -> None:
    table = tmp_path / "corrections.json"

    @hepcache.derived
    def corrected(events: Any) -> Any:
        return events.x * json.loads(table.read_text())

    for factor in (2, 3):
        table.write_text(str(factor))
        forget()
        for again in (False, True):
            output, record = run(path, Of(corrected))
            assert ak.concatenate(output).tolist() == [factor * n for n in range(ENTRIES)]
            found = uses(record)
            # In the very second of its change a file may have another content unseen.
            assert again or found.computed == 4


def test_what_was_kept_of_a_file_counts_too(path: str, tmp_path: Path) -> None:
    table = tmp_path / "corrections.json"
    for value in (2, 5):
        table.write_text(str(value))
        # As in a new process.
        KEPT.clear()
        forget()
        output, record = run(path, Loading(table))
        assert ak.concatenate(output).tolist() == [value * number for number in range(ENTRIES)]
        assert uses(record).computed == 4


def mapped_file(found: Any) -> str:
    """Return the path of the file in whose mapping an array's numbers lie."""
    address = np.asarray(found).__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, _, _, _, _, *name = line.split(maxsplit=5)
        first, behind = (int(end, 16) for end in place.split("-"))
        if first <= address < behind:
            return " ".join(name)
    return ""


def test_what_is_read_lies_in_the_cache_s_own_file(path: str) -> None:
    @hepcache.derived
    def wide(events: Any) -> Any:
        return ak.Array(np.asarray(events.y)[:, None] * np.ones(20_000))

    with dask.config.set({"hepcache.cache.codec": "raw"}):
        forget()
        run(path, Of(wide))
        forget()
        found, record = run(path, Of(lambda events: mapped_file(wide(events))))
    forget()
    assert read_and_computed(record) == (4, 0)
    assert [Path(name).suffix for name in found] == [".col"] * 4, found
    assert all("wide" in Path(name).name for name in found)


def test_a_flipped_byte_is_a_miss(path: str) -> None:
    expected, _ = run(path, Of(distance))
    columns = [
        file
        for file in worker_state().cache.directory.glob("v1/**/*.col")
        if file.name.startswith("distance")
    ]
    assert len(columns) == 4
    for file in columns:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    forget()
    found, record = run(path, Of(distance))
    assert read_and_computed(record) == (0, 4)
    assert ak.array_equal(ak.concatenate(found), ak.concatenate(expected))
    assert read_and_computed(run(path, Of(distance))[1]) == (4, 0)


def test_what_is_dear_to_compute_stays_where_room_is_short(path: str) -> None:
    @hepcache.derived
    def dear(events: Any) -> Any:
        time.sleep(0.1)
        return np.asarray(events.y)[:, None] * np.ones(1000)

    @hepcache.derived
    def cheap(events: Any, number: int) -> Any:
        return np.asarray(events.y)[:, None] * np.ones(1000) * number

    def use(events: Any) -> Any:
        found = [cheap(events, number) for number in range(4)] + [dear(events)]
        return [float(column.sum()) for column in found]

    # All take about 8 MB, of which the dear ones are a fifth.
    with dask.config.set({"hepcache.cache.capacity": "3 MB", "hepcache.cache.codec": "raw"}):
        forget()
        for _ in range(4):
            _, record = run(path, Of(use))
    found = {name.rpartition(".")[2]: use for name, use in record.derived.items()}
    assert (found["dear"].read, found["dear"].computed) == (4, 0)
    assert found["cheap"].computed > 0


def test_what_is_no_array_of_events_is_not_stored(path: str) -> None:
    class Numbers(np.ndarray):
        pass

    for function in (
        lambda events: ak.sum(events.x),
        lambda events: events.x[:3],
        lambda events: [*events.x],
        lambda events: np.ma.array(events.x),
        lambda events: np.asarray(events.x).view(Numbers),
    ):
        _, record = run(path, Of(hepcache.derived(function)))
        assert "it returned" in uses(record).reason


def test_what_changes_while_it_runs_is_not_stored(path: str) -> None:
    seen: list[int] = []

    @hepcache.derived
    def counting(events: Any) -> Any:
        seen.append(len(events))
        return events.x

    _, record = run(path, Of(counting))
    assert "changed while it was computed" in uses(record).reason


def test_what_cannot_be_seen_into_is_computed(path: str) -> None:
    factor = ctypes.c_int(2)

    @hepcache.derived
    def scaled(events: Any) -> Any:
        return events.x * factor.value

    for _ in range(2):
        output, record = run(path, Of(scaled))
        assert ak.concatenate(output).tolist() == [2 * number for number in range(ENTRIES)]
        assert uses(record).computed == 4
        assert "scaled -> factor" in uses(record).reason


def test_errors_are_the_functions_own(path: str) -> None:
    @hepcache.derived
    def failing(events: Any) -> Any:
        return events.no_such_column

    with pytest.raises(Exception, match="no_such_column"):
        run(path, Of(failing))


def test_under_plain_coffea_it_is_a_plain_function(path: str) -> None:
    plain = coffea.Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema)
    (found,) = plain({"dy": {"files": {path: "Events"}}}, Of(distance))
    (expected,) = plain({"dy": {"files": {path: "Events"}}}, Of(distance.function))
    assert ak.array_equal(found, expected)


def test_workers_compute_once_and_read_in_every_later_cycle(
    path: str, hepcache_client: Client
) -> None:
    hepcache_client.run(forget)
    runner = hepcache.Runner(
        hepcache.Executor(client=hepcache_client, status=False), schema=BaseSchema, chunksize=80
    )
    factor = 7

    @hepcache.derived
    def scaled(events: Any) -> Any:
        return events.x * factor

    expected = [factor * number for number in range(ENTRIES)]
    computed = []
    for _ in range(6):
        output = runner({"dy": {"files": {path: "Events"}}}, Of(scaled))
        assert ak.concatenate(output).tolist() == expected
        assert runner.run_record is not None
        found = uses(runner.run_record)
        assert not found.reason
        computed.append(found.computed)
        if not found.computed:
            break
        time.sleep(1)  # the scheduler hears with a heartbeat where columns are
    assert computed[0]
    assert not computed[-1]


def test_hosts_report_what_it_took_and_runs_know_what_they_want(path: str) -> None:
    _, record = run(path, Of(distance))
    assert record.columns == ["x", "y"]
    _, (_, _, names, computed) = worker_state().holdings()
    (name,) = names
    assert is_derived(name)
    assert name.startswith("distance@")
    ((_, _, segments),) = computed
    took_s = sum(seconds for _, columns in segments for _, seconds in columns)
    assert 0 < took_s < record.wall_s
    with Catalogue.from_settings() as catalogue:
        history = RunHistory.load(catalogue, work_name(Of(distance), BaseSchema))
    assert history.columns == [name, "x", "y"]


def test_records_of_runs_tell_it(path: str, tmp_path: Path) -> None:
    _, record = run(path, Of(distance))
    kept = RunRecord.read(record.write(tmp_path / "run.json"))
    assert kept.chunks == record.chunks
    assert kept.chunks[0].derived["distance"].computed == 1
    assert kept.derived["distance"].computed == 4
    # A number of 8 bytes for each event, and what tells the cache about them.
    assert kept.derived["distance"].stored_bytes > 8 * ENTRIES
    assert 0 < kept.derived["distance"].seconds < record.wall_s
    _, again = run(path, Of(distance))
    report = CycleReport([record, again])
    console = Console(width=200)
    with console.capture() as shown:
        console.print(report)
    assert "Derived column distance: read in 4 calls" in shown.get()
    page = report.to_html(tmp_path / "report.html").read_text()
    assert "Derived column distance: read in 4 calls" in page
