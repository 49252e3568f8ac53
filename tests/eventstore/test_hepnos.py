"""HEPnOS's unit tests, one by one, as its users would write them here.

The names are those of its suites and tests. What has no equivalent:

- ``valid()`` of handles that are made of nothing, ``InvalidRunNumber`` and the invalid handles
  that ``next()`` and ``find()`` return at the end: here every handle is of an item that was
  asked for, a missing one is an error or None, and a handle's truth says whether it exists.
- ``next()``: ``after()`` is the next number or name.
- ``%`` is forbidden in names there; here only ``/`` and control characters are, and ``/``
  separates the datasets of a path.
- ``PRODUCER`` and ``CONSUMER``: a queue's handle does both; it counts who has closed it.
- ``RunTest.testPrefetcher`` and ``SubRunTest.testPrefetcher`` are empty there;
  ``WriteBatchTest`` and ``AsyncWriteBatchTest`` for runs, subruns and events too. What they
  are meant for is tested here.
- ``AsyncEngine`` is a batch: it writes behind, and tells errors at its end. Datasets, runs and
  subruns are written at once.
- Targets are shards; a reader of ``process`` lists the events of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

from hepcache.errors import (
    ConfigurationError,
    DuplicateItemError,
    MissingItemError,
    ProductTypeError,
    StoreBatchError,
)
from hepcache.eventstore import Address, Dataset, LoadedEvent, Schema, Store, StoreLoader, connect

# What its tests store: two classes, alone and in vectors.
A = np.array((44, 1.2), [("x", "i4"), ("y", "f8")])
B = ak.Record({"a": 33, "b": "you"})
MANY_A = np.array([(44 + i, 1.2 + i) for i in range(10)], A.dtype)
MANY_B = ak.Array([{"a": 33 + i, "b": f"you{i}"} for i in range(5)])
A_TYPE = Schema.table({"x": "int32", "y": "float64"}, kind="numpy", layout="one")
B_TYPE = Schema.table({"a": "int64", "b": "string"}, layout="one")
LEVELS = ["DataSet", "Run", "SubRun", "Event"]


@pytest.fixture
def store() -> Iterator[Store]:
    with connect("mem://?shards=3") as opened:
        yield opened


def owner(store: Store, level: str) -> Any:
    """Return the products of a dataset, or of a run, subrun or event of it."""
    dataset = store.create("matthieu")
    run = dataset.create(42, exist_ok=True)
    subrun = run.create(3, exist_ok=True)
    event = subrun.create(22, exist_ok=True)
    return dict(zip(LEVELS, (dataset, run, subrun, event), strict=True))[level].products


class TestDataStore:
    """Also ``DataSetTest``: the store's datasets and those of a dataset are used alike."""

    @pytest.fixture(params=["DataStoreTest", "DataSetTest"])
    def datasets(self, request: pytest.FixtureRequest, store: Store) -> Any:
        above = store if request.param == "DataStoreTest" else store.create("matthieu")
        for name in ("ds1", "ds3", "ds2", "dsB", "dsD"):
            above.datasets.create(name)
        return above.datasets

    def test_fill_data_store(self, store: Store, datasets: Any) -> None:
        for name in ("ds0/AAA", "ds0\nRRS", ""):
            with pytest.raises(ConfigurationError):
                datasets.create(name)
        first = datasets["ds1"]
        assert first
        assert first.path.rpartition("/")[2] == "ds1"
        assert store[first.path] == first
        inner = first.datasets.create("ds11")
        assert first["ds11"] == inner == store[f"{first.path}/ds11"]
        assert first != inner
        assert datasets.after("ds1") == "ds2"
        assert datasets.after("ds2") == "ds3"

    def test_bracket_operator(self, datasets: Any) -> None:
        with pytest.raises(MissingItemError, match="ds6"):
            datasets["ds6"]
        assert datasets["ds2"].path.endswith("ds2")

    def test_find(self, datasets: Any) -> None:
        assert datasets.get("ds6") is None
        assert datasets.get("ds2") == datasets["ds2"]
        assert datasets.after("ds2") == "ds3"

    def test_begin_end(self, datasets: Any) -> None:
        assert list(datasets) == ["ds1", "ds2", "ds3", "dsB", "dsD"]

    def test_lower_upper_bounds(self, datasets: Any) -> None:
        at_least = [datasets.at_least(name) for name in ("dsB", "dsC", "dsA", "dsE")]
        assert at_least == ["dsB", "dsD", "dsB", None]
        assert [datasets.after(name) for name in ("dsB", "dsC", "dsA", "dsD")] == [
            "dsD", "dsD", "dsB", None,
        ]  # fmt: skip

    def test_create_runs(self, datasets: Any) -> None:
        dataset = datasets["ds1"]
        with pytest.raises(MissingItemError, match="run 45"):
            dataset[45]
        run = dataset.create(45)
        assert run
        assert run.number == 45
        assert run.path == f"{dataset.path}/45"


