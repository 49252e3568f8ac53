"""Rows that lie in other files: those must be there, and what they were."""

from __future__ import annotations

import os
import pickle
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from hepcache.cli.app import app
from hepcache.errors import BadFileError, TableFileError
from hepcache.eventstore import connect, ingest
from hepcache.formats.registry import probe
from hepcache.hdf5 import EventTables, TableOptions, concatenate, link, verify
from hepcache.hdf5.format.sources import RECORD

KEY = TableOptions(key="evt")


def refusal(*arguments: object) -> str:
    """Require that a command fails because of a file; return what it says."""
    done = CliRunner().invoke(app, ["hdf5", *map(str, arguments)])
    assert isinstance(done.exception, TableFileError), done.output
    return str(done.exception)


def commands(merged: Path, inputs: list[Path], out: Path) -> list[list[object]]:
    """Return every command that reads a file, applied to a merged one."""
    return [
        ["info", merged],
        ["check", merged],
        ["verify", merged, *inputs, "--key", "evt", "--jobs", 1],
        ["concat", merged, "-o", out, "--key", "evt", "--jobs", 1],
        ["rechunk", merged, "-o", out, "--jobs", 1],
        ["merge", merged, "-o", out, "--jobs", 1],
        ["merge", merged, "-o", out, "--how", "external", "--jobs", 1],
        ["split", merged, "--parts", 2],
        ["split", merged, "--parts", 2, "-o", out, "--jobs", 1],
        ["add-key", merged, "--jobs", 1],
    ]


def lost(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))


