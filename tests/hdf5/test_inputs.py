"""Inputs that do not fit together are refused, with every place named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
from dask.local import SynchronousExecutor
from tests.hdf5.checks import change, refused, row_count

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5 import TableOptions, concatenate
from hepcache.hdf5.inputs import match_files, survey_all

KEY = TableOptions(key="evt")


def test_a_dataset_is_missing(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/x", None)
    assert refused(inputs).problems == {f"{inputs[1]}: /rec.vtx/x": "is missing"}


def test_a_dataset_of_an_empty_group_is_missing(inputs: list[Path]) -> None:
    change(inputs[1], "rec.empty/x", None)
    assert refused(inputs).problems == {f"{inputs[1]}: /rec.empty/x": "is missing"}


def test_a_dataset_is_renamed(inputs: list[Path]) -> None:
    with h5py.File(inputs[2], "r+") as file:
        file.move("rec.vtx/x", "rec.vtx/y")
    found = refused(inputs).problems
    assert set(found) == {f"{inputs[2]}: /rec.vtx/x", f"{inputs[2]}: /rec.vtx/y"}


def test_a_group_is_missing(inputs: list[Path]) -> None:
    with h5py.File(inputs[0], "r+") as file:
        del file["rec.empty"]
    assert f"{inputs[1]}: /rec.empty" in refused(inputs).problems


@pytest.mark.parametrize("kind", ["f2", "f8", ">f4", "i4"])
def test_a_type_is_another(inputs: list[Path], kind: str) -> None:
    change(inputs[1], "rec.vtx/x", np.zeros((row_count(inputs[1]), 1), kind))
    (problem,) = refused(inputs).problems.values()
    assert str(np.dtype(kind)) in problem
    assert "float32" in problem


def test_a_second_dimension_is_another(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/map", np.zeros((row_count(inputs[1]), 25), "u1"))
    assert "(25,)" in str(refused(inputs))


def test_a_third_dimension(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/map", np.zeros((row_count(inputs[1]), 24, 1), "u1"))
    assert "3 dimensions" in str(refused(inputs))


def test_lengths_differ_inside_a_group(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/x", np.zeros((row_count(inputs[1]) - 1, 1), "f4"))
    assert f"has {row_count(inputs[1])} rows" in str(refused(inputs))


def test_every_difference_is_named_at_once(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/x", None)
    change(inputs[1], "rec.vtx/map", np.zeros((row_count(inputs[2]), 25), "u1"))
    change(inputs[2], "rec.vtx/id", np.zeros((row_count(inputs[2]) - 1, 1), "i8"))
    change(inputs[2], "rec.empty/x", np.zeros((0, 1), "f8"))
    found = refused(inputs).problems
    assert {place.partition(": ")[2] for place in found} >= {
        "/rec.vtx/x",
        "/rec.vtx/map",
        "/rec.empty/x",
    }


def test_references_are_refused(inputs: list[Path]) -> None:
    for path in inputs:
        with h5py.File(path, "r+") as file:
            values = np.array([file["spill"].ref] * 3, dtype=h5py.ref_dtype)
            file.create_dataset("refs/x", data=values)
    assert "refers to objects" in str(refused(inputs))


def test_a_file_is_given_twice(inputs: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "in8.h5"
    link.symlink_to(inputs[0])
    assert "given twice" in str(refused([*inputs, inputs[0]]))
    assert "given twice" in str(refused([*inputs, link], TableOptions()))


def test_keys_of_single_files_are_not_joined(
    inputs: list[Path], tmp_path: Path, same: Callable[..., None]
) -> None:
    keyed = []
    for n, path in enumerate(inputs):
        keyed.append(tmp_path / f"in{n + 5}.h5")
        concatenate([path], keyed[-1], KEY, jobs=1)
    assert "--key evt" in str(refused(keyed, TableOptions()))
    concatenate(keyed, tmp_path / "out.h5", KEY, jobs=1)
    same(tmp_path / "out.h5", inputs, "evt")


def test_files_that_can_not_be_read(inputs: list[Path], tmp_path: Path) -> None:
    whole = inputs[0].read_bytes()
    bad = {
        "missing": None,
        "empty": b"",
        "text": b"run subrun evt\n" * 100,
        "cut": whole[: len(whole) // 2],
        "head": whole[:100],
    }
    paths = {name: tmp_path / f"in-{name}.h5" for name in bad}
    for name, data in bad.items():
        if data is not None:
            paths[name].write_bytes(data)
    (tmp_path / "in-directory.h5").mkdir()
    everything = [*paths.values(), tmp_path / "in-directory.h5"]
    for path in everything:
        with pytest.raises(TableFileError, match=path.name):
            concatenate([*inputs, path], tmp_path / "out.h5", jobs=1)
    with pytest.raises(TableMismatchError) as raised:
        concatenate([*everything, *inputs], tmp_path / "out.h5", jobs=1)
    assert set(raised.value.problems) == {str(path) for path in everything}
    assert "cut off" in raised.value.problems[str(paths["cut"])]
    assert "not an HDF5 file" in raised.value.problems[str(paths["text"])]
    assert not (tmp_path / "out.h5").exists()


def test_a_file_without_permission(inputs: list[Path]) -> None:
    with TemporaryDirectory() as name:
        place, user = Path(name), os.geteuid()
        place.chmod(0o777)
        paths = [Path(shutil.copy(path, place)) for path in inputs]
        for path in paths:
            path.chmod(0o644)
        paths[1].chmod(0)
        if user == 0:
            os.seteuid(65534)  # root reads everything
        try:
            with pytest.raises(TableFileError, match="Permission denied") as raised:
                concatenate(paths, place / "out.h5", jobs=1)
        finally:
            os.seteuid(user)
        assert raised.value.path == str(paths[1])
        assert sorted(place.iterdir()) == sorted(paths)


def test_a_file_is_changed_meanwhile(inputs: list[Path], tmp_path: Path) -> None:
    def change_one(phase: str, done: int, total: int) -> None:
        if phase == "Reading metadata" and done == total:
            with inputs[1].open("ab") as file:
                file.write(b"more")

    with pytest.raises(TableFileError, match="changed meanwhile"):
        concatenate(inputs, tmp_path / "out.h5", jobs=1, progress=change_one)


def test_a_file_is_changed_behind_its_reader(inputs: list[Path], tmp_path: Path) -> None:
    def touch(phase: str, done: int, total: int) -> None:
        if phase == "Writing" and done == total:
            os.utime(inputs[0])

    with pytest.raises(TableFileError, match="changed meanwhile"):
        concatenate(inputs, tmp_path / "out.h5", jobs=1, progress=touch)
    assert sorted(tmp_path.iterdir()) == sorted(inputs)


def test_thousands_of_files_share_what_is_equal(inputs: list[Path]) -> None:
    found = match_files(
        survey_all([str(path) for path in inputs], SynchronousExecutor()), key="evt"
    )
    first, *others = found.tables
    for other in others:
        assert other.filled is first.filled
        assert other.attributes is first.attributes
        assert other.values is first.values
        assert not len(other.lengths)
    number = found.schema.numbers()[b"rec.vtx/x"]
    assert (
        found.stored_column(1, number).length
        == found.rows[1, found.schema.columns[number].group]
        > 0
    )