class TestNumbered:
    """``RunSetTest``, ``RunTest``, ``SubRunTest`` and ``EventTest``: children by number."""

    @pytest.fixture(params=["RunSetTest", "RunTest", "SubRunTest"])
    def parent(self, request: pytest.FixtureRequest, store: Store) -> Any:
        dataset = store.create("matthieu")
        parents: dict[str, Callable[[], Any]] = {
            "RunSetTest": lambda: dataset,
            "RunTest": lambda: dataset.create(42),
            "SubRunTest": lambda: dataset.create(42).create(3),
        }
        return parents[request.param]()

    @pytest.fixture
    def filled(self, parent: Any) -> Any:
        for number in (0, 10, 23, 13, 38):
            parent.create(number)
        return parent

    def test_fill_data_store(self, parent: Any) -> None:
        for number in (-1, 2**64, "5", 1.5):
            with pytest.raises(ConfigurationError):
                parent.create(number)
        assert not parent.at(5)
        child = parent.create(5)
        assert child
        assert parent.at(5) == child
        assert child.number == 5
        with pytest.raises(DuplicateItemError):
            parent.create(5)

    def test_descriptor(self, store: Store, parent: Any) -> None:
        child = parent.create(5)
        assert store.open(child.address) == child
        assert store.open(child.address)
        unknown = Address("0" * 32, 1, 2)
        assert not store.open(unknown)

    def test_create_children(self, filled: Any) -> None:
        assert [filled[number].number for number in (10, 38, 0)] == [10, 38, 0]

    def test_bracket_operator(self, filled: Any) -> None:
        with pytest.raises(MissingItemError, match=" 12 "):
            filled[12]
        assert filled[13].number == 13

    def test_find(self, filled: Any) -> None:
        assert filled.find(12) is None
        assert filled.find(13).number == 13
        assert filled.after(13) == 23

    def test_begin_end(self, filled: Any) -> None:
        assert list(filled) == [0, 10, 13, 23, 38]

    def test_lower_upper_bounds(self, filled: Any) -> None:
        assert [filled.at_least(n) for n in (0, 13, 14, 12, 40)] == [0, 13, 23, 13, None]
        assert [filled.after(n) for n in (0, 13, 14, 12, 38)] == [10, 23, 23, 13, None]

    def test_async(self, store: Store, parent: Any) -> None:
        with store.batch() as batch:
            children = [parent.create(number, batch=batch) for number in range(10)]
        assert all(children)
        assert list(parent) == list(range(10))

    def test_prefetcher(self, store: Store) -> None:
        subrun = store.create("d").create(1).create(1)
        subrun.ingest("n", np.arange(10), {"": np.arange(10)})
        subrun.prefetch(["n"], 0, 5)
        assert [int(subrun[number]["n"]) for number in range(10)] == list(range(10))
        assert store.statistics.cache_hits == 5


