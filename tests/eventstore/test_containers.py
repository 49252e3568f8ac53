"""Containers are ordered mappings, whatever the store is kept in."""

from __future__ import annotations

import pickle
from pathlib import Path

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
from hepcache.eventstore import Address, Store, SubRun, Table, connect


def test_missing_items_name_the_nearest(store: Store, subrun: SubRun) -> None:
    for number in (3, 9, 20):
        subrun.create(number)["energy"] = b"1"
    with pytest.raises(MissingItemError, match="nearest: 9, 3, 20") as caught:
        subrun[8]
    assert isinstance(caught.value, KeyError)
    with pytest.raises(MissingItemError, match="nearest: nova"):
        store["nov"]
    with pytest.raises(MissingItemError, match="nearest: energy"):
        subrun[3]["enrgy"]
    with pytest.raises(MissingItemError, match="run 1"):
        store["nova/prod5"][1]
    with pytest.raises(MissingItemError, match="nearest: energy"):
        subrun.read("enrgy")


def test_a_product_creates_its_event(store: Store, subrun: SubRun) -> None:
    subrun.at(7)["energy"] = b"1"
    assert list(subrun) == [7]
    removed = subrun.create(9)
    del subrun[9]
    removed["energy"] = b"2"
    with store.batch() as batch:
        subrun.at(3).store("energy", b"3", batch=batch)
    assert list(subrun) == subrun.numbers().tolist() == [3, 7, 9]
    assert subrun[3]["energy"] == b"3"
    # An error leaves no event behind.
    subrun.ingest("hits", [9], {"": np.array([1])})
    with pytest.raises(DuplicateItemError):
        subrun.ingest("hits", [5, 9], {"": np.array([1, 2])})
    assert list(subrun) == [3, 7, 9]
    assert store.verify() > 0


def test_numbers_ascend_and_are_found(store: Store) -> None:
    numbers = [0, 1, 255, 256, 2**32, 2**63, 2**64 - 1]
    dataset = store.create("d")
    run = dataset.create(2**64 - 1)
    subrun = run.create(0)
    for parent in (dataset, run, subrun):
        for number in reversed(numbers):
            parent.create(number, exist_ok=True)
        assert list(parent) == numbers
        assert list(reversed(parent)) == numbers[::-1]
        assert list(parent.irange(1, 256)) == [1, 255]
        assert list(parent.irange(1, 256, reverse=True)) == [255, 1]
        assert parent.at_least(2) == parent.lower_bound(2) == 255
        assert parent.at_least(255) == 255
        assert parent.after(255) == parent.upper_bound(255) == 256
        assert parent.after(2**64 - 1) is None
        assert parent.find(2) is None
        assert parent.find(2**64 - 1) == parent[2**64 - 1]
        assert len(parent) == len(numbers)
        assert -1 not in parent
        with pytest.raises(DuplicateItemError):
            parent.create(1)
        with pytest.raises(ConfigurationError):
            parent.create(2**64)


def test_datasets_have_bounds_by_name(store: Store) -> None:
    for name in ("ds1", "ds3", "dsB", "äs"):
        store.create(f"above/{name}").create(1)
    datasets = store["above"].datasets
    assert datasets.at_least("ds3") == "ds3"
    assert datasets.at_least("ds2") == "ds3"
    assert datasets.after("ds3") == "dsB"
    assert datasets.after("ds") == "ds1"
    assert datasets.after("dsB") == "äs"
    assert datasets.after("äs") is None
    assert datasets.at_least("äsz") is None
    assert store.datasets.at_least("a") == "above"


def test_handles_are_true_while_they_exist(store: Store, subrun: SubRun) -> None:
    dataset = store["nova/prod5"]
    event = subrun.create(1)
    for handle in (store, dataset, dataset[43], subrun, event):
        assert handle
        assert not len(event)
    for handle in (dataset.at(7), dataset.at(7).at(1), dataset[43].at(7), subrun.at(7)):
        assert not handle
    del subrun[1]
    assert not event
    assert subrun
    del store["nova/prod5"]
    again = store.create("nova/prod5")
    assert again
    for handle in (dataset, subrun):
        assert not handle
        assert handle.path.startswith("nova/prod5")


def test_all_events_of_a_dataset_in_one_loop(store: Store) -> None:
    dataset = store.create("d")
    expected = [(run, subrun, event) for run in (3, 7) for subrun in (0, 2) for event in (1, 9)]
    for run, subrun, event in reversed(expected):
        owner = dataset.create(run, exist_ok=True).create(subrun, exist_ok=True)
        owner.create(event)["id"] = [run, subrun, event]
    dataset.create(8).create(1)
    store.create("d/inner").create(1).create(1).create(1)
    assert [tuple(event["id"].tolist()) for event in dataset.events()] == expected
    assert list(store.create("empty").events()) == []


def test_handles_are_the_same_in_another_process(tmp_path: Path) -> None:
    with connect(tmp_path / "store") as store:
        dataset = store.create("nova/prod5")
        run = dataset.create(43)
        event = run.create(56).create(25)
        event["hits"] = [1, 2]
        handles = [store, dataset, run, run[56], event, store.datasets, dataset.products]
        for handle, again in zip(handles, pickle.loads(pickle.dumps(handles)), strict=True):
            assert again == handle
            assert bool(again) == bool(handle)
            assert str(again) == str(handle) or handle is not event
        again = pickle.loads(pickle.dumps(event))
        assert again["hits"].tolist() == [1, 2]
        assert again.subrun.path == "nova/prod5/43/56"
        again.subrun.store.close()


