"""What the published program writes wrongly without a word: here refused, or right."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pytest

from hepcache.errors import (
    ConfigurationError,
    HepcacheError,
    TableFileError,
    TableMismatchError,
)
from hepcache.hdf5 import TableOptions, concatenate

KEY = TableOptions(key="evt")


def refused(paths: list[Path], options: TableOptions = KEY) -> TableMismatchError:
    """Require that nothing is written; return the error."""
    out = paths[0].parent / "out.h5"
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(TableMismatchError) as raised:
        concatenate(paths, out, options, jobs=1)
    assert sorted(out.parent.iterdir()) == sorted(set(paths) | set(out.parent.glob("in*.h5")))
    assert before == {path: path.read_bytes() for path in paths}
    return raised.value


def change(path: Path, name: str, values: Any) -> None:
    with h5py.File(path, "r+") as file:
        del file[name]
        if values is not None:
            tail = np.shape(values)[1:]
            file.create_dataset(name, data=values, maxshape=(None, *tail), chunks=(8, *tail))


def rows(path: Path) -> int:
    with h5py.File(path) as file:
        return len(file["rec.vtx/x"])


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
    change(inputs[1], "rec.vtx/x", np.zeros((rows(inputs[1]), 1), kind))
    (problem,) = refused(inputs).problems.values()
    assert str(np.dtype(kind)) in problem
    assert "float32" in problem


def test_a_second_dimension_is_another(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/map", np.zeros((rows(inputs[1]), 25), "u1"))
    assert "(25,)" in str(refused(inputs))


def test_a_third_dimension(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/map", np.zeros((rows(inputs[1]), 24, 1), "u1"))
    assert "3 dimensions" in str(refused(inputs))


def test_lengths_differ_inside_a_group(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/x", np.zeros((rows(inputs[1]) - 1, 1), "f4"))
    assert f"has {rows(inputs[1])} rows" in str(refused(inputs))


def test_every_difference_is_named_at_once(inputs: list[Path]) -> None:
    change(inputs[1], "rec.vtx/x", None)
    change(inputs[1], "rec.vtx/map", np.zeros((rows(inputs[2]), 25), "u1"))
    change(inputs[2], "rec.vtx/id", np.zeros((rows(inputs[2]) - 1, 1), "i8"))
    change(inputs[2], "rec.empty/x", np.zeros((0, 1), "f8"))
    found = refused(inputs).problems
    assert {place.partition(": ")[2] for place in found} >= {
        "/rec.vtx/x",
        "/rec.vtx/map",
        "/rec.empty/x",
    }


def test_scalars(inputs: list[Path], tmp_path: Path) -> None:
    for path in inputs:
        with h5py.File(path, "r+") as file:
            file["version"] = 7
    out = tmp_path / "out.h5"
    concatenate(inputs, out, KEY, jobs=1)
    with h5py.File(out) as file:
        assert file["version"][()] == 7
    out.unlink()
    with h5py.File(inputs[1], "r+") as file:
        file["version"][()] = 8
    assert f"{inputs[1]}: /version" in refused(inputs).problems


def test_attributes(inputs: list[Path], tmp_path: Path, same: Callable[..., None]) -> None:
    for path in inputs:
        with h5py.File(path, "r+") as file:
            file.attrs["release"] = "S23"
            file["rec.vtx"].attrs["units"] = ["cm", "cm"]
            file["rec.vtx/x"].attrs["axis"] = np.array([1.0, np.nan])[:1]
    out = tmp_path / "out.h5"
    concatenate(inputs, out, KEY, jobs=1)
    with h5py.File(out) as file:
        assert file.attrs["release"] == "S23"
        assert file["rec.vtx"].attrs["units"].tolist() == ["cm", "cm"]
        assert file["rec.vtx/x"].attrs["axis"].tolist() == [1.0]
    out.unlink()
    with h5py.File(inputs[2], "r+") as file:
        file["rec.vtx/x"].attrs["axis"] = np.array([2.0])
        file["rec.vtx/id"].attrs["new"] = 1
    assert len(refused(inputs).problems) == 2
    concatenate(inputs, out, TableOptions(key="evt", attributes="first"), jobs=1)
    with h5py.File(out) as file:
        assert file["rec.vtx/x"].attrs["axis"].tolist() == [1.0]
        assert "new" not in file["rec.vtx/id"].attrs


def test_references_are_refused(inputs: list[Path]) -> None:
    for path in inputs:
        with h5py.File(path, "r+") as file:
            values = np.array([file["spill"].ref] * 3, dtype=h5py.ref_dtype)
            file.create_dataset("refs/x", data=values)
    assert "refers to objects" in str(refused(inputs))


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


def test_a_file_is_given_twice(inputs: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "in8.h5"
    link.symlink_to(inputs[0])
    assert "given twice" in str(refused([*inputs, inputs[0]]))
    assert "given twice" in str(refused([*inputs, link], TableOptions()))


def test_a_group_has_no_key(inputs: list[Path], tmp_path: Path) -> None:
    for path in inputs:
        change(path, "rec.vtx/evt", None)
        change(path, "rec.empty/evt", None)
    assert "/rec.vtx" in refused(inputs).problems
    # Without rows nothing is missing.
    for path in inputs:
        with h5py.File(path, "r+") as file:
            del file["rec.vtx"]
    concatenate(inputs, tmp_path / "out.h5", KEY, jobs=1)
    with h5py.File(tmp_path / "out.h5") as file:
        assert "evt.seq" in file["spill"]
        assert "evt.seq" not in file["rec.empty"]


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


def test_no_input() -> None:
    with pytest.raises(ConfigurationError, match="at least one file"):
        concatenate([], "out.h5", jobs=1)


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


def test_a_damaged_chunk(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    with h5py.File(inputs[1]) as file:
        info = file["rec.vtx/id"].id.get_chunk_info(2)
    data = bytearray(inputs[1].read_bytes())
    for at in range(info.byte_offset + 8, info.byte_offset + info.size):
        data[at] ^= 0x55
    inputs[1].write_bytes(data)
    with pytest.raises(TableFileError, match=r"rec\.vtx/id") as raised:
        concatenate(inputs, out, jobs=1)
    assert raised.value.path == str(inputs[1])
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


def test_a_file_is_changed_meanwhile(inputs: list[Path], tmp_path: Path) -> None:
    def change_one(phase: str, done: int, total: int) -> None:
        if phase == "Reading metadata" and done == total:
            with inputs[1].open("ab") as file:
                file.write(b"more")

    with pytest.raises(TableFileError, match="changed meanwhile"):
        concatenate(inputs, tmp_path / "out.h5", jobs=1, progress=change_one)


def test_a_wrong_checksum(inputs: list[Path], tmp_path: Path) -> None:
    for name in ("rec.vtx/id", "rec.vtx/run"):  # stored large, and small
        whole = inputs[1].read_bytes()
        with h5py.File(inputs[1]) as file:
            info = file[name].id.get_chunk_info(1)
        data = bytearray(whole)
        data[info.byte_offset + info.size - 1] ^= 1
        inputs[1].write_bytes(data)
        with pytest.raises(TableFileError, match=name):
            concatenate(inputs, tmp_path / "out.h5", jobs=1)
        inputs[1].write_bytes(whole)


def test_a_file_is_changed_behind_its_reader(inputs: list[Path], tmp_path: Path) -> None:
    def touch(phase: str, done: int, total: int) -> None:
        if phase == "Writing" and done == total:
            os.utime(inputs[0])

    with pytest.raises(TableFileError, match="changed meanwhile"):
        concatenate(inputs, tmp_path / "out.h5", jobs=1, progress=touch)
    assert sorted(tmp_path.iterdir()) == sorted(inputs)


def test_outputs_that_can_not_be(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    out.write_bytes(b"mine")
    with pytest.raises(TableFileError, match="--overwrite"):
        concatenate(inputs, out, jobs=1)
    assert out.read_bytes() == b"mine"
    with pytest.raises(ConfigurationError, match="not among the inputs"):
        concatenate(inputs, inputs[1], jobs=1, overwrite=True)
    with pytest.raises(TableFileError, match="no directory"):
        concatenate(inputs, tmp_path / "nowhere" / "out.h5", jobs=1)
    (tmp_path / "directory.h5").mkdir()
    with pytest.raises(TableFileError, match="is no file"):
        concatenate(inputs, tmp_path / "directory.h5", jobs=1, overwrite=True)
    assert not list(tmp_path.glob(".*"))


def test_an_output_that_appears_meanwhile_is_kept(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"

    def another(phase: str, done: int, total: int) -> None:
        out.write_bytes(b"another one")

    with pytest.raises(TableFileError, match="exists by now"):
        concatenate(inputs, out, jobs=1, progress=another)
    assert out.read_bytes() == b"another one"
    assert sorted(tmp_path.iterdir()) == sorted([out, *inputs])


def test_two_at_once(inputs: list[Path], tmp_path: Path) -> None:
    out, raised = tmp_path / "out.h5", []

    def again(phase: str, done: int, total: int) -> None:
        if not raised:
            with pytest.raises(TableFileError, match="another process") as error:
                concatenate(inputs, out, jobs=1)
            raised.append(error)

    concatenate(inputs, out, jobs=1, progress=again)
    assert raised


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "lzma"},
        {"level": 10},
        {"compression": "none", "level": 3},
        {"chunk_rows": 0},
        {"memory_bytes": 1},
        {"key": "spill/evt"},
        {"attributes": "some"},
        {"compress_from": -1},
        {"effort": "great"},
    ],
    ids=str,
)
def test_options_without_meaning(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        TableOptions(**options)


def test_errors_of_an_executor_arrive(inputs: list[Path], tmp_path: Path) -> None:
    change(inputs[1], "rec.vtx/x", None)
    with pytest.raises(HepcacheError, match="is missing"):
        concatenate(inputs, tmp_path / "out.h5", KEY, jobs=2)