def test_event_set_begin_end(store: Store) -> None:
    def fill(name: str, runs: range, subruns: range, events: range) -> Dataset:
        dataset = store.create(name)
        for run in runs:
            for subrun in subruns:
                dataset.create(run, exist_ok=True).create(subrun).create_many([*events])
        return dataset

    expected = {
        fill("matthieu", range(3, 5), range(6, 9), range(1, 5)): 24,
        fill("zero", range(2), range(3), range(4)): 24,  # where (0, 0, 0) is an event
        fill("empty", range(0), range(0), range(0)): 0,
        fill("runsandsubruns", range(3, 5), range(6, 9), range(0)): 0,
        fill("oneevent", range(1, 2), range(3, 4), range(76, 77)): 1,
    }
    for dataset, count in expected.items():
        events = list(dataset.events())
        assert all(events)
        assert len({event.address for event in events}) == len(events) == count
        loader = StoreLoader(store, dataset.path, [])
        by_shard = [sum(map(len, loader.ranges(shard))) for shard in loader.shards()]
        assert sum(by_shard) == count
    assert [event.number for event in store["oneevent"].events()] == [76]


@pytest.mark.parametrize("level", LEVELS)
class TestLoadStore:
    """``LoadStoreTest`` and ``LoadStoreVectorsTest``."""

    def test_load_store(self, store: Store, level: str) -> None:
        products = owner(store, level)
        products["mykey"] = A
        with pytest.raises(DuplicateItemError):
            products["mykey"] = np.zeros((), A.dtype)
        products["mykey"] = B
        with pytest.raises(MissingItemError):
            products["otherkey"]
        assert products["mykey", A_TYPE] == A
        assert products["mykey", B_TYPE].to_list() == B.to_list()

    def test_async_load_store(self, store: Store, level: str) -> None:
        products = owner(store, level)
        batch = store.batch()
        products.store("mykey", A, batch=batch)
        batch.flush()
        # That it is there already is known when the batch is written, not before.
        products.store("mykey", A, batch=batch)
        with pytest.raises(StoreBatchError) as caught:
            batch.flush()
        assert len(caught.value.failures) == 1
        products.store("mykey", B, batch=batch)
        batch.flush()
        assert products["mykey", A_TYPE] == A
        assert products["mykey", B_TYPE].to_list() == B.to_list()

    def test_load_store_vectors(self, store: Store, level: str) -> None:
        products = owner(store, level)
        products["mykey"] = MANY_A
        with pytest.raises(DuplicateItemError):
            products["mykey"] = MANY_A[:4]
        products["mykey"] = MANY_B
        types = {schema.kind: schema for _, schema in products}
        assert (products["mykey", types["numpy"]] == MANY_A).all()
        assert products["mykey", types["awkward"]].to_list() == MANY_B.to_list()

    def test_load_store_subvectors(self, store: Store, level: str) -> None:
        products = owner(store, level)
        products["mykeyvec"] = MANY_A[1:5]
        products["others"] = MANY_B[1:3]
        assert (products["mykeyvec"] == MANY_A[1:5]).all()
        assert products["others"].to_list() == MANY_B[1:3].to_list()


class TestPtr:
    """``PtrTest``: pointers to products are products."""

    def test_make_and_load(self, store: Store) -> None:
        event, subrun, run = (owner(store, level) for level in ("Event", "SubRun", "Run"))
        event["mykey"], subrun["mykey"] = A, B
        run["mypointerA"], run["mypointerB"] = event.ref("mykey"), subrun.ref("mykey")
        assert store.load(run["mypointerA"]) == A
        assert store.load(run["mypointerB"]).to_list() == B.to_list()


