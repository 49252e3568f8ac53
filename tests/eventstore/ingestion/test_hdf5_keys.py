"""Ingestion of concatenated HDF5 files by their partition keys, whole and in parts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.eventstore import HDF5_TABLES, Store, connect, ingest
from hepcache.eventstore.ingestion import hdf5
from hepcache.eventstore.ingestion.hdf5 import KeyedHDF5Events, describe_classes, keyed_events
from hepcache.eventstore.ingestion.ingest import ingest_events
from hepcache.hdf5 import TableOptions, add_key, concatenate

SUBRUNS = 6
KEY = "evt.seq"


def write_input(path: Path, subrun: int, *, names: bool = False, first: int = 1) -> Path:
    """Write a subrun: a table of events, one of any number of rows per event, an empty one."""
    rng = np.random.default_rng(subrun)
    events = 20 + subrun
    evt = (np.arange(events) * 3 + first).astype("i4")
    at = np.repeat(np.arange(events), rng.poisson(1.7, events))
    with h5py.File(path, "w") as file:
        for group, rows in (("spill", np.arange(events)), ("rec/vtx", at), ("rec/none", at[:0])):
            size = len(rows)
            columns: dict[str, Any] = {
                "run": np.full((size, 1), 7, "u4"),
                "subrun": np.full((size, 1), subrun, "u4"),
                "evt": evt[rows][:, None],
                "x": rng.normal(size=(size, 1)).astype("f4"),
                "map": rng.integers(0, 9, (size, 2, 3)).astype("u1"),
            }
            if names:
                columns["name"] = np.array(["ä"] * size, dtype=h5py.string_dtype())
            for name, values in columns.items():
                file.create_dataset(f"{group}/{name}", data=values, chunks=values.shape or None,
                                    maxshape=(None, *values.shape[1:])) if size else (
                    file.create_dataset(f"{group}/{name}", data=values))  # fmt: skip
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    return [write_input(tmp_path / f"{one}.h5", one) for one in range(SUBRUNS)]


@pytest.fixture
def keyed(inputs: list[Path], tmp_path: Path) -> Path:
    concatenate(inputs, tmp_path / "all.h5", options=TableOptions(key="evt"), jobs=1)
    return tmp_path / "all.h5"


@pytest.fixture
def expected(inputs: list[Path]) -> Iterator[Store]:
    """The files before they were concatenated, which have no keys."""
    with connect("mem://") as store:
        ingest(store, "nova", inputs)
        yield store


def content(store: Store) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for subrun in store["nova"].subruns():
        for event in subrun:
            products = {label: subrun[event][label].tolist() for label, _ in subrun[event]}
            found[subrun.run, subrun.number, event] = products
    return found


def test_a_concatenated_file_gives_what_its_inputs_do(keyed: Path, expected: Store) -> None:
    with HDF5_TABLES.open(str(keyed), ["*"], []) as events:
        assert isinstance(events, KeyedHDF5Events)
    with connect("mem://") as store:
        [done] = ingest(store, "nova", [keyed])
        assert content(store) == content(expected)
        [again] = ingest(store, "nova", [keyed])
    assert (done.subruns, done.skipped_events, done.events) == (SUBRUNS, 0, again.skipped_events)


def test_events_without_the_chosen_classes_are_left_out_with_their_table(
    keyed: Path, inputs: list[Path]
) -> None:
    with connect("mem://") as ours, connect("mem://") as theirs:
        ingest(ours, "nova", [keyed], exclude=["spill"])
        ingest(theirs, "nova", inputs, exclude=["spill"])
        assert content(ours) == content(theirs)
        events = sum(20 + one for one in range(SUBRUNS))
        assert 0 < len(content(ours)) < events


def test_small_portions_give_the_same(
    keyed: Path, expected: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5, "_PORTION_BYTES", 600)
    with connect("mem://") as store:
        ingest(store, "nova", [keyed])
        assert content(store) == content(expected)


def test_processes_take_parts_of_a_large_file(
    keyed: Path,
    inputs: list[Path],
    expected: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hdf5, "_PART_BYTES", keyed.stat().st_size // 4)
    assert HDF5_TABLES.parts(str(keyed), ["*"], []) == 5
    told: list[str] = []
    with (
        connect(f"file://{tmp_path}/store") as store,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor,
    ):
        [done] = ingest(
            store, "nova", [keyed], executor=executor,
            progress=lambda one: told.append(one.path),
        )  # fmt: skip
        assert content(store) == content(expected)
        [again] = ingest(store, "nova", [keyed], executor=executor)
    assert told == [str(keyed)]
    assert (done.subruns, done.skipped_events) == (SUBRUNS, 0)
    assert again.skipped_events == again.events == done.events


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 50])
def test_parts_are_all_of_it_once(keyed: Path, parts: int) -> None:
    described = describe_classes(keyed)
    found = []
    for part in range(parts):
        with keyed_events(described, (part, parts)) as events:
            found += [(run, subrun, len(numbers)) for run, subrun, numbers, _ in events.subruns()]
    assert found == [(7, one, 20 + one) for one in range(SUBRUNS)]


def test_an_interrupted_ingestion_goes_on(keyed: Path, expected: Store) -> None:
    with connect("mem://") as store:
        dataset = store.create("nova")
        with HDF5_TABLES.open(str(keyed), ["*"], [], (1, 3)) as events:
            part = ingest_events(dataset, events)
        [done] = ingest(store, "nova", [keyed])
        assert 0 < part.events == done.skipped_events < done.events
        assert content(store) == content(expected)


def test_what_has_no_keys_or_names_is_read_as_before(tmp_path: Path) -> None:
    plain = write_input(tmp_path / "plain.h5", 1)
    named = write_input(tmp_path / "named.h5", 1, names=True)
    add_key(named)
    for path in (plain, named):
        with HDF5_TABLES.open(str(path), ["*"], []) as events:
            assert not isinstance(events, KeyedHDF5Events)
        with connect("mem://") as store:
            ingest(store, "nova", [path])
            assert content(store)
            described = HDF5_TABLES.describe(str(path), ["*"], [])
            assert KEY not in [column.name for one in described.classes for column in one.columns]


def test_scattered_subruns_are_read_as_before(tmp_path: Path) -> None:
    first, second = (write_input(tmp_path / f"{one}.h5", one) for one in (1, 2))
    with h5py.File(second, "r+") as file:
        for group in ("spill", "rec/vtx"):
            subrun = file[f"{group}/subrun"]
            evt = file[f"{group}/evt"][()]
            # Its last events are the first file's, which come before.
            subrun[...] = np.where(evt > 30, 1, 2)
            file[f"{group}/evt"][...] = np.where(evt > 30, evt + 1000, evt)
    third = write_input(tmp_path / "3.h5", 3)
    out = tmp_path / "all.h5"
    concatenate([first, third, second], out, options=TableOptions(key="evt"), jobs=1)
    with pytest.raises(TableFileError, match="not together"), keyed_events(describe_classes(out)):
        pass
    with connect("mem://") as store:
        ingest(store, "nova", [out])
        assert sorted(store["nova"][7]) == [1, 2, 3]
        assert store["nova"][7][1][1049]["spill"] is not None


def test_negative_numbers_are_refused(tmp_path: Path) -> None:
    path = write_input(tmp_path / "a.h5", 1, first=-4)
    concatenate([path], tmp_path / "b.h5", options=TableOptions(key="evt"), jobs=1)
    described = describe_classes(tmp_path / "b.h5")
    problem = "-4; numbers begin at 0"
    with pytest.raises(TableMismatchError, match=problem), keyed_events(described):
        pass
