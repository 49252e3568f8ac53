"""A file that somebody writes is not read: locks are asked for as HDF5 asks for them."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.hdf5.conftest import events, write_file
from typer.testing import CliRunner

from hepcache.cli.app import app
from hepcache.errors import TableFileError
from hepcache.hdf5 import EventTables, TableOptions, append, concatenate, rechunk

WRITER = Path(__file__).with_name("writing.py")
WITHOUT_LOCKS = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}


@contextmanager
def writer(path: Path, how: str = "plain") -> Iterator[None]:
    """Let another process have a growing file open, with 10 of its 20 rows in it."""
    command = [sys.executable, WRITER, path, how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield
        finally:
            process.communicate("\n")


def opens(path: Path, mode: str) -> bool:
    """Tell whether another process can open a file."""
    script = f"import h5py; h5py.File({str(path)!r}, {mode!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert not done.returncode or "lock" in done.stderr
    return not done.returncode


@pytest.mark.parametrize("how", ["plain", "swmr"])
def test_a_file_that_is_being_written_is_refused(how: str, tmp_path: Path) -> None:
    path, out = tmp_path / "growing.h5", tmp_path / "out.h5"
    with writer(path, how):
        for command in (["concat", "-o", str(out), "--jobs", "1"], ["info"], ["check"]):
            done = CliRunner().invoke(app, ["hdf5", *command, str(path)])
            assert isinstance(done.exception, TableFileError)
            assert f"{path}: another program has it open for writing" in str(done.exception)
        assert not out.exists()
    concatenate([path], out, jobs=1)
    with h5py.File(out) as file:
        assert file["spill/evt"][()].ravel().tolist() == list(range(20))


def test_a_file_that_is_opened_for_writing_between_survey_and_reading(tmp_path: Path) -> None:
    path = write_file(tmp_path / "in.h5", events(1))
    others = [write_file(tmp_path / f"in{n}.h5", events(n)) for n in (2, 3)]
    seen = []

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "Reading metadata" and done == total:
            seen.append(h5py.File(path, "r+"))

    with pytest.raises(TableFileError, match=r"in\.h5: another program"):
        concatenate([path, *others], tmp_path / "out.h5", jobs=1, progress=progress)
    seen[0].close()


def test_what_is_read_can_be_read_by_others_but_not_written(tmp_path: Path) -> None:
    path = tmp_path / "keyed.h5"
    concatenate([write_file(tmp_path / "in.h5", events(1))], path, TableOptions(key="evt"), jobs=1)
    tables = EventTables(path)
    tables.keys("rec.vtx")
    assert opens(path, "r")
    assert not opens(path, "r+")
    tables.close()
    assert opens(path, "r+")


def test_a_file_is_not_changed_in_place_while_others_have_it(tmp_path: Path) -> None:
    path, more = (write_file(tmp_path / f"{n}.h5", events(n)) for n in (1, 2))
    before = path.read_bytes()
    with h5py.File(path, "r+"), pytest.raises(TableFileError, match="another program"):
        append([more], path, jobs=1)
    assert path.read_bytes() == before


def test_locks_are_left_alone_where_hdf5_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "growing.h5", tmp_path / "out.h5"
    script = f"import h5py; print(len(h5py.File({str(path)!r})['spill/evt']))"
    with writer(path):
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
        theirs = subprocess.check_output([sys.executable, "-c", script], env=WITHOUT_LOCKS)
        rechunk(path, out, jobs=1)
    with h5py.File(out) as file:
        assert len(file["spill/evt"]) == int(theirs) == 10


@pytest.mark.parametrize(
    ("wanted", "problem"), [("BEST_EFFORT", False), ("TRUE", True), (None, False)]
)
def test_file_systems_without_locks(
    wanted: str | None, problem: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(9)
    monkeypatch.delenv("HDF5_USE_FILE_LOCKING", raising=False)
    if wanted:
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", wanted)

    def not_there(_file: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    from hepcache.hdf5.format.mapped import MappedFile

    monkeypatch.setattr(fcntl, "flock", not_there)
    if problem:
        with pytest.raises(OSError, match="not implemented"):
            MappedFile(str(path))
    else:
        assert MappedFile(str(path)).size
