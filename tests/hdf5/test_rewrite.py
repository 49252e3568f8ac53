"""rechunk, merge by linking, split."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.hdf5.checks import key_problems

from hepcache.errors import ConfigurationError, TableFileError, TableMismatchError
from hepcache.hdf5 import (
    TableOptions,
    add_key,
    check_keys,
    concatenate,
    describe,
    link,
    rechunk,
    split,
    verify,
)

KEY = TableOptions(key="evt")
Same = Callable[..., None]


@pytest.fixture
def joined(inputs: list[Path], tmp_path: Path) -> Path:
    out = tmp_path / "joined.h5"
    concatenate(inputs, out, TableOptions(key="evt", chunk_rows=32), jobs=1)
    return out


def test_rechunk_keeps_keys(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out, again = tmp_path / "out.h5", tmp_path / "again.h5"
    concatenate(inputs, out, TableOptions(key="evt"), jobs=1)
    rechunk(out, again, TableOptions(chunk_rows=10, compression="none"), jobs=1)
    same(again, inputs, "evt")
    with h5py.File(again) as file:
        assert file["rec.vtx/evt.seq"].chunks == (10, 1)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_damaged_chunk_is_not_copied(jobs: int, shuffle: bool, tmp_path: Path) -> None:
    path, out = tmp_path / "in.h5", tmp_path / "out.h5"
    values = np.random.default_rng(1).integers(0, 99, (1000, 1))
    with h5py.File(path, "w") as file:
        options: dict[str, Any] = {"compression": "gzip", "shuffle": shuffle}
        made = file.create_dataset("rec/x", data=values, chunks=(256, 1), **options)
        place = made.id.get_chunk_info(1)
    same_chunks = TableOptions(chunk_rows=256)
    done = rechunk(path, out, same_chunks, jobs=jobs)
    assert (done.copied_chunks, done.chunks) == (4, 4)
    assert verify(out, [path], jobs=1) == {}
    damaged = bytearray(path.read_bytes())
    damaged[place.byte_offset + place.size // 2] ^= 16
    path.write_bytes(damaged)
    with pytest.raises(TableFileError, match=r"in\.h5: /rec/x, rows 256 to 512.*damaged"):
        rechunk(path, out, same_chunks, jobs=jobs, overwrite=True)
    with h5py.File(out) as file:
        assert np.array_equal(file["rec/x"], values)  # that of before


def test_virtual_merge(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "linked.h5"
    done = link(inputs, out, KEY, jobs=1)
    same(out, inputs, "evt")
    assert key_problems(out) == []
    assert verify(out, inputs, key="evt", jobs=1) == {}
    assert done.chunks == 2  # only keys
    assert 0 < describe(out).to_dict()["stored_bytes"] < 2000
    with h5py.File(out) as file:
        sources = file["rec.vtx/x"].virtual_sources()
        assert [source.file_name for source in sources] == [path.name for path in inputs]
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
        with h5py.File(inputs[1]) as single:
            assert np.array_equal(file["in1/rec.vtx/id"], single["rec.vtx/id"])
    found = {group.name: group.rows for group in describe(out).groups}
    with h5py.File(inputs[2]) as single:
        assert found["/in2/rec.vtx"] == len(single["rec.vtx/x"])
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


def test_a_file_that_an_external_link_leads_to_is_named(
    inputs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "linked.h5"
    link(inputs, out, how="external", jobs=1)
    inputs[1].unlink()
    with pytest.raises(TableFileError, match=r"/in1 leads to / of in1\.h5, which can't be opened"):
        describe(out)


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


def test_split_files_are_the_whole(
    joined: Path, inputs: list[Path], tmp_path: Path, same: Callable[..., None]
) -> None:
    made = split(joined, tmp_path / "parts", 4, TableOptions(key="evt", chunk_rows=9), jobs=1)
    paths = [Path(part.path) for part in made]
    assert [path.name for path in paths] == [f"joined-000{n}.h5" for n in range(4)]
    for path in paths:
        assert not [check.problem for check in check_keys(path) if check.problem]
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
    for part in made:
        with h5py.File(part.path) as file:
            found += [value.decode() for value in file["spill/name"][()]]
    assert found == words
