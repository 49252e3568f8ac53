from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import correctionlib
import numpy as np
import pytest
import uproot

from hepcache.results import content_digest, opened_files


def test_files_are_told_apart_by_what_is_done_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text", "raw", "array.npy", "both", "below"):
        Path(name).write_bytes(b"x")
    np.save("array.npy", np.arange(3))
    with gzip.open("packed.gz", "wt") as file:
        file.write("x")
    with opened_files() as opened:
        Path("text").read_text()
        os.close(os.open(b"raw", os.O_RDONLY))
        np.load("array.npy", mmap_mode="r")
        with gzip.open("packed.gz") as packed:
            packed.read()
        with pytest.raises(FileNotFoundError):
            Path("absent").read_text()
        Path("new").write_text("x")
        with Path("both").open("r+b") as both:
            both.read()
        with Path("both").open("rb") as both:
            both.read()
        with os.fdopen(os.open("below", os.O_RDONLY)) as below:  # by its descriptor
            below.read()
        Path("made").mkdir()
        Path("new").rename("renamed")
        list(tmp_path.iterdir())
    names = ("text", "raw", "array.npy", "packed.gz", "absent", "below")
    assert opened.read == {str(tmp_path / name) for name in names}
    assert opened.written == {str(tmp_path / name) for name in ("new", "both", "made", "renamed")}


def test_what_libraries_open_is_seen(tmp_path: Path) -> None:
    correction = {
        "name": "sf",
        "version": 1,
        "inputs": [],
        "output": {"name": "weight", "type": "real"},
        "data": 1.0,
    }
    content = {"schema_version": 2, "corrections": [correction]}
    (tmp_path / "sf.json").write_text(json.dumps(content))
    with uproot.recreate(tmp_path / "pileup.root") as file:
        file["pileup"] = np.histogram([1.0])
    (tmp_path / "masses.txt").write_text("* * x.json")
    with opened_files() as opened:
        correctionlib.CorrectionSet.from_file(str(tmp_path / "sf.json"))
        with uproot.open(tmp_path / "pileup.root") as file:
            file["pileup"].values()
        np.loadtxt(tmp_path / "masses.txt", str)
    names = ("sf.json", "pileup.root", "masses.txt")
    assert {path for path in opened.read if path.startswith(str(tmp_path))} == {
        str(tmp_path / name) for name in names
    }


def test_what_is_no_input_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("cache/column", "data.json", "hepcache_test_lazily.py"):
        (tmp_path / name).write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    with opened_files(lambda path: path.startswith(f"{tmp_path}/cache/")) as opened:
        sys.modules.pop("colorsys", None)
        import colorsys  # noqa: F401 - of Python's own

        import hepcache_test_lazily  # noqa: F401 - of the user

        Path("/proc/self/stat").read_text()
        Path("/dev/null").write_text("")
        (tmp_path / "cache/column").read_text()
        (tmp_path / "cache/other").write_text("")
        os.close(os.open(tmp_path, os.O_RDONLY))
        (tmp_path / "data.json").read_text()
    del sys.modules["hepcache_test_lazily"]
    assert opened.read == {
        str(tmp_path / name) for name in ("data.json", "hepcache_test_lazily.py")
    }
    assert opened.written == set()


def test_recorders_are_of_their_thread_and_nest(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)

    def elsewhere() -> None:
        (tmp_path / "a").read_text()

    with opened_files() as outer:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with opened_files() as inner:
            (tmp_path / "b").read_text()
        (tmp_path / "c").read_text()
    (tmp_path / "a").read_text()
    assert inner.read == {str(tmp_path / "b")}
    assert outer.read == {str(tmp_path / "b"), str(tmp_path / "c")}


def test_an_error_ends_the_recording(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with suppress(KeyError), opened_files() as opened:
        raise KeyError
    (tmp_path / "a").read_text()
    assert opened.read == set()


def test_content_decides_the_digest(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"x" * 3_000_000)
    other.write_bytes(b"x" * 3_000_000)
    os.utime(other, (0, 0))
    digest = content_digest(str(one))
    assert digest is not None
    assert len(digest) == 32
    assert content_digest(str(other)) == digest
    other.write_bytes(b"x" * 2_999_999 + b"y")
    assert content_digest(str(other)) != digest
    other.unlink()
    assert content_digest(str(other)) is None
    assert content_digest(str(tmp_path)) is None
    os.mkfifo(other)
    assert content_digest(str(other)) is None


def test_a_digest_is_remembered_while_the_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 30_000_000)
    # As if it had been there for long.
    later = time.time_ns() + 10_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    first = content_digest(str(path))
    began = time.thread_time()
    assert content_digest(str(path)) == first
    assert time.thread_time() - began < 0.002
    known = path.stat()
    path.write_bytes(b"y" * 30_000_000)
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))  # its inode's change is left
    assert content_digest(str(path)) != first


def test_a_file_that_has_just_changed_is_read_again(tmp_path: Path) -> None:
    """Two changes within the clock's grain leave size and times as they are."""
    path = tmp_path / "young"
    path.write_text("a")
    content_digest(str(path))
    from hepcache.results.opened_files import _digests

    assert str(path) not in _digests


def test_other_events_cost_next_to_nothing() -> None:
    with opened_files():
        pass
    began = time.thread_time()
    for _ in range(10_000):
        sys.audit("hepcache.test")
    assert (time.thread_time() - began) / 10_000 < 5e-6