def test_errors_name_paths(store: Store, subrun: SubRun) -> None:
    event = subrun.create(1)
    event["x"] = 1
    subrun.products["c"] = 1
    path = "nova/prod5/43/56"
    # An address has no path: it is looked up.
    again = store.open(event.address)
    with pytest.raises(DuplicateItemError, match=f"event {path}/1 "):
        again.products["x"] = 1
    with pytest.raises(MissingItemError, match=f"subrun {path}"):
        store.open(subrun.address)[2]  # type: ignore[index]
    for product, wanted in (("x", f"product 'x' of {path}, events 1:"), ("c", f"of {path}:")):
        batch = store.batch()
        owner = event if product == "x" else subrun.products
        owner.store(product, 2, batch=batch)
        with pytest.raises(StoreBatchError, match=wanted) as caught:
            batch.flush()
        assert store["nova/prod5"].uuid not in str(caught.value)
    unknown = store.open(Address("0" * 32, 1))
    assert not unknown
    assert unknown.path == "0" * 32 + "/1"  # type: ignore[union-attr]


def test_iteration_is_page_by_page(subrun: SubRun) -> None:
    subrun.create_many(np.arange(5000) * 2)
    assert list(subrun) == list(range(0, 10_000, 2))
    assert list(subrun.irange(3001, 3006)) == [3002, 3004]
    ranges = list(subrun.ranges(1024))
    assert sum(one.count for one in ranges) == 5000
    found = np.concatenate([subrun.numbers(one.low, one.high) for one in ranges])
    assert found.tolist() == list(range(0, 10_000, 2))


def test_deletion_takes_what_is_below_and_nothing_else(store: Store, subrun: SubRun) -> None:
    store.create("nova/prod50").create(43).create(56).create(1)["x"] = b"2"
    store.create("nova/prod5/inner").create(1)
    subrun.ingest("x", [1, 2, 3], {"a": np.arange(3)})
    del subrun[2]
    assert list(subrun) == [1, 3]
    assert subrun.read("x").events.tolist() == [1, 3]
    del store["nova/prod5"]
    assert list(store["nova"].datasets) == ["prod50"]
    assert store["nova/prod50"][43][56][1]["x"] == b"2"
    again = store.create("nova/prod5").create(43).create(56)
    assert list(again) == []
    assert again.labels() == []
    with pytest.raises(MissingItemError):
        store["nova/prod5/inner"]


def test_columns_in_bulk(subrun: SubRun) -> None:
    text = ak.Array(["a", "b", "c"])
    subrun.ingest("s", [3, 7], {"n": np.array([30, 10, 20]), "t": text}, [0, 1, 3])
    subrun.ingest("s", [5], {"n": np.array([4]), "t": ak.Array(["d"])}, [0, 1])
    table = subrun.read("s", ["n"])
    assert table.events.tolist() == [3, 5, 7]
    assert table.array().tolist() == [[{"n": 30}], [{"n": 4}], [{"n": 10}, {"n": 20}]]
    assert subrun.read("s", "t", 5, 7).array().tolist() == [[{"t": "d"}]]
    assert len(subrun.read("s", None, 8)) == 0
    assert subrun[7]["s"].tolist() == [{"n": 10, "t": "b"}, {"n": 20, "t": "c"}]
    with pytest.raises(DuplicateItemError, match="43/56/7"):
        subrun.ingest("s", [6, 7], {"n": np.arange(2), "t": text[:2]}, [0, 1, 2])
    assert 6 not in subrun
    with pytest.raises(ConfigurationError, match="ascending"):
        subrun.ingest("s", [2, 1], {"n": np.arange(2), "t": text[:2]}, [0, 1, 2])
    with pytest.raises(ConfigurationError, match="rows"):
        subrun.ingest("s", [8], {"n": np.arange(2), "t": text[:2]}, [0, 1])
    with pytest.raises(ConfigurationError, match="one of n, t"):
        subrun.read("s", ["q"])


def test_rows_that_are_not_contiguous_are_gathered(subrun: SubRun) -> None:
    subrun.ingest_rows("s", [9, 4, 9, 4], {"n": np.array([1, 2, 3, 4])})
    assert subrun.read("s").array().n.tolist() == [[2, 4], [1, 3]]


def test_names_may_be_any_text(store: Store) -> None:
    for name in ("ä b", "μ→e", "日本", "x" * 255):
        store.create(f"d/{name}").create(1).create(1).create(1)[name] = b"1"
    assert set(store["d"].datasets) == {"ä b", "μ→e", "日本", "x" * 255}
    with pytest.raises(ConfigurationError):
        store.create("a\nb")


def test_tables_of_several_labels_are_written_as_one(store: Store, subrun: SubRun) -> None:
    hits = Table.build(None, [1, 2], {"n": np.array([5, 6])})
    tracks = Table.build(None, [2, 3], {"p": np.array([1.5, 2.5]), "q": np.array([1, -1])})
    subrun.write_many({"hit": hits, "track": tracks})
    assert list(subrun) == [1, 2, 3]
    assert subrun[2]["hit"]["n"] == 6
    assert subrun.read("track", "q").array().q.tolist() == [1, -1]
    with pytest.raises(DuplicateItemError):
        subrun.write_many({"new": hits, "track": tracks})
    assert [label for label, _ in subrun.labels()] == ["hit", "track"]
    with pytest.raises(ProductTypeError, match="only q"):
        subrun.write_many({"part": subrun.read("track", "q")})
