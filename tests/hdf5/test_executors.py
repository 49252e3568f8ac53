"""Executors: processes, threads, the workers of a Dask cluster; none outlives its parent."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import h5py
import psutil
import pytest
from dask.local import SynchronousExecutor
from distributed import Client, LocalCluster
from tests.hdf5.checks import change

from hepcache.errors import HepcacheError, TableFileError, TableMismatchError
from hepcache.hdf5 import TableOptions, concatenate, plan
from hepcache.hdf5.executors import worker_count
from hepcache.io.threads import usable_cores

KEY = TableOptions(key="evt")
# Every input chunk is shared by two chunks of the output, and every task is small.
OPTIONS = TableOptions(key="evt", chunk_rows=7, wide_chunk_rows=5)


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_LEAST_TASK_BYTES", 64)
    monkeypatch.setattr(plan, "_FILE_BYTES", 0)


def test_threads_share_nothing(
    inputs: list[Path], tmp_path: Path, same: Callable[..., None]
) -> None:
    with ThreadPoolExecutor(4) as pool:
        for turn in range(3):
            out = tmp_path / f"out{turn}.h5"
            concatenate(inputs, out, OPTIONS, executor=pool)
            same(out, inputs, "evt")


def test_as_much_is_under_way_as_an_executor_can_do() -> None:
    assert worker_count(SynchronousExecutor()) == 1
    assert worker_count(SynchronousExecutor(), 7) == 7
    assert worker_count(Executor()) == usable_cores()
    with ThreadPoolExecutor(5) as pool:
        assert worker_count(pool) == 5


@pytest.mark.slow
def test_workers_of_a_dask_cluster(
    inputs: list[Path], tmp_path: Path, same: Callable[..., None]
) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=4, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        assert worker_count(client.get_executor()) == 4
        concatenate(inputs, tmp_path / "out.h5", OPTIONS, executor=client)
        same(tmp_path / "out.h5", inputs, "evt")
        with h5py.File(inputs[1], "r+") as file:
            file["spill/evt"][5] = file["spill/evt"][4]
        with pytest.raises(TableMismatchError, match="twice"):
            concatenate(inputs, tmp_path / "other.h5", OPTIONS, executor=client)


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


def test_errors_of_an_executor_arrive(inputs: list[Path], tmp_path: Path) -> None:
    change(inputs[1], "rec.vtx/x", None)
    with pytest.raises(HepcacheError, match="is missing"):
        concatenate(inputs, tmp_path / "out.h5", KEY, jobs=2)