def other_values(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["rec.vtx/x"][0] = 5.0
    later(path)


def later(path: Path) -> None:
    """Let a change show on file systems that keep coarse times."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def shorter(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["rec.vtx/x"].resize(3, axis=0)


def without_dataset(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file["rec.vtx/x"]


def cut_off(path: Path) -> None:
    os.truncate(path, 1000)


@pytest.fixture
def merged(inputs: list[Path], tmp_path: Path) -> Path:
    """Three files joined by reference."""
    out = tmp_path / "merged.h5"
    link(inputs, out, KEY, jobs=1)
    return out


@pytest.mark.parametrize("change", [lost, other_values, shorter, without_dataset, cut_off])
def test_every_command_names_what_is_missing_or_changed(
    change: Callable[[Path], None], inputs: list[Path], merged: Path, tmp_path: Path
) -> None:
    change(inputs[1])
    readable = [path for path in inputs if path != inputs[1]]
    for command in commands(merged, readable, tmp_path / "out"):
        said = refusal(*command)
        assert str(merged) in said
        assert "in1.h5" in said
        assert "in0.h5" not in said, command
        assert not (tmp_path / "out").is_file()


def test_all_that_are_missing_are_named(inputs: list[Path], merged: Path) -> None:
    lost(inputs[0])
    lost(inputs[2])
    said = refusal("check", merged)
    assert "in0.h5" in said
    assert "in2.h5" in said


def test_readers_refuse_too(inputs: list[Path], merged: Path, tmp_path: Path) -> None:
    tables = EventTables(merged)
    late = pickle.dumps(tables)
    (everything,) = tables.ranges(1)
    lost(inputs[1])
    # It may go at any time: here between opening and reading.
    with pytest.raises(TableFileError, match=r"in1\.h5"):
        tables.read(everything, ["rec.vtx/x"])
    with pytest.raises(TableFileError, match=r"in1\.h5"):
        pickle.loads(late)
    with connect("mem://") as store, pytest.raises(TableFileError, match=r"in1\.h5"):
        ingest(store, "nova", [merged])
    with pytest.raises(BadFileError, match=r"in1\.h5"):
        probe(str(merged), "spill")


def test_a_source_that_goes_while_it_is_read(inputs: list[Path], merged: Path) -> None:
    tables = EventTables(merged)
    (everything,) = tables.ranges(1)
    whole = tables.read(everything, ["rec.vtx/x"])["rec.vtx/x"]
    later(inputs[1])
    with pytest.raises(TableFileError, match=r"in1\.h5"):
        tables.read(everything, ["rec.vtx/x"])
    assert whole.any()


def test_a_merge_of_merged_files(inputs: list[Path], merged: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.h5"
    link([merged], again, KEY, jobs=1)
    assert verify(again, inputs, key="evt", jobs=1) == {}
    lost(inputs[1])
    assert "in1.h5" in refusal("check", again)


def test_the_record_is_no_attribute_of_the_tables(
    inputs: list[Path], merged: Path, tmp_path: Path, same: Callable[..., None]
) -> None:
    with h5py.File(merged) as file:
        assert RECORD in file.attrs
    out = tmp_path / "whole.h5"
    concatenate([merged], out, KEY, jobs=1)
    same(out, inputs, "evt")
    with h5py.File(out) as file:
        assert RECORD not in file.attrs


def made_by_h5py(inputs: list[Path], out: Path) -> Path:
    """Join the columns of files as others do: by slices, without a note of the files."""
    with h5py.File(out, "w") as file:
        for name in ("spill/evt", "spill/pot", "rec.vtx/evt", "rec.vtx/x"):
            sources = []
            for path in inputs:
                with h5py.File(path) as single:
                    sources.append(h5py.VirtualSource(single[name]))
            rows = sum(source.shape[0] for source in sources)
            layout = h5py.VirtualLayout((rows, 1), sources[0].dtype)
            begin = 0
            for source in sources:
                layout[begin : begin + source.shape[0]] = source[: source.shape[0]]
                begin += source.shape[0]
            file.create_virtual_dataset(name, layout, fillvalue=7)
    return out


@pytest.mark.parametrize("change", [lost, shorter, without_dataset, cut_off])
def test_files_of_others(
    change: Callable[[Path], None], inputs: list[Path], tmp_path: Path
) -> None:
    theirs = made_by_h5py(inputs, tmp_path / "theirs.h5")
    whole = tmp_path / "whole.h5"
    concatenate([theirs], whole, jobs=1)
    assert verify(whole, [theirs], jobs=1) == {}
    change(inputs[1])
    for command in (
        ["info", theirs],
        ["check", theirs],
        ["verify", whole, theirs, "--jobs", 1],
        ["concat", theirs, "-o", tmp_path / "out.h5", "--jobs", 1],
        ["rechunk", theirs, "-o", tmp_path / "out.h5", "--jobs", 1],
    ):
        assert "in1.h5" in refusal(*command)


def test_sources_are_found_where_hdf5_finds_them(
    inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = made_by_h5py(inputs, tmp_path / "theirs.h5")
    (tmp_path / "elsewhere").mkdir()
    moved = [path.rename(tmp_path / "elsewhere" / path.name) for path in inputs]
    assert "in0.h5" in refusal("info", theirs)
    monkeypatch.setenv("HDF5_VDS_PREFIX", str(tmp_path / "elsewhere"))
    out = tmp_path / "out.h5"
    concatenate([theirs], out, jobs=1)
    with h5py.File(out) as file, h5py.File(moved[1]) as middle:
        assert np.isin(middle["rec.vtx/x"][()], file["rec.vtx/x"][()]).sum() > 20


def test_a_dataset_that_grows_with_its_source(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file.create_dataset("x", data=np.arange(20), maxshape=(None,), chunks=(8,))
        source = h5py.VirtualSource(file["x"])
    layout = h5py.VirtualLayout((20,), "i8", maxshape=(None,))
    layout[0 : h5py.h5s.UNLIMITED] = source[0 : h5py.h5s.UNLIMITED]
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    with h5py.File(tmp_path / "source.h5", "r+") as file:
        file["x"].resize(30, axis=0)
        file["x"][20:] = np.arange(20, 30)
    out = tmp_path / "out.h5"
    concatenate([tmp_path / "theirs.h5"], out, jobs=1)
    with h5py.File(out) as file:
        assert file["x"][()].tolist() == list(range(30))
    (tmp_path / "source.h5").unlink()
    assert "source.h5" in refusal("info", tmp_path / "theirs.h5")


def test_a_gap_among_files_of_a_pattern(tmp_path: Path) -> None:
    parts = [tmp_path / f"part-{number}.h5" for number in range(3)]
    for number, part in enumerate(parts):
        with h5py.File(part, "w") as file:
            file["x"] = np.arange(3) + 3 * number
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        rows = h5py.h5s.create_simple((0,), (h5py.h5s.UNLIMITED,))
        rows.select_hyperslab((0,), (h5py.h5s.UNLIMITED,), (3,), (3,))
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_virtual(rows, b"part-%b.h5", b"x", h5py.h5s.create_simple((3,)))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT64, rows, creation)
    theirs, out = tmp_path / "theirs.h5", tmp_path / "out.h5"
    concatenate([theirs], out, jobs=1)
    with h5py.File(out) as file:
        assert file["x"][()].tolist() == list(range(9))
    # Nobody can know of the last one; HDF5 ends at the first that is not there.
    for lost in (1, 0):
        parts[lost].unlink()
        for command in (["info", theirs], ["rechunk", theirs, "-o", tmp_path / "new.h5"]):
            assert f"part-{lost}.h5" in refusal(*command)
    for part in parts[2:]:
        part.unlink()
    assert "part-0.h5" in refusal("info", theirs)


def test_raw_bytes_in_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / "raw.bin"
    raw.write_bytes(b"head" + np.arange(1, 11, dtype="<i8").tobytes())
    theirs = tmp_path / "theirs.h5"
    with h5py.File(theirs, "w") as file:
        file.create_dataset("x", (10,), "<i8", external=[("raw.bin", 4, 80)])
    concatenate([theirs], tmp_path / "out.h5", jobs=1)
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][()].tolist() == list(range(1, 11))
    # HDF5 takes zeros for what lies behind its end.
    os.truncate(raw, 44)
    assert "raw.bin" in refusal("concat", theirs, "-o", tmp_path / "more.h5", "--jobs", 1)
    raw.unlink()
    assert "raw.bin" in refusal("info", theirs)


@contextmanager
def few_files() -> Iterator[None]:
    """Let this process open few files at once, and no more on demand."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (there + 20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_sources_than_files_may_be_open(tmp_path: Path) -> None:
    paths = []
    for number in range(40):
        path = tmp_path / f"in{number:02d}.h5"
        with h5py.File(path, "w") as file:
            file["spill/evt"] = np.arange(5) + 1
        paths.append(path)
    merged, out = tmp_path / "merged.h5", tmp_path / "out.h5"
    link(paths, merged, jobs=1)
    with few_files():
        concatenate([merged], out, jobs=1)
    with h5py.File(out) as file:
        assert file["spill/evt"][()].tolist() == [1, 2, 3, 4, 5] * 40


def test_a_run_of_coffea_needs_to_know_the_sources(inputs: list[Path], tmp_path: Path) -> None:
    theirs = made_by_h5py(inputs, tmp_path / "theirs.h5")
    with h5py.File(theirs, "r+") as file:
        numbers: Any = np.arange(len(file["spill/evt"]))
        file["spill/evt.seq"] = numbers
    with pytest.raises(BadFileError, match="hepcache hdf5 merge"):
        probe(str(theirs), "spill")
