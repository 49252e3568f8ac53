"""Reading by events: every row once, no event in two ranges."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import awkward as ak
import h5py
import numpy as np
import pytest

import hepcache
from hepcache.errors import ConfigurationError, TableFileError, UnknownColumnError
from hepcache.hdf5 import (
    EventBatch,
    EventRange,
    EventTables,
    TableOptions,
    concatenate,
    event_batches,
)

COLUMNS = ["rec.vtx/x", "rec.vtx/map", "spill/pot"]


@pytest.fixture
def joined(inputs: list[Path], tmp_path: Path) -> Path:
    out = tmp_path / "joined.h5"
    concatenate(inputs, out, TableOptions(key="evt", chunk_rows=32), jobs=1)
    return out


@pytest.mark.parametrize("parts", [1, 2, 5, 111, 1000])
@pytest.mark.parametrize("balance", [None, "rec.vtx"])
def test_ranges_share_out_all_rows(joined: Path, parts: int, balance: str | None) -> None:
    tables = EventTables(joined)
    ranges = tables.ranges(parts, balance=balance)
    assert len(ranges) <= parts
    assert ranges[0].start == 0
    assert ranges[-1].stop == tables.events == 30 + 37 + 44
    with h5py.File(joined) as file:
        for name in COLUMNS:
            whole = [tables.read(events, [name])[name] for events in ranges]
            assert np.concatenate(whole).tobytes() == file[name][()].tobytes()
        for events in ranges:
            assert events.start < events.stop
            first, last = events.rows["rec.vtx"]
            keys = file["rec.vtx/evt.seq"][first:last].ravel()
            assert ((keys >= events.start) & (keys < events.stop)).all()
    if parts == 5:
        sizes = [events.stop - events.start for events in ranges]
        rows = [events.rows["rec.vtx"][1] - events.rows["rec.vtx"][0] for events in ranges]
        spread = sizes if balance is None else rows
        assert max(spread) - min(spread) < 12


@pytest.mark.parametrize("batch_bytes", [1, 3000, 1 << 30])
def test_batches_hold_every_event_once(joined: Path, batch_bytes: int) -> None:
    tables = EventTables(joined)
    batches = list(event_batches(tables, COLUMNS, batch_bytes=batch_bytes))
    assert [batch.events.start for batch in batches[1:]] == [
        batch.events.stop for batch in batches[:-1]
    ]
    assert (batches[0].events.start, batches[-1].events.stop) == (0, tables.events)
    assert (len(batches) == 1) == (batch_bytes == 1 << 30)
    with h5py.File(joined) as file:
        for name in COLUMNS:
            whole = np.concatenate([batch.columns[name] for batch in batches])
            assert whole.tobytes() == file[name][()].tobytes()
        keys = file["rec.vtx/evt.seq"][()].ravel()
        for batch in batches:
            offsets = batch.offsets["rec.vtx"]
            assert offsets[-1] == len(batch.columns["rec.vtx/x"])
            for event in range(batch.events.start, batch.events.stop, 7):
                n = event - batch.events.start
                assert offsets[n + 1] - offsets[n] == (keys == event).sum()
    assert list(event_batches(tables, [])) == [EventBatch(tables.range(0, tables.events), {}, {})]
    with pytest.raises(ConfigurationError, match="batch_bytes"):
        next(event_batches(tables, COLUMNS, batch_bytes=0))
    with pytest.raises(UnknownColumnError):
        next(event_batches(tables, ["rec.vtx/none"]))


def test_records_per_event(joined: Path) -> None:
    tables = EventTables(joined)
    array = tables.array(tables.range(20, 60), [*COLUMNS, "rec.vtx/evt", "spill/evt"])
    assert len(array) == 40
    assert ak.all(ak.num(array["spill"]) == 1)
    vertices = array["rec.vtx"]
    counts = ak.num(vertices)
    assert ak.min(counts) == 0
    assert ak.max(counts) > 2
    with h5py.File(joined) as file:
        keys = file["rec.vtx/evt.seq"][()].ravel()
        x = file["rec.vtx/x"][()].ravel()
    for event in range(20, 60):
        assert ak.to_numpy(vertices["x"][event - 20]).tobytes() == x[keys == event].tobytes()
    # The same event everywhere
    assert ak.all(vertices["evt"] == array["spill"]["evt"][:, 0])
    assert vertices["map"].type.content.content.size == 24


def _sum(work: tuple[EventTables, EventRange]) -> int:
    tables, events = work
    return int(tables.read(events, ["rec.vtx/id"])["rec.vtx/id"].sum())


def test_in_other_processes(joined: Path) -> None:
    tables = EventTables(joined)
    work = [(tables, events) for events in tables.ranges(4)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = sum(pool.map(_sum, work))
    with h5py.File(joined) as file:
        assert found == file["rec.vtx/id"][()].sum()


def test_columns_come_from_a_cache(joined: Path, tmp_path: Path) -> None:
    cache = hepcache.cachestrategy()
    tables = EventTables(joined, cache=cache)
    events = tables.range(10, 90)
    first = tables.read(events, COLUMNS)
    again = EventTables(joined, cache=cache)
    again._reader.rows = None  # type: ignore[assignment,method-assign] # nothing is read
    for name, values in again.read(events, COLUMNS).items():
        assert values.tobytes() == first[name].tobytes()
        assert values.dtype == first[name].dtype
        assert values.shape == first[name].shape
    tables.close()
    again.close()
    with h5py.File(joined, "r+") as file:
        file["spill/pot"][20] = -1
        file.attrs["changed"] = np.arange(4000)  # another size
    fresh = EventTables(joined, cache=cache)
    assert -1 in fresh.read(events, ["spill/pot"])["spill/pot"]


def test_a_file_that_is_changed_while_it_is_open(joined: Path) -> None:
    # A handle belongs to what it was opened on.
    tables = pickle.loads(pickle.dumps(EventTables(joined)))
    assert tables.events == 111
    assert "rec.vtx" in tables.groups
    assert "rec.vtx/x" in tables.columns("rec.vtx")
    assert "rec.vtx/evt.seq" not in tables.columns("rec.vtx")
    tables.close()


def test_what_can_not_be_read(joined: Path, inputs: list[Path]) -> None:
    with pytest.raises(TableFileError, match="add-key"):
        EventTables(inputs[0])
    tables = EventTables(joined)
    events = tables.range(0, 5)
    assert tables.read(tables.range(3, 3), ["rec.vtx/x"])["rec.vtx/x"].shape == (0,)
    for call in (
        lambda: tables.read(events, ["rec.vtx/nothing"]),
        lambda: tables.read(events, ["nowhere/x"]),
        lambda: tables.columns("nowhere"),
        lambda: tables.ranges(2, balance="nowhere"),
    ):
        with pytest.raises(UnknownColumnError):
            call()
    for start, stop in ((-1, 3), (4, 2), (0, 112)):
        with pytest.raises(ConfigurationError):
            tables.range(start, stop)
    with pytest.raises(ConfigurationError):
        tables.ranges(0)