@pytest.mark.parametrize("level", LEVELS)
def test_write_batch(store: Store, level: str) -> None:
    """``WriteBatchTest`` and ``AsyncWriteBatchTest``."""
    with store.batch() as batch:
        for number in range(20):
            dataset = store.create(f"d{number}")
            run = dataset.create(1, batch=batch)
            subrun = run.create(2, batch=batch)
            event = subrun.create(3, batch=batch)
            chosen: Any = dict(zip(LEVELS, (dataset, run, subrun, event), strict=True))[level]
            chosen.products.store("mykey", A, batch=batch)
            chosen.products.store("mykey", B, batch=batch)
    for number in range(20):
        run = store[f"d{number}"][1]
        found: Any = [store[f"d{number}"], run, run[2], run[2][3]][LEVELS.index(level)]
        assert found.products["mykey", A_TYPE] == A
        assert found.products["mykey", B_TYPE].to_list() == B.to_list()


class TestQueue:
    """``QueueTest``."""

    def test_queue_create(self, store: Store) -> None:
        store.queues.create("queue_b", B_TYPE)
        store.queues.create("queue_a", A)
        store.queues.create("other_queue_a", A)
        with pytest.raises(DuplicateItemError):
            store.queues.create("queue_b", B_TYPE)
        del store.queues["queue_a"], store.queues["other_queue_a"]
        assert list(store.queues) == ["queue_b"]

    def test_queue_open(self, store: Store) -> None:
        queue = store.queues.create("queue_b", B)
        assert store.queues["queue_b"] == queue
        assert queue.schema == B_TYPE != A_TYPE
        with pytest.raises(MissingItemError):
            store.queues["queue_a"]

    def test_queue_empty(self, store: Store) -> None:
        queue = store.queues.create("queue_b", B)
        assert queue.empty
        queue.push(B)
        assert not queue.empty
        assert queue.pop().to_list() == B.to_list()
        assert queue.empty

    def test_queue_push_pop(self, store: Store) -> None:
        store.queues.create("queue_b", MANY_B[0], producers=2)
        with pytest.raises(ProductTypeError):
            store.queues["queue_b"].push(A)

        def produce(_: int) -> None:
            queue = store.queues["queue_b"]
            for value in MANY_B:
                queue.push(value)
            queue.close()

        def consume(_: int) -> int:
            return sum(1 for _ in store.queues["queue_b"])

        with ThreadPoolExecutor(4) as threads:
            read = threads.map(consume, range(2))
            list(threads.map(produce, range(2)))
            assert sum(read) == 2 * len(MANY_B)


def test_parallel_event_processor(store: Store) -> None:
    """``ParallelMPITest``: every event once, on whichever worker; absent products are told."""
    dataset = store.create("matthieu")
    for run in range(2):
        for subrun in range(8):
            dataset.create(run, exist_ok=True).create(subrun).create_many(np.arange(8))
    dataset[0][0][0]["hits"] = np.array([], "f4")

    def note(event: LoadedEvent) -> list[Any]:
        return [(event.id, "hits" in event)]

    done = store.process("matthieu", note, products=["hits"], per="event", workers=3)
    expected = [(run, subrun, n) for run in range(2) for subrun in range(8) for n in range(8)]
    assert sorted(done.value) == [(event, event == (0, 0, 0)) for event in expected]
    assert done.events == sum(worker.events for worker in done.workers) == len(expected)
    assert done.summary()["processing_s"].mean > 0


def test_write_restart_and_read(tmp_path: Path) -> None:
    """``WriteAndRestartTest`` and ``RestartAndReadTest``."""
    url = (tmp_path / "store").as_uri() + "?shards=2&sync=false"
    with connect(url) as store:
        for level in LEVELS:
            owner(store, level)["mykey"] = A
        store.queues.create("queue", A).push(A)
    with connect(url) as store:
        assert all(owner(store, level)["mykey"] == A for level in LEVELS)
        assert [event.number for event in store["matthieu"].events()] == [22]
        assert store.queues["queue"].pop() == A
        assert store.verify() > 0
