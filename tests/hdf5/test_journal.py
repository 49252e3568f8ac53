"""Killed at any moment: what is visible is complete, and the next run goes on."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5 import (
    TableOptions,
    append,
    concatenate,
    journal,
    output,
    plan,
    recover_output,
    verify,
)
from hepcache.hdf5.journal import JournaledFile

CRASH = Path(__file__).with_name("crash.py")
OPTIONS = TableOptions(key="evt", chunk_rows=32, wide_chunk_rows=16)
Same = Callable[..., None]


def crash(what: str, out: Path, calls: list[int], inputs: list[Path]) -> list[int]:
    """Return the calls at which the action was killed."""
    command = [sys.executable, str(CRASH), what, str(out), json.dumps(calls), *map(str, inputs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    killed: list[int] = json.loads(done.stdout)
    return killed


@pytest.mark.slow
def test_an_append_killed_at_any_call(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    shutil.copy(out, f"{out}.kept")
    killed = crash("append", out, [*range(1, 400, 7)], inputs[2:])
    assert len(killed) > 5
    half = 0
    for call in killed:
        after = Path(f"{out}.after{call}")
        own_journal = after.with_name(f".{after.name}.journal")
        if own_journal.exists():
            # Only while the journal is applied can a reader find it half done.
            recover_output(after)
            same(after, inputs, "evt")
            assert not own_journal.exists()
            half += 1
            continue
        with h5py.File(after) as file:
            finished = len(file["spill/evt"]) > 30 + 37
        same(after, inputs if finished else inputs[:2], "evt")
        if not finished:
            append(inputs[2:], after, OPTIONS, jobs=1)
            same(after, inputs, "evt")


def test_the_journal_is_applied_by_the_next_command(
    inputs: list[Path], tmp_path: Path, same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)

    # Cut off where the journal is complete and nothing was applied.
    def cut(*_: object) -> None:
        raise OSError(errno.EIO, "cut off")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_apply", cut)
        with pytest.raises(TableFileError, match="cut off"):
            append(inputs[2:], out, OPTIONS, jobs=1)
    assert (tmp_path / ".out.h5.journal").exists()
    same(out, inputs[:2], "evt")  # still all of the old content
    with pytest.raises(TableMismatchError, match="more than one file"):
        append(inputs[2:], out, OPTIONS, jobs=1)  # finishes the first one, refuses to repeat it
    same(out, inputs, "evt")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_a_concatenation_killed_at_any_call(
    inputs: list[Path], tmp_path: Path, same: Same
) -> None:
    out = tmp_path / "out.h5"
    killed = crash("concat", out, [*range(1, 400, 19)], inputs)
    assert len(killed) > 5
    resumed, published = 0, list[Path]()
    for call in killed:
        after = Path(f"{out}.after{call}")
        if after.exists():
            # Killed when only its traces were left to be removed: it is there, so it is whole.
            same(after, inputs, "evt")
            published.append(after)
            continue
        done = concatenate(inputs, after, OPTIONS, jobs=1)
        resumed += done.resumed_chunks > 0
        same(after, inputs, "evt")
    assert resumed > 2
    for after in published:
        # The next command that writes this output removes what is left of the run that made it.
        with pytest.raises(TableFileError, match="--overwrite"):
            concatenate(inputs, after, OPTIONS, jobs=1)
    assert not [path.name for path in tmp_path.glob(".*") if path.name != ".out.h5.lock"]


@pytest.mark.parametrize("named", ["twice", "once"])
def test_what_a_run_left_that_was_killed_behind_its_goal(
    inputs: list[Path], tmp_path: Path, same: Same, named: str
) -> None:
    out, part = tmp_path / "out.h5", tmp_path / ".out.h5.part"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    for suffix in ("job", "job.part", "part-journal", "part-journal.part", "lock"):
        (tmp_path / f".out.h5.{suffix}").write_text("left")
    if named == "twice":
        part.hardlink_to(out)
    append(inputs[2:], out, OPTIONS, jobs=1)
    same(out, inputs, "evt")
    assert sorted(tmp_path.iterdir()) == sorted([out, *inputs])


def test_an_interrupted_run_goes_on(
    inputs: list[Path], tmp_path: Path, same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.h5"
    monkeypatch.setattr(output, "_CHECKPOINT_S", 0.0)
    monkeypatch.setattr(plan, "_LEAST_TASK_BYTES", 512)
    monkeypatch.setattr(plan, "_FILE_BYTES", 0)

    def interrupt(phase: str, done: int, total: int) -> None:
        if phase == "Writing" and 0.5 * total < done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        concatenate(inputs, out, OPTIONS, jobs=1, progress=interrupt)
    assert not out.exists()
    with pytest.raises(TableFileError, match="--restart"):
        concatenate(inputs[:2], out, OPTIONS, jobs=1)
    done = concatenate(inputs, out, OPTIONS, jobs=1)
    assert done.resumed_chunks > done.chunks / 4 > 0
    same(out, inputs, "evt")
    assert verify(out, inputs, key="evt", jobs=1) == {}
    assert not list(tmp_path.glob(".*"))


def test_a_run_that_broke_early_leaves_nothing(inputs: list[Path], tmp_path: Path) -> None:
    def interrupt(phase: str, done: int, total: int) -> None:
        if phase == "Writing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        concatenate(inputs, tmp_path / "out.h5", OPTIONS, jobs=1, progress=interrupt)
    assert sorted(tmp_path.iterdir()) == sorted(inputs)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_a_full_disk(inputs: list[Path], tmp_path: Path, same: Same, share: float) -> None:
    out, old = tmp_path / "out.h5", tmp_path / "old.h5"
    needed = concatenate(inputs, out, OPTIONS, jobs=1).stored_bytes
    shutil.copy(out, old)
    concatenate(inputs[:2], old, OPTIONS, jobs=1, overwrite=True)
    before = old.read_bytes()
    grown = append(inputs[2:], old, OPTIONS, jobs=1).stored_bytes - len(before)
    old.write_bytes(before)
    out.unlink()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # To the process that writes, a file that may not grow looks like a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(needed * share), hard))
    try:
        with pytest.raises(TableFileError, match="could not be written: File too large") as raised:
            concatenate(inputs, out, OPTIONS, jobs=1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + int(grown * share), hard))
        with pytest.raises(TableFileError, match="could not be written: File too large"):
            append(inputs[2:], old, OPTIONS, jobs=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.path == str(out)
    assert not out.exists()
    assert old.read_bytes() == before
    assert not list(tmp_path.glob(".*"))
    concatenate(inputs, out, OPTIONS, jobs=1)
    same(out, inputs, "evt")
    append(inputs[2:], old, OPTIONS, jobs=1)
    same(old, inputs, "evt")


def test_hdf5_closes_what_the_system_refused(
    inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write may fail: none of them leaves a name, an open file, or a crash at exit."""
    out = tmp_path / "out.h5"
    write = JournaledFile.write
    for failing in (1, 5, 20, 40):
        count = [0]

        def refuse(
            self: JournaledFile, data: object, n: int = failing, count: list[int] = count
        ) -> int:
            count[0] += 1
            if count[0] == n:
                self.failure = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(self, data)

        with monkeypatch.context() as patch:
            patch.setattr(JournaledFile, "write", refuse)
            with pytest.raises(TableFileError, match="No space left"):
                concatenate(inputs, out, OPTIONS, jobs=1)
        assert sorted(tmp_path.iterdir()) == sorted(inputs)
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    assert not [path for path in links if path.startswith(str(tmp_path))]


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
