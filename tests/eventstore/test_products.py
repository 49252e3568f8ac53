"""Products come back as they were, whatever the store is kept in."""

from __future__ import annotations

import pickle
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pytest

from hepcache.errors import DuplicateItemError, MissingItemError, ProductTypeError
from hepcache.eventstore import Ref, Schema, Store, SubRun

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
    "text": "μ→e\0",
    "no text": "",
    "texts": np.array(["ab", "", "μ→e"]),
    "byte texts": np.array([[b"ab", b""], [b"c", b"d"]]),
    "no texts": np.array([], "U5"),
    "structured texts": np.array([("ab", 1.5, b"x")], [("a", "U4"), ("b", "f8"), ("c", "S3")]),
    "one structured text": np.array([("ab", 1.5)], [("a", "U4"), ("b", "f8")])[0],
    "arrow table": pa.table({"q": [1, 2], "s": ["a", None]}),
    "arrow batch": pa.RecordBatch.from_pylist([{"q": 1}]),
    "arrow array": pa.array([1, None, 3], pa.int16()),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic):
        if one.dtype.kind in "SUV":
            # The width of text is that of the longest.
            return bool(one.tolist() == other.tolist() and one.dtype.kind == other.dtype.kind)
        return bool(
            one.dtype.newbyteorder("=") == other.dtype
            and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )
    if isinstance(one, ak.Array | ak.Record):
        return bool(one.to_list() == other.to_list())
    if isinstance(one, pa.Table | pa.RecordBatch | pa.Array):
        return bool(one.equals(other))
    return bool(one == other)


@pytest.mark.parametrize("what", VALUES)
def test_a_product_comes_back_as_it_was(store: Store, subrun: SubRun, what: str) -> None:
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


def test_types_of_one_label_live_side_by_side(store: Store, subrun: SubRun) -> None:
    event = subrun.create(1)
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
        event["y"] = {1, 2}


PLAIN: dict[str, Any] = {
    "int": 5,
    "large": 2**64 - 1,
    "bool": True,
    "float": 1.5,
    "complex": 1 + 2j,
    "str": "muon",
    "texts": ["a", "bcd", ""],
    "bytes": [b"a", b"bcd"],
    "numbers": [1, 2, 3],
    "mixed": (1, 2.5),
    "bools": [True, False],
}


@pytest.mark.parametrize("what", PLAIN)
def test_plain_python_values_are_stored(store: Store, subrun: SubRun, what: str) -> None:
    value = PLAIN[what]
    for owner in (subrun.create(1), store["nova/prod5"]):
        owner.products[what] = value
        read = owner.products[what]
        assert type(read) is str if isinstance(value, str) else hasattr(read, "dtype")
        assert (read.tolist() if hasattr(read, "tolist") else read) == (
            list(value) if isinstance(value, tuple) else value
        )


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ([], "numpy.array"),
        ([1, "a"], "list of int, str"),
        ([[1], [2]], "list of list"),
        ([True, 1], "bool, int"),
        ([-1, 2**63 + 1], "64 bits"),
        (2**70, "64 bits"),
        (["a\0"], "NUL"),
        (None, "NoneType"),
    ],
    ids=str,
)
def test_values_that_would_change_are_refused(subrun: SubRun, value: Any, hint: str) -> None:
    with pytest.raises(ProductTypeError, match=hint):
        subrun.create(1)["x"] = value


def test_texts_of_any_length_are_one_type(subrun: SubRun) -> None:
    subrun.create(1)["names"] = ["a", "b"]
    subrun.create(2)["names"] = np.array(["neutrino"])
    subrun.ingest("cut", [1, 2], {"name": np.array(["loose", "tight"])})
    assert subrun.read("names").array().to_list() == [["a", "b"], ["neutrino"]]
    assert subrun.read("cut").array().to_list() == [{"name": "loose"}, {"name": "tight"}]
    assert subrun[2]["cut"].to_list() == {"name": "tight"}


def test_references_lead_to_ranges(store: Store, subrun: SubRun) -> None:
    event = subrun.create(1)
    event["hits"] = np.arange(10)
    event["best"] = event.ref("hits")[2:4]
    ref = event["best"]
    assert isinstance(ref, Ref)
    assert store.load(ref).tolist() == [2, 3]
    assert store.open(ref.address) == event


@pytest.mark.parametrize("batched", [False, True])
def test_columns_in_another_order_are_the_same_type(
    store: Store, subrun: SubRun, batched: bool
) -> None:
    first, second = {"a": 1, "b": 2}, {"b": 20, "a": 10}
    owners = [subrun.create(1), subrun.create(2), subrun, store.create("other")]
    labels = "xy"
    for label, values in zip(labels, (first, second), strict=True):
        for owner in owners:
            rows = ak.Array([values])
            if batched:
                with store.batch() as batch:
                    owner.products.store(label, rows, batch=batch)
            else:
                owner.products[label] = rows
            asked = owner.products[label, Schema.table({"b": "int64", "a": "int64"})]
            for read in (owner.products[label], asked):
                assert read.to_list() == [values]
    again = ak.Array([second])
    subrun[1].store("x", again, overwrite=True)
    assert subrun.read("x").array().to_list() == [[second], [first]]
    assert subrun.read("x", ["b"]).array().b.to_list() == [[20], [2]]
