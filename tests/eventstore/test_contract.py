"""What every store does, whatever it is kept in."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pytest

from hepcache.errors import (
    ConfigurationError,
    DuplicateItemError,
    MissingItemError,
    ProductTypeError,
    StoreBatchError,
    StoreError,
)
from hepcache.eventstore import Ref, Schema, Store, SubRun, connect

VALUES: dict[str, Any] = {
    "bytes": b"\0raw",
    "empty": b"",
    "float": np.array([1.5, np.nan], "f4"),
    "big endian": np.array([1, 2], ">i8"),
    "scalar": np.uint64(2**64 - 1),
    "matrix": np.arange(6, dtype="i2").reshape(2, 3),
    "time": np.array(["2020-01-01"], "datetime64[s]"),
    "structured": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
    "jagged": ak.Array([[1, 2], [], [3]]),
    "records": ak.Array([{"x": 1, "y": ["a", "b"]}, {"x": 2, "y": []}]),
    "options": ak.Array([1.0, None]),
    "record": ak.Record({"x": 1, "y": "text"}),
    "arrow table": pa.table({"q": [1, 2], "s": ["a", None]}),
    "arrow batch": pa.RecordBatch.from_pylist([{"q": 1}]),
    "arrow array": pa.array([1, None, 3], pa.int16()),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic):
        return bool(
            one.dtype.newbyteorder("=") == other.dtype
            and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )
    if isinstance(one, ak.Array | ak.Record):
        return bool(one.to_list() == other.to_list())
    if isinstance(one, pa.Table | pa.RecordBatch | pa.Array):
        return bool(one.equals(other))
    return bool(one == other)


def subrun_of(store: Store) -> SubRun:
    return store.create("nova/prod5").create(43).create(56)


@pytest.mark.parametrize("what", VALUES)
def test_a_product_comes_back_as_it_was(store: Store, what: str) -> None:
    subrun = subrun_of(store)
    dataset = store["nova/prod5"]
    owners = [subrun.create(25), subrun, dataset[43], dataset]
    for owner in owners:
        products = owner.products
        products[what] = VALUES[what]
        assert same(VALUES[what], products[what])
        ((label, schema),) = products
        assert label == what
        assert same(VALUES[what], products[what, schema])
        assert Schema.from_bytes(schema.to_bytes()) == schema
        assert same(VALUES[what], store.load(pickle.loads(pickle.dumps(products.ref(what)))))
        with pytest.raises(DuplicateItemError, match="overwrite"):
            products[what] = VALUES[what]
        products.store(what, VALUES[what], overwrite=True)
        del products[what]
        assert what not in products
        with pytest.raises(MissingItemError):
            products[what]


def test_types_of_one_label_live_side_by_side(store: Store) -> None:
    event = subrun_of(store).create(1)
    event["x"] = np.float32([1])
    event["x"] = np.float64([2])
    with pytest.raises(ProductTypeError, match="float32"):
        event["x"]
    assert event["x", Schema.table({"": "float64"}, kind="numpy")].tolist() == [2]
    with pytest.raises(ProductTypeError, match="int8"):
        event["x", Schema.table({"": "int8"}, kind="numpy")]
    with pytest.raises(ProductTypeError):
        event.store("y", b"", Schema.table({"": "int8"}, kind="numpy"))
    with pytest.raises(ProductTypeError):
        event["y"] = [1, 2]


def test_missing_items_name_the_nearest(store: Store) -> None:
    subrun = subrun_of(store)
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
        assert parent.lower_bound(2) == 255
        assert parent.lower_bound(255) == 255
        assert parent.upper_bound(255) == 256
        assert parent.upper_bound(2**64 - 1) is None
        assert parent.find(2) is None
        assert parent.find(2**64 - 1) == parent[2**64 - 1]
        assert len(parent) == len(numbers)
        assert -1 not in parent
        with pytest.raises(DuplicateItemError):
            parent.create(1)
        with pytest.raises(ConfigurationError):
            parent.create(2**64)


def test_iteration_is_page_by_page(store: Store) -> None:
    subrun = subrun_of(store)
    subrun.create_many(np.arange(5000) * 2)
    assert list(subrun) == list(range(0, 10_000, 2))
    assert list(subrun.irange(3001, 3006)) == [3002, 3004]
    ranges = list(subrun.ranges(1024))
    assert sum(one.count for one in ranges) == 5000
    found = np.concatenate([subrun.numbers(one.low, one.high) for one in ranges])
    assert found.tolist() == list(range(0, 10_000, 2))


def test_deletion_takes_what_is_below_and_nothing_else(store: Store) -> None:
    subrun = subrun_of(store)
    store.create("nova/prod50").create(43).create(56).create(1)["x"] = b"2"
    store.create("nova/prod5/inner").create(1)
    subrun.ingest("x", [1, 2, 3], {"a": np.arange(3)})
    del subrun[2]
    assert list(subrun) == [1, 3]
    assert subrun.read("x").events.tolist() == [1, 3]
    del store["nova/prod5"]
    assert list(store["nova"].datasets) == ["prod50"]
    assert store["nova/prod50"][43][56][1]["x"] == b"2"
    again = subrun_of(store)
    assert list(again) == []
    assert again.labels() == []
    with pytest.raises(MissingItemError):
        store["nova/prod5/inner"]


def test_columns_in_bulk(store: Store) -> None:
    subrun = subrun_of(store)
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


def test_rows_that_are_not_contiguous_are_gathered(store: Store) -> None:
    subrun = subrun_of(store)
    subrun.ingest_rows("s", [9, 4, 9, 4], {"n": np.array([1, 2, 3, 4])})
    assert subrun.read("s").array().n.tolist() == [[2, 4], [1, 3]]


def test_leaves_split_and_join(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hepcache.eventstore.leaves._MOST_EVENTS", 8)
    monkeypatch.setattr("hepcache.eventstore.products._SMALL", 4)
    monkeypatch.setattr("hepcache.eventstore.numbers._MOST", 8)
    subrun = subrun_of(store)
    order = np.random.default_rng(3).permutation(400)
    for part in np.split(order, 40):
        numbers = np.sort(part)
        subrun.ingest("n", numbers, {"v": numbers * 2}, np.arange(len(numbers) + 1))
    assert subrun.numbers().tolist() == list(range(400))
    assert subrun.read("n").columns["v"].tolist() == list(range(0, 800, 2))
    assert subrun.read("n", None, 37, 59).events.tolist() == list(range(37, 59))
    assert subrun[123]["n"]["v"].tolist() == [246]


def test_single_products_become_leaves(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hepcache.eventstore.localshard._MOST_ROWS", 16)
    subrun = subrun_of(store)
    for number in np.random.default_rng(5).permutation(50).tolist():
        subrun.create(number)["v"] = np.array([number, number])
    assert subrun.read("v").array().tolist() == [[one, one] for one in range(50)]
    subrun[7].store("v", np.array([1]), overwrite=True)
    del subrun[8]["v"]
    assert subrun.read("v", None, 6, 10).array().tolist() == [[6, 6], [1], [9, 9]]


def test_a_batch_writes_all_and_reports_what_it_could_not(store: Store) -> None:
    subrun = subrun_of(store)
    with store.batch(size=10) as batch:
        for number in range(35):
            subrun.create(number, batch=batch).store("v", np.array([number]), batch=batch)
        batch.flush()
        assert len(subrun) == 35
    assert batch.acknowledged == 70
    assert store.statistics.batch_items.count >= 4
    assert subrun.read("v").columns[""].tolist() == list(range(35))

    def again() -> None:
        with store.batch() as batch:
            subrun.at(3).store("v", np.array([0]), batch=batch)

    with pytest.raises(StoreBatchError, match=r"product 'v' of .*43/56, events 3") as caught:
        again()
    assert len(caught.value.failures) == 1
    assert subrun[3]["v"].tolist() == [3]


def test_prefetched_products_come_from_memory(store: Store) -> None:
    subrun = subrun_of(store)
    schema = Schema.table({"": "int64"}, kind="numpy", layout="one")
    subrun.ingest("v", np.arange(10), {"": np.arange(10)}, schema=schema)
    subrun.prefetch(["v"], 0, 8)
    assert [int(subrun[one]["v"]) for one in range(10)] == list(range(10))
    assert store.statistics.cache_hits == 8
    subrun[3].store("v", np.int64(77), overwrite=True)
    assert int(subrun[3]["v"]) == 77


def test_references_lead_to_ranges(store: Store) -> None:
    event = subrun_of(store).create(1)
    event["hits"] = np.arange(10)
    event["best"] = event.ref("hits")[2:4]
    ref = event["best"]
    assert isinstance(ref, Ref)
    assert store.load(ref).tolist() == [2, 3]
    assert store.open(ref.address) == event


def test_names_may_be_any_text(store: Store) -> None:
    for name in ("ä b", "μ→e", "日本", "x" * 255):
        store.create(f"d/{name}").create(1).create(1).create(1)[name] = b"1"
    assert set(store["d"].datasets) == {"ä b", "μ→e", "日本", "x" * 255}
    with pytest.raises(ConfigurationError):
        store.create("a\nb")


def test_type_identity_is_golden() -> None:
    # It is stored: it may never change.
    schema = Schema.table({"b": "float32", "a": "var * ?int64"})
    assert schema.identity == Schema.table({"a": "var * ?int64", "b": np.float32}).identity
    assert schema.identity.hex() == "6e7077724a388ff656bf4bac885de1b9"


def test_a_store_on_disk_lasts(tmp_path: Path) -> None:
    url = (tmp_path / "s").as_uri()
    with connect(f"{url}?shards=3") as store:
        subrun_of(store).ingest("v", [1], {"a": np.array([5])})
    with connect(url) as store:
        assert len(store.shards) == 3
        assert store["nova/prod5"][43][56][1]["v"]["a"] == 5
        assert store.verify() > 0
    with pytest.raises(ConfigurationError, match="3"):
        connect(f"{url}?shards=4")


def test_a_damaged_value_is_an_error(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        subrun_of(store).ingest("v", np.arange(1000), {"a": np.full(1000, 0x5A5A5A5A)})
    path = next(tmp_path.rglob("data.mdb"))
    data = path.read_bytes()
    needle = (0x5A5A5A5A).to_bytes(8, "little") * 100
    assert needle in data
    path.write_bytes(data.replace(needle, b"\x01" + needle[1:], 1))
    with connect(tmp_path / "s") as store:
        with pytest.raises(StoreError, match="damaged"):
            store["nova/prod5"][43][56].read("v")
        with pytest.raises(StoreError, match="damaged"):
            store["nova/prod5"][43][56][5]["v"]
        with pytest.raises(StoreError, match="damaged"):
            store.verify()
