"""Other people's executors: threads, and the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
from distributed import Client, LocalCluster

from hepcache.errors import TableMismatchError
from hepcache.hdf5 import TableOptions, concatenate
from hepcache.hdf5 import tasks as tasks_module
from hepcache.hdf5.keys import EventTable, KeyRuns, joined, repeated_events
from hepcache.hdf5.pool import InlineExecutor, default_jobs, width

# Every input chunk is shared by two chunks of the output, and every task is small.
OPTIONS = TableOptions(key="evt", chunk_rows=7, wide_chunk_rows=5)


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "_LEAST_TASK_BYTES", 64)
    monkeypatch.setattr(tasks_module, "_FILE_BYTES", 0)


def test_threads_share_nothing(
    inputs: list[Path], tmp_path: Path, same: Callable[..., None]
) -> None:
    with ThreadPoolExecutor(4) as pool:
        for turn in range(3):
            out = tmp_path / f"out{turn}.h5"
            concatenate(inputs, out, OPTIONS, executor=pool)
            same(out, inputs, "evt")


def test_as_much_is_under_way_as_an_executor_can_do() -> None:
    assert width(InlineExecutor()) == 1
    assert width(InlineExecutor(), 7) == 7
    assert width(Executor()) == default_jobs()
    with ThreadPoolExecutor(5) as pool:
        assert width(pool) == 5


@pytest.mark.slow
def test_workers_of_a_dask_cluster(
    inputs: list[Path], tmp_path: Path, same: Callable[..., None]
) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=4, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        assert width(client.get_executor()) == 4
        concatenate(inputs, tmp_path / "out.h5", OPTIONS, executor=client)
        same(tmp_path / "out.h5", inputs, "evt")
        with h5py.File(inputs[1], "r+") as file:
            file["spill/evt"][5] = file["spill/evt"][4]
        with pytest.raises(TableMismatchError, match="twice"):
            concatenate(inputs, tmp_path / "other.h5", OPTIONS, executor=client)


def test_events_in_any_order_of_numbers() -> None:
    table = EventTable({b"run": np.array([2, 1, 1]), b"evt": np.array([5, 9, 5])})
    runs = table.runs({b"run": np.array([2, 2, 1, 1]), b"evt": np.array([5, 5, 9, 5])})
    assert (runs.events.tolist(), runs.rows.tolist()) == ([0, 1, 2], [2, 1, 1])
    with pytest.raises(ValueError, match="earlier event"):
        table.runs({b"run": np.array([1, 2]), b"evt": np.array([9, 5])})
    with pytest.raises(ValueError, match="first run 3, evt 5"):
        table.runs({b"run": np.array([2, 3]), b"evt": np.array([5, 5])})
    with pytest.raises(ValueError, match="twice"):
        EventTable({b"run": np.array([1, 1]), b"evt": np.array([5, 5])})
    empty = EventTable({b"evt": np.zeros(0, int)})
    assert empty.runs({b"evt": np.zeros(0, int)}).events.tolist() == []
    with pytest.raises(ValueError, match="not in the table"):
        empty.runs({b"evt": np.array([1])})
    with pytest.raises(ValueError, match="in the table of events"):
        EventTable({b"evt": np.array([1], "u8")}).runs({b"evt": np.array([1], "i8")})
    assert repeated_events([{b"evt": np.array([3, 1])}, {b"evt": np.array([2, 1])}]) == "evt 1"


def test_runs_that_go_on_in_the_next_slice() -> None:
    one, other = (
        KeyRuns(np.array(events), np.array(rows))
        for events, rows in (([0, 2], [1, 3]), ([2, 5], [4, 1]))
    )
    whole = joined([one, other])
    assert whole.rows.sum() == 9
    with pytest.raises(ValueError, match="order"):
        joined([other, one])
