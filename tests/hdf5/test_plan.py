"""Shapes of what is written: chunks, dimensions, empty datasets; and that verify knows of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.hdf5.conftest import events, write_file

from hepcache.errors import ConfigurationError, TableFileError, TableMismatchError
from hepcache.hdf5 import TableOptions, append, check_keys, concatenate, describe, rechunk, verify


@pytest.mark.parametrize("meaningless", [{"chunk_bytes": 0}, {"grows": 0.5}])
def test_no_such_chunks(meaningless: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        TableOptions(**meaningless)


def test_chunks_of_so_many_bytes(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, TableOptions(chunk_bytes=1024), jobs=1)
    with h5py.File(out) as file:
        assert file["rec.vtx/x"].chunks == (256, 1)
        assert file["rec.vtx/id"].chunks == (128, 1)
        assert file["rec.vtx/map"].chunks == (42, 24)
    assert verify(out, inputs) == {}


def test_chunks_of_an_output_that_grows(inputs: list[Path], tmp_path: Path) -> None:
    small, out = tmp_path / "small.h5", tmp_path / "out.h5"
    concatenate(inputs[:1], small, jobs=1)
    concatenate(inputs[:1], out, TableOptions(grows=20), jobs=1)
    for more in inputs[1:]:
        append([more], out, jobs=1)
    assert verify(out, inputs) == {}
    with h5py.File(small) as first, h5py.File(out) as file:
        rows = first["rec.vtx/x"].shape[0]
        assert first["rec.vtx/x"].chunks[0] == 128
        assert file["rec.vtx/x"].chunks[0] == -(-20 * rows // 128) * 128
        assert file["rec.vtx/x"].id.get_num_chunks() == 1
        assert file["rec.vtx/map"].chunks == (128, 24)  # wide ones are read row by row


def test_no_chunks_at_all(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, TableOptions(contiguous=True), jobs=1)
    with h5py.File(out) as file:
        assert file["rec.empty/x"].chunks is None
        assert file["rec.empty/x"].shape == (0, 1)
        assert file["rec.vtx/x"].chunks is None
    assert verify(out, inputs) == {}


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A file with texts, attributes, and a value without dimensions."""
    tables = events(3)
    rows = len(tables["rec.vtx"]["x"])
    path = write_file(tmp_path / "words.h5", tables)
    with h5py.File(path, "r+") as file:
        texts = [f"word {n}" for n in range(rows)]
        kind = h5py.string_dtype()
        file["rec.vtx"].create_dataset("word", (rows, 1), kind, maxshape=(None, 1))
        file["rec.vtx/word"][:, 0] = texts
        file["rec.vtx/x"].attrs["unit"] = "cm"
        file["rec.empty/x"].attrs["unit"] = "cm"
        file["version"] = 7
    return path


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_one_dimension(words: Path, compression: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    rechunk(words, out, TableOptions(flat=True, compression=compression), jobs=1)
    with h5py.File(words) as source, h5py.File(out) as file:
        assert file["rec.vtx/x"].ndim == 1
        assert file["rec.vtx/x"].maxshape == (None,)
        for name in ("x", "evt", "word"):
            assert (
                file[f"rec.vtx/{name}"][()].tolist()
                == source[f"rec.vtx/{name}"][()].ravel().tolist()
            ) or name == "x"
        assert file["rec.vtx/x"][()].tobytes() == source["rec.vtx/x"][()].tobytes()
        assert file["rec.vtx/map"].shape == source["rec.vtx/map"].shape
        assert file["rec.empty/x"].shape == (0,)
        assert file["rec.vtx/x"].attrs["unit"] == "cm"
    assert verify(out, [words]) == {}
    with h5py.File(out, "r+") as file:
        file["rec.vtx/id"][5] += 1
    assert list(verify(out, [words])) == [f"{out}: /rec.vtx/id"]


def test_empty_ones_as_scalars(words: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    rechunk(words, out, TableOptions(empty_as_scalars=True, flat=True), jobs=1)
    with h5py.File(out) as file:
        assert file["rec.empty/x"].shape == ()
        assert file["rec.empty/x"].dtype == np.float32
        assert file["rec.empty/x"].attrs["unit"] == "cm"
        assert file["version"][()] == 7
        assert file["rec.vtx/x"].ndim == 1
    assert verify(out, [words]) == {}
    again = tmp_path / "again.h5"
    rechunk(out, again, jobs=1)  # what is written can be read
    assert verify(again, [words]) == {}


@pytest.mark.parametrize("empty_as_scalars", [False, True])
def test_a_flat_file_with_keys(inputs: list[Path], tmp_path: Path, empty_as_scalars: bool) -> None:
    joined, out = tmp_path / "joined.h5", tmp_path / "out.h5"
    concatenate(inputs, joined, TableOptions(key="evt", counts=True), jobs=1)
    rechunk(joined, out, TableOptions(flat=True, empty_as_scalars=empty_as_scalars), jobs=1)
    with h5py.File(out) as file:
        assert file["rec.empty/evt.seq"].shape == (() if empty_as_scalars else (0,))
    assert check_keys(out)
    assert not [check for check in check_keys(out) if check.problem]
    assert verify(out, inputs, jobs=1) == {}


def test_keys_without_any_event_as_scalars(tmp_path: Path) -> None:
    empty, joined, out = (tmp_path / f"{name}.h5" for name in ("empty", "joined", "out"))
    with h5py.File(empty, "w") as file:
        for name in ("spill/evt", "rec/evt", "rec/x"):
            file.create_dataset(name, (0, 1), "i4", maxshape=(None, 1), chunks=(64, 1))
    concatenate([empty], joined, TableOptions(key="evt", counts=True), jobs=1)
    rechunk(joined, out, TableOptions(empty_as_scalars=True), jobs=1)
    assert [check.problem for check in check_keys(out)] == [""] * 4
    assert verify(out, [empty], jobs=1) == {}


def test_a_key_that_is_a_scalar_beside_rows_is_wrong(inputs: list[Path], tmp_path: Path) -> None:
    joined, out = tmp_path / "joined.h5", tmp_path / "out.h5"
    concatenate(inputs, joined, TableOptions(key="evt"), jobs=1)
    rechunk(joined, out, TableOptions(empty_as_scalars=True), jobs=1)
    with h5py.File(out, "r+") as file:
        del file["rec.vtx/evt.seq"]
        file["rec.vtx/evt.seq"] = 0
    (problem,) = [check for check in check_keys(out) if check.problem]
    assert problem.name == "/rec.vtx/evt.seq"
    assert "has 0 rows" in problem.problem


def test_dimensions_that_were_not_asked_for_are_a_difference(
    inputs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out.h5"
    rechunk(inputs[0], out, TableOptions(flat=True), jobs=1)
    with h5py.File(out, "r+") as file:
        del file.attrs["hepcache.options"]
    with pytest.raises(TableMismatchError, match="1 dimension"):
        verify(out, inputs[:1])


def test_verify_knows_how_an_output_was_made(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    with h5py.File(inputs[1], "r+") as file:
        file["spill"].attrs["made"] = "today"
    options = TableOptions(
        key="run,subrun,evt", key_groups=("rec.v*",), sort=("subrun",), attributes="first"
    )
    concatenate(inputs[::-1], out, options, jobs=1)
    assert verify(out, inputs[::-1]) == {}
    assert verify(out, inputs) == {}  # whatever their order
    with pytest.raises(TableMismatchError, match="attributes"):
        verify(out, inputs, attributes=True)
    usual = tmp_path / "usual.h5"
    concatenate(inputs[::-1], usual, TableOptions(attributes="first"), jobs=1)
    assert verify(usual, inputs) != {}
    with h5py.File(usual) as file:
        assert dict(file.attrs) == {"hepcache.options": '{"attributes": "first"}'}


@pytest.mark.parametrize("name", ["/rec.vtx/x", "rec.vtx/label", "/started", "/rec.vtx/word"])
def test_sort_by_any_dataset(name: str, inputs: list[Path], tmp_path: Path) -> None:
    order = [2, 0, 1]
    for path, rank in zip(inputs, order, strict=True):
        with h5py.File(path, "r+") as file:
            rows = len(file["rec.vtx/x"])
            file["rec.vtx/x"][0] = 1.5 * rank - 1
            file["rec.vtx/label"] = np.full(rows, b"part %d" % rank)
            file["rec.vtx"].create_dataset("word", (rows,), h5py.string_dtype())
            file["rec.vtx/word"][0] = f"part {rank}"
            file["started"] = rank * (name == "/started")
    out = tmp_path / "out.h5"
    options = TableOptions(sort=(name,))
    if name == "/started":
        with pytest.raises(TableMismatchError, match="value not that of"):
            concatenate(inputs, out, options, jobs=1)
        return
    concatenate(inputs, out, options, jobs=1)
    with h5py.File(out) as file:
        subruns = file["spill/subrun"][()].ravel()
        assert list(dict.fromkeys(subruns.tolist())) == [1, 2, 0]
    assert verify(out, inputs) == {}


def test_nothing_to_sort_by(inputs: list[Path], tmp_path: Path) -> None:
    kind = np.dtype([("low", "i4"), ("high", "i4")])
    for path in inputs:
        with h5py.File(path, "r+") as file:
            file["rec.vtx/pair"] = np.zeros(len(file["rec.vtx/x"]), kind)
    with pytest.raises(TableFileError, match="nothing to sort by"):
        concatenate(inputs, tmp_path / "out.h5", TableOptions(sort=("/rec.vtx/pair",)), jobs=1)


def test_bytes_per_event(inputs: list[Path]) -> None:
    found = describe(inputs[0]).to_dict()
    assert found["events"] == 30
    assert found["raw_bytes_per_event"] == found["raw_bytes"] / 30
    spill = next(group for group in found["by_group"] if group["name"] == "/spill")
    assert spill["raw_bytes_per_event"] == 20
    nowhere = describe(inputs[0], events="nowhere").to_dict()
    assert nowhere["events"] == 0
    assert nowhere["raw_bytes_per_event"] is None
