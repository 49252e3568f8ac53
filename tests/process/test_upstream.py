"""What hepcache uses of coffea, awkward and distributed without their promise to keep it.

A test that fails here after an upgrade names the thing that has changed.
"""

from __future__ import annotations

import dataclasses
import inspect
import pickle

import awkward as ak
import numpy as np
import pytest
from coffea.processor import DaskExecutor
from distributed import Scheduler, SchedulerPlugin
from distributed.stealing import WorkStealing

from hepcache.process import Executor, Runner
from hepcache.process.upstream import (
    FileMeta,
    LazyContents,
    WorkItem,
    buffer_key,
    coffea_work,
    compress,
    decompress,
    key_to_tuple,
    lazy_record,
)
from hepcache.process.upstream import Runner as CoffeaRunner


def test_coffeas_work_function_takes_what_ours_takes() -> None:
    ours = inspect.signature(Runner._work_function).parameters
    assert list(ours) == list(inspect.signature(coffea_work).parameters)


@pytest.mark.parametrize(
    "name", ["_preprocess_fileset_root", "_chunk_generator", "_run_impl", "_work_function"]
)
def test_the_runners_hooks_are_still_called(name: str) -> None:
    assert callable(getattr(CoffeaRunner, name))
    source = inspect.getsource(CoffeaRunner)
    assert source.count(f"self.{name}") >= 1


def test_runner_and_executor_take_all_of_coffeas_options() -> None:
    for ours, theirs in ((Runner, CoffeaRunner), (Executor, DaskExecutor)):
        assert {f.name for f in dataclasses.fields(theirs)} <= {
            f.name for f in dataclasses.fields(ours)
        }


def test_work_items_have_the_fields_we_copy() -> None:
    assert [field.name for field in dataclasses.fields(WorkItem)] == [
        "dataset", "filename", "treename", "entrystart", "entrystop", "fileuuid", "usermeta",
        "preload",
    ]  # fmt: skip
    assert FileMeta.__slots__ == ["dataset", "filename", "treename", "metadata", "preload"]


def test_results_are_compressed_as_in_coffea() -> None:
    value = {"out": np.arange(5).tolist()}
    assert decompress(compress(value, 1)) == value
    assert compress(value, None) is value


def test_buffer_keys_have_their_parts_where_we_look() -> None:
    make = buffer_key(("uuid", "Events", "0-10"))
    key = make(form_key="Jet_pt%2C%21load%2C%21content", attribute="data", form=None)
    assert key_to_tuple(key) == ("uuid", "Events", "0-10", "data", "Jet_pt,!load,!content")
    offsets = make(form_key="nJet%2C%21load", attribute="offsets", form=None)
    assert key_to_tuple(offsets)[-1] == "nJet,!load,!offsets"


def test_the_scheduler_asks_one_method_for_costs() -> None:
    assert "self.get_comm_cost(ts, ws)" in inspect.getsource(Scheduler.worker_objective)
    for method in (WorkStealing.balance, WorkStealing.stealing_objective):
        assert "self.scheduler.get_comm_cost(" in inspect.getsource(method)


def test_plugin_hooks_keep_their_arguments() -> None:
    for name, expected in {
        "update_graph": {"scheduler", "keys"},
        "transition": {"key", "start", "finish"},
        "add_worker": {"scheduler", "worker"},
        "remove_worker": {"scheduler", "worker"},
        "remove_client": {"scheduler", "client"},
    }.items():
        assert expected <= set(inspect.signature(getattr(SchedulerPlugin, name)).parameters)


def lazy(fields: int = 5, length: int = 4) -> tuple[ak.contents.RecordArray, list[int]]:
    made: list[int] = []

    def make(position: int) -> ak.contents.Content:
        made.append(position)
        return ak.contents.NumpyArray(np.arange(length) + 10 * position)

    names = [f"f{i}" for i in range(fields)]
    return lazy_record(names, length, {"__record__": "Thing"}, make), made


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
    eager = ak.Array(
        {f"f{i}": np.arange(4) + 10 * i for i in range(5)},
    )
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
