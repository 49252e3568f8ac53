"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache.disk.files import remove_garbage
from hepcache.io.atomic import atomic_file, make_directories, temporary_name, write_atomically


@pytest.fixture(autouse=True)
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "a", b"old")

    def broken(*_):
        raise OSError("disk gone")

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(OSError, match="disk gone"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_name_in_the_working_directory_needs_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_atomically("a", b"content")
    with atomic_file("b") as part:
        part.write_bytes(b"other")
    assert (tmp_path / "a").read_bytes() == b"content"
    assert (tmp_path / "b").read_bytes() == b"other"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "b"]


def test_pieces_of_any_type_stand_one_after_the_other(tmp_path):
    pieces = [b"ab", np.arange(2, dtype="<i4"), b"", np.empty(0), memoryview(b"c")] * 600
    path = write_atomically(tmp_path / "a", *pieces)
    assert path.read_bytes() == b"".join(bytes(piece) for piece in pieces)
    assert write_atomically(path).read_bytes() == b""


def test_the_first_of_two_stays_where_nothing_is_replaced(tmp_path):
    path = tmp_path / "a"
    write_atomically(path, b"first", overwrite=False)
    write_atomically(path, b"second", overwrite=False)
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_modes_are_those_wanted_or_the_umasks(tmp_path):
    assert _mode(write_atomically(tmp_path / "x" / "open", b"")) == 0o644
    assert _mode(tmp_path / "x") == 0o755
    private = write_atomically(tmp_path / "y" / "private", b"", mode=0o600, directory_mode=0o700)
    assert (_mode(private), _mode(private.parent)) == (0o600, 0o700)
    shared = write_atomically(tmp_path / "z" / "group", b"", mode=0o660, directory_mode=0o2770)
    assert (_mode(shared), _mode(shared.parent)) == (0o660, 0o2770)


def test_missing_directories_of_a_name_elsewhere_are_made(tmp_path):
    target = tmp_path / "v1" / "tree" / "a"
    write_atomically(target, b"x", temporary=str(tmp_path / "part"), modified_ns=10**18)
    assert target.read_bytes() == b"x"
    assert target.stat().st_mtime_ns == 10**18
    assert not (tmp_path / "part").exists()


def test_a_file_that_is_written_by_a_library_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "a"
    with atomic_file(path) as part:
        part.write_bytes(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    with pytest.raises(TypeError), atomic_file(path) as part:
        part.write_bytes(b"half") + None
    assert path.read_bytes() == b"whole"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_directories_have_their_mode_whatever_the_umask(tmp_path):
    os.umask(0o077)
    make_directories(tmp_path / "a" / "b", 0o2770)
    assert _mode(tmp_path / "a") == _mode(tmp_path / "a" / "b") == 0o2770
    os.umask(0o022)
    make_directories(tmp_path / "a" / "b", 0o700)
    assert _mode(tmp_path / "a" / "b") == 0o2770


def test_a_cleaner_takes_no_file_from_a_writer_that_lives(tmp_path: Path) -> None:
    temporary, done = tmp_path / "tmp", threading.Event()
    temporary.mkdir()

    def clean() -> None:
        while not done.is_set():
            remove_garbage(str(temporary))

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        for number in range(500):
            write_atomically(
                tmp_path / "file",
                b"%d" % number,
                temporary=temporary_name(f"{temporary}/part"),
                locked=True,
                durable=False,
            )
    finally:
        done.set()
        cleaner.join()
    assert (tmp_path / "file").read_bytes() == b"499"
    assert list(temporary.iterdir()) == []
