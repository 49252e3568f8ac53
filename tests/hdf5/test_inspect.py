"""info, check and verify."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import pytest
from tests.hdf5.checks import key_problems

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5 import TableOptions, check_keys, concatenate, describe, verify

KEY = TableOptions(key="evt")


def test_info_counts_everything(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, KEY, jobs=1)
    found = describe(out).to_dict()
    assert (found["groups"], found["empty_groups"]) == (3, 1)
    assert (found["datasets"], found["empty_datasets"]) == (5 + 5 + 8, 5)
    assert found["size_bytes"] == out.stat().st_size
    assert found["stored_bytes"] + found["metadata_bytes"] == found["size_bytes"]
    with h5py.File(out) as file:
        sets = [dataset for group in file.values() for dataset in group.values()]
        assert found["raw_bytes"] == sum(dataset.nbytes for dataset in sets)
        assert found["stored_bytes"] == sum(dataset.id.get_storage_size() for dataset in sets)
        by_group = {group["name"]: group for group in found["by_group"]}
        assert by_group["/rec.vtx"]["rows"] == len(file["rec.vtx/x"])
        assert by_group["/rec.vtx"]["key"] == "evt.seq"


def test_check_finds_wrong_keys(inputs: list[Path], tmp_path: Path) -> None:
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    concatenate(inputs, good, KEY, jobs=1)
    assert key_problems(good) == []
    assert check_keys(good)[0].rows == 0
    for row, value, words in (
        (7, 100, "falls at row 8"),
        (7, -1, "names events that are none of the 111"),
        (7, 111, "names events that are none of the 111"),
    ):
        shutil.copy(good, bad)
        with h5py.File(bad, "r+") as file:
            keys = file["rec.vtx/evt.seq"]
            assert keys[row] != value
            keys[row] = value
        found = key_problems(bad)
        assert words in found[0], found
    with h5py.File(bad, "r+") as file:
        file["rec.vtx/evt.seq"][7] = file["rec.vtx/evt.seq"][6]
        file["rec.vtx/evt"][7] += 1
    assert key_problems(bad) == ["/rec.vtx/evt.seq names another evt than that of row 7"]
    with h5py.File(bad, "r+") as file:
        del file["rec.vtx/evt.seq"]
    assert key_problems(bad) == ["/rec.vtx/evt.seq is not there"]
    with pytest.raises(TableFileError, match="has no dataset"):
        check_keys(bad, key="event")


def test_verify_finds_every_kind_of_difference(inputs: list[Path], tmp_path: Path) -> None:
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    concatenate(inputs, good, KEY, jobs=1)
    assert verify(good, inputs, key="evt", jobs=1) == {}
    assert verify(good, inputs[::-1], key="evt", jobs=1)
    shutil.copy(good, bad)
    with h5py.File(bad, "r+") as file:
        x = file["rec.vtx/x"]
        bits = x[()].view("u4")
        bits[2] ^= 1  # the payload of a NaN
        x[()] = bits.view("f4")
        file["rec.vtx/cube"][-1, 2, 1] += 1
    found = verify(bad, inputs, key="evt", jobs=1)
    assert found[f"{bad}: /rec.vtx/x"] == f"row 2 is not row 2 of {inputs[0]}"
    assert str(inputs[2]) in found[f"{bad}: /rec.vtx/cube"]
    assert len(found) == 2
    shutil.copy(good, bad)
    with h5py.File(bad, "r+") as file:
        file["spill/evt.seq"][4:6] = file["spill/evt.seq"][4:6][::-1]
    assert "falls" in str(verify(bad, inputs, key="evt", jobs=1))
    with h5py.File(bad, "r+") as file:
        for dataset in file["rec.vtx"].values():
            dataset.resize(len(dataset) - 1, axis=0)
    assert "the inputs together" in str(verify(bad, inputs, key="evt", jobs=1))
    with h5py.File(bad, "r+") as file:
        del file["rec.vtx/x"]
    with pytest.raises(TableMismatchError, match="is missing"):
        verify(bad, inputs, key="evt", jobs=1)
