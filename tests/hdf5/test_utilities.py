"""info, check, verify, merge by linking."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from hepcache.errors import ConfigurationError, TableFileError, TableMismatchError
from hepcache.hdf5 import (
    TableOptions,
    add_key,
    check_keys,
    concatenate,
    describe,
    link,
    verify,
)

KEY = TableOptions(key="evt")
Same = Callable[..., None]


def problems(path: Path) -> list[str]:
    return [f"{one.name} {one.problem}" for one in check_keys(path) if one.problem]


def test_info_counts_everything(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, KEY, jobs=1)
    found = describe(out).to_dict()
    assert (found["groups"], found["empty_groups"]) == (3, 1)
    assert (found["datasets"], found["empty_datasets"]) == (5 + 5 + 8, 5)
    assert found["size_bytes"] == out.stat().st_size
    assert found["stored_bytes"] + found["metadata_bytes"] == found["size_bytes"]
    with h5py.File(out) as file:
        sets = [one for group in file.values() for one in group.values()]
        assert found["raw_bytes"] == sum(one.nbytes for one in sets)
        assert found["stored_bytes"] == sum(one.id.get_storage_size() for one in sets)
        by_group = {one["name"]: one for one in found["by_group"]}
        assert by_group["/rec.vtx"]["rows"] == len(file["rec.vtx/x"])
        assert by_group["/rec.vtx"]["key"] == "evt.seq"


def test_check_finds_wrong_keys(inputs: list[Path], tmp_path: Path) -> None:
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    concatenate(inputs, good, KEY, jobs=1)
    assert problems(good) == []
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
        found = problems(bad)
        assert words in found[0], found
    with h5py.File(bad, "r+") as file:
        file["rec.vtx/evt.seq"][7] = file["rec.vtx/evt.seq"][6]
        file["rec.vtx/evt"][7] += 1
    assert problems(bad) == ["/rec.vtx/evt.seq names another evt than that of row 7"]
    with h5py.File(bad, "r+") as file:
        del file["rec.vtx/evt.seq"]
    assert problems(bad) == ["/rec.vtx/evt.seq is not there"]
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
        for one in file["rec.vtx"].values():
            one.resize(len(one) - 1, axis=0)
    assert "the inputs together" in str(verify(bad, inputs, key="evt", jobs=1))
    with h5py.File(bad, "r+") as file:
        del file["rec.vtx/x"]
    with pytest.raises(TableMismatchError, match="is missing"):
        verify(bad, inputs, key="evt", jobs=1)


def test_virtual_merge(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "linked.h5"
    done = link(inputs, out, KEY, jobs=1)
    same(out, inputs, "evt")
    assert problems(out) == []
    assert verify(out, inputs, key="evt", jobs=1) == {}
    assert done.chunks == 2  # only keys
    assert 0 < describe(out).to_dict()["stored_bytes"] < 2000
    with h5py.File(out) as file:
        sources = file["rec.vtx/x"].virtual_sources()
        assert [one.file_name for one in sources] == [path.name for path in inputs]
    # Files below the output's directory may move with it.
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in [out, *inputs]:
        shutil.move(path, moved / path.name)
    same(moved / out.name, [moved / path.name for path in inputs], "evt")
    # And what is linked can be copied for good.
    whole = tmp_path / "whole.h5"
    concatenate([moved / out.name], whole, KEY, jobs=1)
    same(whole, [moved / path.name for path in inputs], "evt")


def test_merge_from_elsewhere(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    (tmp_path / "other%1").mkdir()
    far = tmp_path / "other%1" / "in%s.h5"
    shutil.move(inputs[0], far)
    (tmp_path / "out").mkdir()
    for directory in (tmp_path, tmp_path / "out"):
        out = directory / "linked.h5"
        link([far, *inputs[1:]], out, jobs=1)
        same(out, [far, *inputs[1:]])


def test_external_merge(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "linked.h5"
    link(inputs, out, how="external", jobs=1)
    with h5py.File(out) as file:
        assert list(file) == ["in0", "in1", "in2"]
        with h5py.File(inputs[1]) as one:
            assert np.array_equal(file["in1/rec.vtx/id"], one["rec.vtx/id"])
    found = {one.name: one.rows for one in describe(out).groups}
    with h5py.File(inputs[2]) as one:
        assert found["/in2/rec.vtx"] == len(one["rec.vtx/x"])
    assert len(found) == 9
    whole = describe(out).to_dict()
    assert (whole["stored_bytes"], whole["metadata_bytes"]) == (0, out.stat().st_size)
    with pytest.raises(TableFileError, match="--overwrite"):
        link(inputs, out, how="external", jobs=1)
    with pytest.raises(ConfigurationError):
        link(inputs, out, how="symbolic", jobs=1)  # type: ignore[arg-type]
    with h5py.File(inputs[1], "r+") as file:
        del file["rec.vtx/x"]
    with pytest.raises(TableMismatchError):
        link(inputs, out, how="external", jobs=1, overwrite=True)


def test_values_of_variable_length_stay_where_they_are(inputs: list[Path], tmp_path: Path) -> None:
    for path in inputs:
        with h5py.File(path, "r+") as file:
            spill, options = file["spill"], {"maxshape": (None,), "chunks": (8,)}
            words = [f"spill {n} " * (n % 5) for n in range(len(spill["evt"]))]
            spill.create_dataset("word", data=words, dtype=h5py.string_dtype(), **options)
            lists = spill.create_dataset("list", (len(words),), h5py.vlen_dtype("f4"), **options)
            for n in range(len(words)):
                lists[n] = np.arange(n % 4)
    out, linked = tmp_path / "out.h5", tmp_path / "linked.h5"
    concatenate(inputs, out, jobs=1)
    add_key(out, jobs=1)
    link(inputs, linked, KEY, jobs=1)
    for made in (out, linked):
        assert verify(made, inputs, key="evt", jobs=1) == {}
        with h5py.File(made) as file:
            assert file["spill/word"][30 + 36] == b"spill 36 "
