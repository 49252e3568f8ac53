"""Killed at any moment: what is visible is complete, and the next run goes on."""

from __future__ import annotations

import contextlib
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
import psutil
import pytest

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5 import (
    TableOptions,
    add_key,
    append,
    check_keys,
    concatenate,
    recover_output,
    verify,
)
from hepcache.hdf5 import tasks as tasks_module
from hepcache.hdf5 import writer as writer_module
from hepcache.hdf5.append import content_bytes
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
        journal = after.with_name(f".{after.name}.journal")
        if journal.exists():
            # Only while the journal is applied can a reader find it half done.
            recover_output(after)
            same(after, inputs, "evt")
            assert not journal.exists()
            half += 1
            continue
        with h5py.File(after) as file:
            finished = len(file["spill/evt"]) > 30 + 37
        same(after, inputs if finished else inputs[:2], "evt")
        if not finished:
            append(inputs[2:], after, OPTIONS, jobs=1)
            same(after, inputs, "evt")


def test_the_journal_is_applied_by_whoever_comes_next(
    inputs: list[Path], tmp_path: Path, same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    # Cut off where the journal is complete and nothing was applied.
    import hepcache.hdf5.journal as journal

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
        # Whoever comes next to an output removes what is left of the run that made it.
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
    monkeypatch.setattr(writer_module, "_CHECKPOINT_S", 0.0)
    monkeypatch.setattr(tasks_module, "_LEAST_TASK_BYTES", 512)
    monkeypatch.setattr(tasks_module, "_FILE_BYTES", 0)

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
    # A file that may not grow is what a full disk looks like to who writes it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(needed * share), hard))
    try:
        with pytest.raises(TableFileError, match="could not be written: File too large") as one:
            concatenate(inputs, out, OPTIONS, jobs=1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + int(grown * share), hard))
        with pytest.raises(TableFileError, match="could not be written: File too large"):
            append(inputs[2:], old, OPTIONS, jobs=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert one.value.path == str(out)
    assert not out.exists()
    assert old.read_bytes() == before
    assert not list(tmp_path.glob(".*"))
    concatenate(inputs, out, OPTIONS, jobs=1)
    same(out, inputs, "evt")
    append(inputs[2:], old, OPTIONS, jobs=1)
    same(old, inputs, "evt")


def test_a_worker_that_is_killed(inputs: list[Path], tmp_path: Path) -> None:
    def kill(phase: str, done: int, total: int) -> None:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # killed before
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()

    with pytest.raises(TableFileError, match="worker process was killed"):
        concatenate(inputs, tmp_path / "out.h5", OPTIONS, jobs=2, progress=kill)
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.slow
def test_workers_end_with_a_killed_parent(inputs: list[Path], tmp_path: Path) -> None:
    code = (
        "import os, signal, psutil, sys\n"
        "from hepcache.hdf5 import concatenate\n"
        "def stop(*_):\n"
        "    found = psutil.Process().children(recursive=True)\n"
        "    print(*(p.pid for p in found if 'spawn_main' in ' '.join(p.cmdline())), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        f"    concatenate({[str(path) for path in inputs]!r}, {str(tmp_path / 'out.h5')!r}, "
        "jobs=2, progress=stop)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=30
    )
    assert not alive


def test_append(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "out.h5"
    for options in (OPTIONS, TableOptions(), TableOptions(compression="zstd")):
        concatenate(inputs[:1], out, options, jobs=1, overwrite=True)
        append(inputs[1:2], out, options, jobs=1)
        append(inputs[2:], out, options, jobs=1)
        import hdf5plugin  # noqa: F401 - so that h5py can read the result

        same(out, inputs, options.key)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_what_a_killed_append_left_behind_is_overwritten(
    inputs: list[Path], tmp_path: Path, same: Same, libver: str
) -> None:
    out, copy = tmp_path / "out.h5", tmp_path / "copy.h5"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    if libver == "latest":
        with h5py.File(out) as one, h5py.File(copy, "w", libver=libver) as other:
            for name in one:
                one.copy(name, other)
        copy.replace(out)
    size = out.stat().st_size
    assert content_bytes(out) == size
    with out.open("ab") as file:
        file.write(b"rubbish " * 100_000)
    assert content_bytes(out) == size
    append(inputs[2:], out, OPTIONS, jobs=1)
    same(out, inputs, "evt")
    assert out.stat().st_size < size + 400_000


def test_appends_that_are_refused(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    with pytest.raises(TableFileError, match="not there"):
        append(inputs, out, jobs=1)
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    before = out.read_bytes()
    with pytest.raises(TableMismatchError, match="--key evt"):
        append(inputs[2:], out, jobs=1)  # the new rows would have no keys
    with pytest.raises(TableMismatchError, match="more than one file"):
        append(inputs[1:], out, OPTIONS, jobs=1)
    with h5py.File(inputs[2], "r+") as file:
        del file["rec.vtx/x"]
    with pytest.raises(TableMismatchError, match="is missing"):
        append(inputs[2:], out, OPTIONS, jobs=1)
    assert out.read_bytes() == before
    plain = tmp_path / "plain.h5"
    concatenate(inputs[:1], plain, jobs=1)
    with pytest.raises(TableFileError, match="add-key"):
        append(inputs[1:2], plain, OPTIONS, jobs=1)
    concatenate(inputs[:1], plain, TableOptions(contiguous=True), jobs=1, overwrite=True)
    with pytest.raises(TableMismatchError, match="rechunk"):
        append(inputs[1:2], plain, jobs=1)


def test_an_output_with_wrong_keys_takes_no_more(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    with h5py.File(out, "r+") as file:
        file["rec.vtx/evt.seq"][-1] = 10**6
    with pytest.raises(TableMismatchError, match="does not number"):
        append(inputs[2:], out, OPTIONS, jobs=1)


def test_keys_later(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, jobs=1)
    add_key(out, jobs=1)
    same(out, inputs, "evt")
    assert not [one.problem for one in check_keys(out) if one.problem]
    with pytest.raises(TableFileError, match="already"):
        add_key(out, jobs=1)


def test_keys_later_need_runs_and_subruns(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, jobs=1)
    with h5py.File(out, "r+") as file:
        for group in file:
            del file[f"{group}/run"], file[f"{group}/subrun"]
    before = out.read_bytes()
    with pytest.raises(TableMismatchError, match="twice"):
        add_key(out, jobs=1)
    assert out.read_bytes() == before


def test_hdf5_closes_what_the_system_refused(
    inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write may fail: none of them leaves a name, an open file, or a crash at exit."""
    out = tmp_path / "out.h5"
    opened = len(list(Path("/proc/self/fd").iterdir()))
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
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
