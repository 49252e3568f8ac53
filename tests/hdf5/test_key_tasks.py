"""Keys that the published program writes wrongly without a word: here refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import pytest
from tests.hdf5.checks import change, refused

from hepcache.errors import TableFileError
from hepcache.hdf5 import TableOptions, check_keys, concatenate, split, verify

KEY = TableOptions(key="evt")


def test_an_event_is_listed_twice(inputs: list[Path]) -> None:
    with h5py.File(inputs[1], "r+") as file:
        file["spill/evt"][5] = file["spill/evt"][4]
    assert "twice" in str(refused(inputs))


def test_an_event_is_not_listed(inputs: list[Path]) -> None:
    with h5py.File(inputs[1], "r+") as file:
        file["rec.vtx/evt"][-1] = 4_000_000
    with h5py.File(inputs[2], "r+") as file:
        file["rec.vtx/subrun"][3] = 77  # the event exists, in another subrun
    found = refused(inputs).problems
    assert set(found) == {f"{path}: /rec.vtx" for path in inputs[1:]}
    assert "4000000" in str(found)


def test_rows_are_not_in_the_order_of_events(inputs: list[Path]) -> None:
    with h5py.File(inputs[1], "r+") as file:
        evt = file["rec.vtx/evt"][()]
        file["rec.vtx/evt"][()] = evt[::-1]
    assert "earlier event" in str(refused(inputs))


def test_the_same_events_in_two_files(inputs: list[Path], tmp_path: Path) -> None:
    again = tmp_path / "in9.h5"
    shutil.copy(inputs[0], again)
    assert "more than one file" in str(refused([*inputs, again]))


def test_a_group_has_no_key(inputs: list[Path], tmp_path: Path) -> None:
    for path in inputs:
        change(path, "rec.vtx/evt", None)
        change(path, "rec.empty/evt", None)
    out = tmp_path / "out.h5"
    done = concatenate(inputs, out, KEY, jobs=1)
    # It is left out of the keys, and said so where rows are concerned.
    assert done.without_key == ["/rec.vtx"]
    assert done.to_dict()["without_key"] == ["/rec.vtx"]
    with h5py.File(out) as file:
        assert "evt.seq" in file["spill"]
        assert "evt.seq" not in file["rec.vtx"]
        assert "evt.seq" not in file["rec.empty"]
        assert len(file["rec.vtx/run"])
    assert verify(out, inputs, key="evt") == {}
    checks = check_keys(out)
    assert checks
    assert not any(check.problem for check in checks)
    # Parts are cut between events, of which such rows are none.
    with pytest.raises(TableFileError, match="belong to no event"):
        split(out, tmp_path / "parts", 2, jobs=1)


def test_there_is_no_table_of_events(inputs: list[Path]) -> None:
    assert "is not there" in str(refused(inputs, TableOptions(key="evt", events="nowhere")))
    assert "is not there" in str(refused(inputs, TableOptions(key="event")))
    assert "is not there" in str(refused(inputs, TableOptions(sort=("cycle",))))


def test_keys_are_whole_numbers(inputs: list[Path], tmp_path: Path) -> None:
    for path in inputs:
        with h5py.File(path, "r+") as file:
            del file["rec.vtx"]
            del file["rec.empty"]
    with pytest.raises(TableFileError, match="whole number"):
        concatenate(inputs, tmp_path / "out.h5", TableOptions(key="pot"), jobs=1)
