"""Reading by events: every row once, no event in two ranges."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

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
    check_keys,
    concatenate,
    event_batches,
    split,
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
            whole = [tables.read(one, [name])[name] for one in ranges]
            assert np.concatenate(whole).tobytes() == file[name][()].tobytes()
        for one in ranges:
            assert one.start < one.stop
            first, last = one.rows["rec.vtx"]
            keys = file["rec.vtx/evt.seq"][first:last].ravel()
            assert ((keys >= one.start) & (keys < one.stop)).all()
    if parts == 5:
        sizes = [one.stop - one.start for one in ranges]
        rows = [one.rows["rec.vtx"][1] - one.rows["rec.vtx"][0] for one in ranges]
        spread = sizes if balance is None else rows
        assert max(spread) - min(spread) < 12


@pytest.mark.parametrize("batch_bytes", [1, 3000, 1 << 30])
def test_batches_hold_every_event_once(joined: Path, batch_bytes: int) -> None:
    tables = EventTables(joined)
    batches = list(event_batches(tables, COLUMNS, batch_bytes=batch_bytes))
    assert [one.events.start for one in batches[1:]] == [one.events.stop for one in batches[:-1]]
    assert (batches[0].events.start, batches[-1].events.stop) == (0, tables.events)
    assert (len(batches) == 1) == (batch_bytes == 1 << 30)
    with h5py.File(joined) as file:
        for name in COLUMNS:
            whole = np.concatenate([one.columns[name] for one in batches])
            assert whole.tobytes() == file[name][()].tobytes()
        keys = file["rec.vtx/evt.seq"][()].ravel()
        for one in batches:
            offsets = one.offsets["rec.vtx"]
            assert offsets[-1] == len(one.columns["rec.vtx/x"])
            for event in range(one.events.start, one.events.stop, 7):
                n = event - one.events.start
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
    work = [(tables, one) for one in tables.ranges(4)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = sum(pool.map(_sum, work))
    with h5py.File(joined) as file:
        assert found == file["rec.vtx/id"][()].sum()


def test_columns_come_from_a_cache(joined: Path, tmp_path: Path) -> None:
    cache = hepcache.cachestrategy()
    tables = EventTables(joined, cache=cache)
    one = tables.range(10, 90)
    first = tables.read(one, COLUMNS)
    again = EventTables(joined, cache=cache)
    again._reader.rows = None  # type: ignore[assignment,method-assign] # nothing is read
    for name, values in again.read(one, COLUMNS).items():
        assert values.tobytes() == first[name].tobytes()
        assert values.dtype == first[name].dtype
        assert values.shape == first[name].shape
    with h5py.File(joined, "r+") as file:
        file["spill/pot"][20] = -1
        file.attrs["changed"] = np.arange(4000)  # another size
    fresh = EventTables(joined, cache=cache)
    assert -1 in fresh.read(one, ["spill/pot"])["spill/pot"]


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
    one = tables.range(0, 5)
    assert tables.read(tables.range(3, 3), ["rec.vtx/x"])["rec.vtx/x"].shape == (0,)
    for call in (
        lambda: tables.read(one, ["rec.vtx/nothing"]),
        lambda: tables.read(one, ["nowhere/x"]),
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


def test_split_files_are_the_whole(
    joined: Path, inputs: list[Path], tmp_path: Path, same: Callable[..., None]
) -> None:
    made = split(joined, tmp_path / "parts", 4, TableOptions(key="evt", chunk_rows=9), jobs=1)
    paths = [Path(one.path) for one in made]
    assert [path.name for path in paths] == [f"joined-000{n}.h5" for n in range(4)]
    for path in paths:
        assert not [one.problem for one in check_keys(path) if one.problem]
    # Together they are what was cut.
    whole = tmp_path / "whole.h5"
    concatenate(paths, whole, TableOptions(key="evt"), jobs=1)
    same(whole, inputs, "evt")
    with pytest.raises(TableFileError, match="--overwrite"):
        split(joined, tmp_path / "parts", 4, jobs=1)


def test_split_keeps_strings(tmp_path: Path) -> None:
    path = tmp_path / "in.h5"
    with h5py.File(path, "w") as file:
        spill = file.create_group("spill")
        options: dict[str, Any] = {"maxshape": (None,), "chunks": (4,)}
        spill.create_dataset("evt", data=np.arange(10), **options)
        words = [f"word {n}" for n in range(10)]
        spill.create_dataset("name", data=words, dtype=h5py.string_dtype(), **options)
    joined = tmp_path / "joined.h5"
    concatenate([path], joined, TableOptions(key="evt"), jobs=1)
    made = split(joined, tmp_path / "parts", 3, jobs=1)
    found = []
    for one in made:
        with h5py.File(one.path) as file:
            found += [value.decode() for value in file["spill/name"][()]]
    assert found == words
