"""Keys of any datasets, of some groups, with counts, in files that have some of it already."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.hdf5.checks import change
from tests.hdf5.conftest import events, write_file

from hepcache.errors import ConfigurationError, TableFileError, TableMismatchError
from hepcache.hdf5 import (
    EventTables,
    TableOptions,
    add_index,
    add_key,
    append,
    check_keys,
    concatenate,
    describe,
    rechunk,
    split,
    verify,
)
from hepcache.hdf5.event_key import EventKey


def problems(path: Path, key: str = "evt", **options: Any) -> list[str]:
    return [
        f"{check.name} {check.problem}"
        for check in check_keys(path, key=key, **options)
        if check.problem
    ]


def counted(path: Path, group: str, name: str = "evt") -> bool:
    """Tell whether a group's counts are those of its keys, one by one."""
    with h5py.File(path) as file:
        keys = file[group][f"{name}.seq"][()].ravel().tolist()
        expected = [[key, keys.count(key)] for key in sorted(set(keys))]
        counts = file[group][f"{name}.seq_cnt"]
        assert counts.dtype == np.int64
        return bool(counts[()].tolist() == expected)


@pytest.mark.parametrize("key", ["", "/evt", "run,,evt", "/spill/run,/rec/evt", "evt,evt"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(ConfigurationError, match="key"):
        TableOptions(key=key)


def test_counts_and_groups_need_a_key() -> None:
    with pytest.raises(ConfigurationError, match="key"):
        TableOptions(counts=True)
    assert EventKey.parse("run, subrun ,evt", "/spill/").required == ("run", "subrun", "evt")


@pytest.mark.parametrize("key", ["run,subrun,evt", "/spill/run,/spill/subrun,/spill/evt"])
def test_several_columns(key: str, inputs: list[Path], tmp_path: Path) -> None:
    usual, out = tmp_path / "usual.h5", tmp_path / "out.h5"
    concatenate(inputs, usual, TableOptions(key="evt"), jobs=1)
    concatenate(inputs, out, TableOptions(key=key), jobs=1)
    with h5py.File(usual) as first, h5py.File(out) as second:
        for group in first:
            assert (first[group]["evt.seq"][()] == second[group]["evt.seq"][()]).all()
    assert problems(out, key) == []
    assert verify(out, inputs, key=key) == {}


def test_a_group_without_one_of_several_columns(inputs: list[Path], tmp_path: Path) -> None:
    for path in inputs:
        change(path, "rec.vtx/subrun", None)
    out = tmp_path / "out.h5"
    done = concatenate(inputs, out, TableOptions(key="run,subrun,evt"), jobs=1)
    assert done.without_key == ["/rec.vtx"]
    with h5py.File(out) as file:
        assert "evt.seq" not in file["rec.vtx"]


@pytest.fixture
def wide(tmp_path: Path) -> list[Path]:
    """Files in which one dataset of three values per row tells events apart."""
    paths = []
    for number in range(3):
        tables = events(number, 20 + number)
        for group in tables.values():
            identity = [group.pop(name) for name in ("run", "subrun", "evt")]
            group["event_id"] = np.concatenate(identity, axis=1)
        tables["event_table"] = tables.pop("spill")
        paths.append(write_file(tmp_path / f"in{number}.h5", tables))
    return paths


def test_one_dataset_of_several_values(wide: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    key = "/event_table/event_id"
    concatenate(wide, out, TableOptions(key=key, counts=True), jobs=1)
    assert problems(out, key) == []
    assert verify(out, wide, key=key) == {}
    assert counted(out, "rec.vtx", "event_id")
    with h5py.File(out) as file:
        keys = file["rec.vtx/event_id.seq"]
        assert keys.shape == (len(file["rec.vtx/x"]), 1)
        listed = file["event_table/event_id"][()]
        assert (listed[keys[()].ravel()] == file["rec.vtx/event_id"][()]).all()
        assert file["rec.empty/event_id.seq"].shape == (0, 1)
    tables = EventTables(out, key=key)
    assert tables.events == 63
    assert len(tables.array(tables.range(0, 63), ["rec.vtx/x"])["rec.vtx"]) == 63
    assert split(out, tmp_path / "parts", 2, TableOptions(key=key), jobs=1)


def test_events_that_several_values_name_twice(wide: list[Path], tmp_path: Path) -> None:
    again = tmp_path / "in9.h5"
    shutil.copy(wide[0], again)
    with pytest.raises(TableMismatchError, match="more than one file"):
        concatenate(
            [*wide, again], tmp_path / "out.h5", TableOptions(key="/event_table/event_id"), jobs=1
        )


def test_groups_by_pattern(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    options = TableOptions(key="evt", key_groups=("/rec.v*",))
    done = concatenate(inputs[:2], out, options, jobs=1)
    assert done.without_key == []
    with h5py.File(out) as file:
        assert [group for group in file if "evt.seq" in file[group]] == ["rec.vtx", "spill"]
    assert problems(out, key_groups=("rec.v*",)) == []
    append(inputs[2:], out, TableOptions(key="evt"), jobs=1)
    assert verify(out, inputs) == {}
    # The others get theirs later.
    add_key(out, jobs=1)
    assert problems(out) == []
    with h5py.File(out) as file:
        assert all("evt.seq" in file[group] for group in file)
    with pytest.raises(TableFileError, match="has partition keys already"):
        add_key(out, jobs=1)


def test_counts_are_added_kept_and_appended_to(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:2], out, TableOptions(key="evt"), jobs=1)
    add_key(out, TableOptions(key="evt", counts=True), jobs=1)
    assert counted(out, "rec.vtx")
    assert counted(out, "rec.empty")
    assert problems(out) == []
    append(inputs[2:], out, TableOptions(key="evt"), jobs=1)
    assert counted(out, "rec.vtx")
    assert verify(out, inputs) == {}
    rechunk(out, tmp_path / "again.h5", jobs=1)
    assert counted(tmp_path / "again.h5", "rec.vtx")
    assert problems(tmp_path / "again.h5") == []
    assert EventTables(out).columns("rec.vtx") == EventTables(tmp_path / "again.h5").columns(
        "rec.vtx"
    )
    assert describe(out).groups
    with h5py.File(out, "r+") as file:
        file["rec.vtx/evt.seq_cnt"][3, 1] += 1
    assert problems(out) == ["/rec.vtx/evt.seq_cnt does not count the rows of evt.seq"]


def test_keys_that_are_there_must_be_right(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, TableOptions(key="evt"), jobs=1)
    with h5py.File(out, "r+") as file:
        del file["rec.empty/evt.seq"]
        keys = file["rec.vtx/evt.seq"][()]
        file["rec.vtx/evt.seq"][()] = np.minimum(keys + 1, keys.max())
    before = out.read_bytes()
    with pytest.raises(TableMismatchError, match="not the key of its rows"):
        add_key(out, jobs=1)
    assert out.read_bytes() == before


def test_an_index_of_a_value_that_the_list_of_events_lacks(tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        tables = events(0, 20)  # the same events in both, but for the cycle
        tables["rec.vtx"]["cycle"] = np.full((len(tables["rec.vtx"]["x"]), 1), number, "u2")
        paths.append(write_file(tmp_path / f"in{number}.h5", tables))
    out = tmp_path / "out.h5"
    key = TableOptions(key="run,subrun,cycle,evt")
    with pytest.raises(TableMismatchError, match="/spill/cycle"):
        concatenate(paths, out, key, jobs=1)
    for number, path in enumerate(paths):
        add_index(path, "/rec.vtx/cycle")
        with h5py.File(path) as file:
            assert file["spill/cycle"].dtype == np.uint16
            assert file["spill/cycle"][()].tolist() == [[number]] * 20
    concatenate(paths, out, key, jobs=1)
    assert problems(out, "run,subrun,cycle,evt") == []


@pytest.mark.parametrize(
    ("dataset", "events", "why"),
    [
        ("/rec.vtx/evt", "rec.empty", "several values"),
        ("/rec.empty/x", "spill", "no rows"),
        ("/rec.vtx/none", "spill", "no dataset"),
        ("/rec.vtx/run", "nowhere", "no group"),
        ("/rec.vtx/run", "spill", "already"),
    ],
)
def test_no_index_of_that(dataset: str, events: str, why: str, inputs: list[Path]) -> None:
    before = inputs[0].read_bytes()
    with pytest.raises(TableFileError, match=why):
        add_index(inputs[0], dataset, TableOptions(events=events))
    assert inputs[0].read_bytes() == before
