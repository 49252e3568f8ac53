"""Every dataset of every input, bit for bit, with any options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hdf5.checks import refused

from hepcache.errors import ConfigurationError, TableFileError
from hepcache.hdf5 import TableOptions, concatenate, verify

Same = Callable[..., None]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"key": "evt"},
    {"key": "evt", "chunk_rows": 7, "wide_chunk_rows": 5},
    {"chunk_rows": 16, "wide_chunk_rows": 16},
    {"chunk_rows": None, "wide_chunk_rows": None},
    {"effort": "fast"},
    {"effort": "small"},
    {"level": 9},
    {"shuffle": True, "chunk_rows": 50},
    {"contiguous": True, "key": "evt"},
    {"compress_from": 1000},
    {"compression": "none"},
    {"compression": "zstd"},
    {"compression": "blosc", "shuffle": True, "chunk_rows": 30},
    {"copy_chunks": False, "wide_chunk_rows": 16},
]


KEY = TableOptions(key="evt")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(inputs: list[Path], tmp_path: Path, same: Same, options: dict[str, Any]) -> None:
    import hdf5plugin  # noqa: F401 - so that h5py can read the result

    out = tmp_path / "out.h5"
    done = concatenate(inputs, out, TableOptions(**options), jobs=1)
    same(out, inputs, options.get("key"))
    assert done.stored_bytes == out.stat().st_size
    assert not list(tmp_path.glob(".*"))


def test_what_the_options_do(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, TableOptions(chunk_rows=64, wide_chunk_rows=32, level=4), jobs=1)
    with h5py.File(out) as file:
        vtx = file["rec.vtx"]
        assert vtx["x"].chunks == (64, 1)
        assert vtx["map"].chunks == (32, 24)
        assert vtx["x"].maxshape == (None, 1)
        assert vtx["x"].compression_opts == 4
        assert file.id.get_create_plist().get_version()[0] == 0  # the earliest superblock
    concatenate(inputs, out, TableOptions(compress_from=10**6), jobs=1, overwrite=True)
    with h5py.File(out) as file:
        assert file["rec.vtx/x"].compression is None
    concatenate(inputs, out, TableOptions(contiguous=True), jobs=1, overwrite=True)
    with h5py.File(out) as file:
        assert file["rec.vtx/x"].chunks is None
    concatenate(inputs, out, jobs=1, overwrite=True)
    with h5py.File(out) as file:
        assert file["rec.vtx/x"].chunks == (384, 1)  # no longer than the rows need
        assert file["rec.empty/x"].chunks == (262_144, 1)


def test_aligned_chunks_are_copied_as_they_are(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    done = concatenate(inputs[:1], out, TableOptions(chunk_rows=16, wide_chunk_rows=16), jobs=1)
    assert done.copied_chunks == done.chunks > 0
    with h5py.File(out) as made, h5py.File(inputs[0]) as first:
        for name in ("rec.vtx/x", "rec.vtx/cube"):
            offset = (16, *(0 for _ in made[name].shape[1:]))
            chunks = [file[name].id.read_direct_chunk(offset)[1] for file in (made, first)]
            assert chunks[0] == chunks[1]


def test_real_files(shared_data: Path, tmp_path: Path, same: Same) -> None:
    files = sorted((shared_data / "hdf5").glob("*.h5"))
    out = tmp_path / "out.h5"
    concatenate(files, out, TableOptions(key="evt"), jobs=2)
    same(out, files, "evt")
    assert verify(out, files, key="evt", jobs=1) == {}


def test_more_workers_than_files(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:2], out, TableOptions(key="evt", chunk_rows=32), jobs=4)
    same(out, inputs[:2], "evt")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_what_files_may_hold(tmp_path: Path, same: Same, libver: str) -> None:
    paths = []
    for number, rows in enumerate((13, 0, 40)):
        path = tmp_path / f"in{number}.h5"
        paths.append(path)
        rng = np.random.default_rng(number)
        with h5py.File(path, "w", libver=libver) as file:
            file.attrs["experiment"] = "none"
            group = file.create_group("deep/er")
            group.attrs["units"] = np.array(["cm", "GeV"], dtype=h5py.string_dtype())

            def add(name: str, values: Any, group: Any = group, **options: Any) -> Any:
                shape = (None, *values.shape[1:])
                chunks = options.pop("chunks", (8, *values.shape[1:]))
                return group.create_dataset(
                    name, data=values, maxshape=shape, chunks=chunks, **options
                )

            kinds = ["<f8", ">f4", "i1", "u8", "?", "<c8"]
            for n, kind in enumerate(kinds):
                add(f"type{n}", rng.integers(0, 2, (rows, 1)).astype(kind), compression=6)
            pair = np.zeros(rows, [("a", "<i4"), ("b", ">f8", (2,))])
            pair["b"] = rng.normal(size=(rows, 2))
            add("pair", pair, compression=1)
            add("opaque", np.array([b"abc"] * rows, "S3").astype("V3"))
            add("fixed", np.array([b"word %d" % n for n in range(rows)], "S8"), compression=6)
            group.create_dataset(
                "strings",
                (rows,),
                h5py.string_dtype(),
                maxshape=(None,),
                chunks=(4,),
                compression=6,
            )
            lists = group.create_dataset(
                "lists", (rows,), h5py.vlen_dtype("f4"), maxshape=(None,), chunks=(4,)
            )
            for n in range(rows):
                group["strings"][n] = "long " * 2000 if n == 7 else f"wörd {n}"
                lists[n] = np.arange(n % 5) / 3
            add("shuffled", np.arange(rows, dtype="i8"), shuffle=True, compression=4)
            add("checked", np.arange(rows, dtype="i8"), fletcher32=True)
            add("foreign", np.arange(rows, dtype="i8"), compression="lzf")
            add("square", rng.random((rows, 6, 4)), chunks=(3, 2, 4), compression=6)
            add("filled", np.arange(rows, dtype="i4"), fillvalue=-7).attrs["note"] = b"bytes"
            sparse = group.create_dataset(
                "sparse", (rows,), "i4", chunks=(4,), fillvalue=9, maxshape=(None,)
            )
            if rows > 12:
                sparse[9] = 1
            group.create_dataset("plain", data=np.arange(rows))
            group.create_dataset("nothing", (rows, 0), "f4")
            file["number"] = 4.5
            file["label"] = "text"
            file["void"] = h5py.Empty("f4")
    out = tmp_path / "out.h5"
    concatenate(paths, out, TableOptions(chunk_rows=6, wide_chunk_rows=5), jobs=1)
    with h5py.File(out) as made:
        assert made["number"][()] == 4.5
        assert made["label"][()] == b"text"
        assert made["void"].shape is None
        assert made["deep/er/filled"].fillvalue == -7
    with h5py.File(out) as made, h5py.File(paths[0]) as first, h5py.File(paths[2]) as last:
        assert dict(made.attrs) == dict(first.attrs)
        assert made["deep/er"].attrs["units"].tolist() == ["cm", "GeV"]
        assert list(made["deep/er"]) == list(first["deep/er"])
        for name in made["deep/er"]:
            ours, a, b = (file[f"deep/er/{name}"] for file in (made, first, last))
            assert ours.id.get_type().equal(a.id.get_type()), name
            assert dict(ours.attrs) == dict(a.attrs)
            assert ours.fillvalue == a.fillvalue
            if ours.dtype.hasobject:
                assert repr(list(ours[()])) == repr([*a[()], *b[()]]), name
            else:
                assert ours[()].tobytes() == a[()].tobytes() + b[()].tobytes(), name


def test_creation_order_is_kept(tmp_path: Path, same: Same) -> None:
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path in paths:
        with h5py.File(path, "w", track_order=True) as file:
            for group in ("z", "a", "m"):
                made = file.create_group(group, track_order=True)
                for name in ("second", "first"):
                    made.create_dataset(name, data=np.arange(5), chunks=(2,), maxshape=(None,))
    out = tmp_path / "out.h5"
    concatenate(paths, out, jobs=1)
    with h5py.File(out) as file:
        assert list(file) == ["z", "a", "m"]
        assert list(file["a"]) == ["second", "first"]


def test_formats_may_be_mixed(tmp_path: Path, same: Same) -> None:
    paths = [tmp_path / "old.h5", tmp_path / "new.h5"]
    for path, libver, chunk in zip(paths, ("earliest", "latest"), (3, 8), strict=True):
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset(
                "g/x", data=np.arange(20.0), chunks=(chunk,), maxshape=(None,), shuffle=chunk == 8
            )
    out = tmp_path / "out.h5"
    concatenate(paths, out, jobs=1)
    with h5py.File(out) as file:
        assert file["g/x"][()].tolist() == [*range(20), *range(20)]


def test_sorted_by_run_and_subrun(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "out.h5"
    shuffled = [inputs[2], inputs[0], inputs[1]]
    concatenate(shuffled, out, TableOptions(sort=("run", "subrun"), key="evt"), jobs=1)
    same(out, inputs, "evt")


def test_inputs_are_not_touched(inputs: list[Path], tmp_path: Path) -> None:
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in inputs]
    concatenate(inputs, tmp_path / "out.h5", TableOptions(key="evt"), jobs=1)
    assert before == [(path.read_bytes(), path.stat().st_mtime_ns) for path in inputs]


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    into=st.integers(1, 40),
    chunks=st.lists(st.integers(1, 20), min_size=4, max_size=4),
    width=st.integers(1, 3),
)
def test_any_lengths_and_chunks(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    into: int,
    chunks: list[int],
    width: int,
) -> None:
    directory = tmp_path_factory.mktemp("any")
    paths, values = [], []
    for n, (length, chunk) in enumerate(zip(lengths, chunks, strict=False)):
        paths.append(directory / f"{n}.h5")
        values.append(np.arange(length * width, dtype="<u2").reshape(length, width) + 1000 * n)
        with h5py.File(paths[-1], "w") as file:
            file.create_dataset(
                "g/x",
                data=values[-1],
                maxshape=(None, width),
                chunks=(chunk, width),
                compression=1,
            )
    out = directory / "out.h5"
    concatenate(paths, out, TableOptions(chunk_rows=into, wide_chunk_rows=into), jobs=1)
    with h5py.File(out) as file:
        assert np.array_equal(file["g/x"][()], np.concatenate(values))


def test_no_input() -> None:
    with pytest.raises(ConfigurationError, match="at least one file"):
        concatenate([], "out.h5", jobs=1)


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
