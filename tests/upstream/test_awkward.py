"""What hepcache uses of awkward without its promise to keep it: each part by name."""

from __future__ import annotations

import inspect
import pickle

import awkward as ak
import numpy as np
import pytest
from awkward.operations.ak_from_buffers import _reconstitute
from tests.versions import since

from hepcache.upstream.awkward import UNKNOWN, LazyContents, lazy_record, virtual_buffer


def lazy(fields: int = 5, length: int = 4) -> tuple[ak.contents.RecordArray, list[int]]:
    made: list[int] = []

    def make(position: int) -> ak.contents.Content:
        made.append(position)
        return ak.contents.NumpyArray(np.arange(length) + 10 * position)

    names = [f"f{i}" for i in range(fields)]
    return lazy_record(names, length, {"__record__": "Thing"}, make), made


@since("awkward", "2.14")  # before, all contents are made, which loads nothing
def test_a_lazy_record_makes_only_what_is_touched() -> None:
    layout, made = lazy()
    array = ak.Array(layout)
    assert array.fields == ["f0", "f1", "f2", "f3", "f4"]
    assert len(array) == 4
    assert made == []
    assert array.f3.to_list() == [30, 31, 32, 33]
    assert array[np.array([True, False, True, False])].f1.to_list() == [10, 12]
    assert array[["f0", "f3"]].f0.to_list() == [0, 1, 2, 3]
    assert made == [3, 1, 0]


def test_a_lazy_record_is_the_same_as_an_eager_one() -> None:
    layout, _ = lazy()
    array = ak.Array(layout)
    eager = ak.Array({f"f{i}": np.arange(4) + 10 * i for i in range(5)})
    eager = ak.with_name(eager, "Thing")
    assert array.to_list() == eager.to_list()
    assert array.type == eager.type
    assert array[1:3].to_list() == eager[1:3].to_list()
    assert array[[3, 0]].to_list() == eager[[3, 0]].to_list()
    assert ak.with_field(array, 1, "new").fields == [*eager.fields, "new"]
    assert ak.concatenate([array, array]).to_list() == ak.concatenate([eager, eager]).to_list()
    assert ak.to_packed(array).to_list() == eager.to_list()
    assert pickle.loads(pickle.dumps(array)).to_list() == eager.to_list()
    assert [record["f2"] for record in array] == [20, 21, 22, 23]


def test_lazy_contents_behave_as_the_list_they_stand_for() -> None:
    contents = LazyContents(lambda position: position + 100, 4)
    assert contents.made == 0
    assert contents[-1] == 103
    assert contents.made == 1
    assert contents[1:3] == [101, 102]
    assert list(contents) == [100, 101, 102, 103]
    assert [*reversed(contents)] == [103, 102, 101, 100]
    assert contents.__add__([1]) == [100, 101, 102, 103, 1]
    assert contents.copy() == [100, 101, 102, 103]
    assert pickle.loads(pickle.dumps(contents)) == [100, 101, 102, 103]
    with pytest.raises(IndexError):
        contents[4]


def test_a_record_array_keeps_its_parts_where_we_set_them() -> None:
    record = ak.contents.RecordArray([], [], 0)
    for name in ("_contents", "_fields", "_length", "_length_generator", "_parameters"):
        assert hasattr(record, name)
    layout = lazy_record(["x"], UNKNOWN, {}, lambda _: ak.contents.EmptyArray(), lambda: 3)
    assert layout.length == 3


def test_contents_are_made_of_buffers_by_these_arguments() -> None:
    assert list(inspect.signature(_reconstitute).parameters)[:9] == [
        "form", "length", "container", "getkey", "backend", "byteorder", "simplify",
        "shape_generator", "enable_virtualarray_caching",
    ]  # fmt: skip


@pytest.mark.parametrize("keep", [True, False])
def test_a_virtual_buffer_is_loaded_when_it_is_used_and_checked(keep: bool) -> None:
    loads: list[int] = []

    def buffer() -> bytes:
        loads.append(1)
        return np.arange(4, dtype=np.int64).tobytes()

    def virtual(length: int) -> ak.contents.NumpyArray:
        data = virtual_buffer(
            lambda: np.frombuffer(buffer(), np.uint8), "x", np.dtype(np.int64), length,
            lambda: (length,), keep=keep,
        )  # fmt: skip
        return ak.contents.NumpyArray(data)

    layout = virtual(3)
    assert layout.length == 3
    assert loads == []
    assert ak.to_list(layout) == [0, 1, 2]
    assert loads
    with pytest.raises(TypeError, match="less than size of form"):
        ak.to_list(virtual(5))
