"""What the sink writes, the source reads, for every mapping and kind of field."""

import awkward as ak
import numpy as np
import pytest
import uproot

from hepcache.errors import ConfigurationError, ObjectMissingError
from hepcache.objectstore import open_store
from hepcache.rntuple import (
    MAPPINGS,
    NTuple,
    Sink,
    WriteOptions,
    open_in_file,
    open_ntuple,
    write_array,
    write_tree,
)


@pytest.fixture(scope="module")
def array():
    rng = np.random.default_rng(7)
    n = 4000
    counts = rng.poisson(2.5, n)
    total = int(counts.sum())
    columns = {
        dtype: rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype, endpoint=True)
        for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    }
    return ak.Array(
        {
            **columns,
            "bool": rng.random(n) < 0.3,
            "float32": rng.normal(size=n).astype("f4"),
            "float64": np.where(rng.random(n) < 0.01, np.nan, rng.normal(size=n)),
            "list": ak.unflatten(rng.normal(size=total).astype("f4"), counts),
            "flags": ak.unflatten(rng.random(total) < 0.5, counts),
            "nested": ak.Array([[[1, 2], []], [], [[3]]] * (n // 3 + 1))[:n],
            "text": ak.Array(["", "abc", "\u00e4\u00f6"] * (n // 3) + ["x"] * (n - n // 3 * 3)),
            "fixed": ak.to_regular(rng.normal(size=(n, 3))),
            "record": ak.zip(
                {"a": columns["int32"], "b": ak.unflatten(np.arange(total), counts)}, depth_limit=1
            ),
            "items": ak.zip(
                {
                    "pt": ak.unflatten(np.arange(total) * 0.5, counts),
                    "charge": ak.unflatten(rng.integers(-1, 2, total), counts),
                }
            ),
            "option": ak.mask(columns["int16"], rng.random(n) < 0.5),
            "pair": ak.zip((columns["int8"], columns["uint16"])),
        }
    )


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4", "lz4:9", "zlib:1", "lzma:1"])
def test_all_types_come_back(array, compression):
    options = WriteOptions(compression=compression, page_bytes=4096, cluster_bytes=100_000)
    write_array(f"ntpl+mem://types/{compression}", "Events", array, options)
    with open_ntuple(f"ntpl+mem://types/{compression}") as ntuple:
        assert (ntuple.name, ntuple.entries) == ("Events", len(array))
        assert len(ntuple.boundaries) > 4
        assert ntuple.names == array.fields
        same(ntuple.arrays(), array)


def same(a, b):
    assert a.fields == b.fields
    for name in a.fields:
        found, expected = ak.to_packed(a[name]), ak.to_packed(b[name])
        if name == "float64":
            assert found.to_numpy().tobytes() == expected.to_numpy().tobytes()
        else:
            assert found.tolist() == expected.tolist(), name


def test_alternatives_of_every_cluster_come_back():
    draw = np.random.default_rng(8)
    values = [7, "text", [0.5, 1.5], -1, ""]
    alternatives = [values[choice] for choice in draw.integers(0, 5, 3000)]
    lists = ak.unflatten(ak.Array([values[one] for one in draw.integers(0, 2, 6000)]), 2)
    written = ak.Array({"alternative": alternatives, "list": lists[draw.permutation(3000)]})
    options = WriteOptions(page_bytes=1024, cluster_bytes=20_000)
    write_array("ntpl+mem://types/alternatives", "Events", written, options)
    with open_ntuple("ntpl+mem://types/alternatives") as ntuple:
        assert len(ntuple.boundaries) > 4
        for name in written.fields:
            assert ntuple.arrays([name])[name].tolist() == written[name].tolist()
            middle = ntuple.arrays([name], 1234, 2345)[name]
            assert middle.tolist() == written[name][1234:2345].tolist()


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("scheme", ["memory", "directory"])
def test_every_mapping(array, mapping, scheme, tmp_path):
    uri = f"ntpl+mem://maps/{mapping}" if scheme == "memory" else f"ntpl+file://{tmp_path}/nt"
    options = WriteOptions(
        mapping=mapping, page_bytes=8192, cluster_bytes=200_000, object_bytes=60_000
    )
    anchor = write_array(uri, "Events", array, options)
    assert anchor.mapping == mapping
    store = open_store(uri)
    sizes = dict(store.list(".pages/"))
    assert max(sizes.values()) <= 60_000
    with NTuple(store) as ntuple:
        same(ntuple.arrays(), array)
        for low, high in [(0, 0), (0, 1), (777, 1234), (3999, 4000), (1000, 4000)]:
            names = ["list", "text", "items", "option", "float32"]
            part = ntuple.arrays(names, low, high)
            assert part.tolist() == array[names][low:high].tolist()
        found = list(ntuple.iterate(["int64", "list"], entries=700))
        assert len(found) > 1
        assert ak.concatenate(found).tolist() == array[["int64", "list"]].tolist()
        inner = ntuple.layouts(["items.pt"], 5, 9)["items.pt"]
        assert inner.to_list() == array["items", "pt"][5:9].tolist()


def test_a_file_of_uproot_is_copied_through_the_sink(array, tmp_path):
    names = [name for name in array.fields if name not in ("option", "pair", "record")]
    with uproot.recreate(tmp_path / "a.root") as file:
        ntuple = file.mkrntuple("Events", array[names][:0])
        for start in range(0, 4000, 1000):
            ntuple.extend(array[names][start : start + 1000])
    with open_in_file(str(tmp_path / "a.root"), "Events") as ntuple:
        same(ntuple.arrays(), array[names])
        assert ntuple.boundaries == (0, 1000, 2000, 3000, 4000)
    with uproot.open(tmp_path / "a.root") as file:
        write_tree("ntpl+mem://copied/a", file["Events"])
    with open_ntuple("ntpl+mem://copied/a") as ntuple:
        same(ntuple.arrays(), array[names])


def test_nothing_is_seen_before_the_end(array):
    store = open_store("ntpl+mem://unseen/a")
    sink = Sink(store, "Events", WriteOptions(cluster_bytes=50_000))
    sink.extend(array)
    assert not sink.closed
    sink.abort()
    assert list(store.list(".pages/"))
    with pytest.raises(ObjectMissingError):
        NTuple(store)


def test_leaving_with_an_error_drops_the_ntuple(array):
    def fail():
        with Sink("ntpl+mem://unseen/b", "Events") as sink:
            sink.extend(array)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(ObjectMissingError):
        open_ntuple("ntpl+mem://unseen/b")


def test_an_ntuple_is_replaced_while_it_is_read(array):
    uri = "ntpl+mem://replaced/a"
    write_array(uri, "Events", array[:100])
    with open_ntuple(uri) as before:
        write_array(uri, "Events", array[100:300])
        assert before.arrays(["int8"]).int8.tolist() == array.int8[:100].tolist()
    with open_ntuple(uri) as after:
        assert after.arrays(["int8"]).int8.tolist() == array.int8[100:300].tolist()


def test_what_no_ntuple_can_hold_is_refused():
    for array, problem in [
        ({"x": np.array(["2020-01-01"], "M8[s]")}, "field 'x'"),
        ({"x": np.array([1j])}, "field 'x'"),
        (np.arange(3), "named fields"),
    ]:
        with pytest.raises(ConfigurationError, match=problem):
            write_array("ntpl+mem://refused", "Events", array)
    sink = Sink("ntpl+mem://refused", "Events")
    sink.extend({"x": [1]})
    with pytest.raises(ConfigurationError, match="first array"):
        sink.extend({"x": [1.5]})
    sink.abort()


@pytest.mark.parametrize(
    "values",
    [
        [1.5, None, "a"],
        [None, 1.5, [3], None],
        [[1.5, None, "s"], [], ["t"]],
        [1.5, [1, None], []],
    ],
)
def test_a_union_with_missing_values_comes_back(values, tmp_path):
    array = ak.Array([{"x": value} for value in values * 300])
    uri = f"ntpl+file://{tmp_path}/union"
    options = WriteOptions(page_bytes=1024, cluster_bytes=1024)
    write_array(uri, "Events", array, options)
    with open_ntuple(uri) as ntuple:
        assert len(ntuple.metadata.clusters) > 1
        assert ntuple.arrays().x.to_list() == values * 300


def test_a_union_with_missing_records_is_refused_by_the_name_of_its_field():
    array = ak.Array([{"x": {"a": 1}}, {"x": None}, {"x": "text"}])
    with pytest.raises(ConfigurationError, match=r"field 'x'.*no options of records"):
        write_array("ntpl+mem://bench/union-of-records", "Events", array)
