"""Concatenation as users run it: a cluster's workers, killed runs, full disks, memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from distributed import Client, LocalCluster

from hepcache.hdf5 import TableOptions, append, concatenate, verify
from hepcache.samples.tables import write_tables

KEY = TableOptions(key="evt")


def hepcache(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hepcache", "hdf5", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, **options
    )  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("tables")
    return [Path(one) for one in write_tables(directory, shape="data-heavy", files=3, scale=0.1)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as made:
        yield made


def test_workers_elsewhere(inputs: list[Path], tmp_path: Path, cluster: LocalCluster) -> None:
    out = tmp_path / "all.h5"
    address = cluster.scheduler_address
    done = hepcache(
        "concat", *inputs[:2], "-o", out, "--key", "evt", "--scheduler", address, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"][0]["files"] == 2
    with Client(cluster) as client:
        append(inputs[2:], out, KEY, executor=client)
        assert verify(out, inputs, key="evt", executor=client) == {}


def test_a_run_that_is_killed_is_repeated(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "all.h5"
    command = [sys.executable, "-m", "hepcache", "hdf5", "concat", *map(str, inputs), "-o",
               str(out), "--key", "evt"]  # fmt: skip
    part = tmp_path / ".all.h5.part"
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            children: list[psutil.Process] = []
            while running.poll() is None and not (part.exists() and part.stat().st_size > 1 << 18):
                threading.Event().wait(0.01)
            children = psutil.Process(running.pid).children(recursive=True)
            running.kill()
        assert not out.exists()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
    done = hepcache("concat", *inputs, "-o", out, "--key", "evt", "--verify")
    assert done.returncode == 0, done.stderr
    assert "is equal to its 3 inputs" in done.stdout
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_full(inputs: list[Path], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"no disk could be mounted: {mounted.stderr}")
    try:
        out = disk / "all.h5"
        small = write_tables(tmp_path / "small", shape="small-files", files=2)
        concatenate(small[:1], out, KEY)
        before = out.read_bytes()
        for arguments, message in (
            (
                ["concat", *inputs, "-o", disk / "more.h5"],
                "more.h5: could not be written: No space",
            ),
            (["concat", *inputs, "-o", disk / "more.h5", "--jobs", "1"], "No space left"),
            (["rechunk", inputs[0], "-o", disk / "more.h5"], "No space left"),
        ):
            done = hepcache(*arguments)
            assert done.returncode == 1
            assert message in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert list(disk.iterdir()) == [out]
        free = os.statvfs(disk)
        (disk / "rubbish").write_bytes(bytes(free.f_bavail * free.f_bsize - (16 << 10)))
        done = hepcache("concat", small[1], "-o", out, "--append", "--key", "evt")
        assert done.returncode == 1
        assert "No space left" in done.stderr
        assert out.read_bytes() == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.timeout(600)
def test_memory_does_not_grow_with_the_inputs(tmp_path: Path) -> None:
    paths = write_tables(tmp_path / "in", shape="data-heavy", files=8)
    options = TableOptions(key="evt", memory_bytes=192 << 20)
    peaks = []
    for count in (2, 8):
        highest: dict[int, int] = {}

        def look(_phase: str, _done: int, _total: int, highest: dict[int, int] = highest) -> None:
            one = psutil.Process()
            for process in (one, *one.children(recursive=True)):
                with suppress(OSError, KeyError):  # it has ended meanwhile
                    text = Path(f"/proc/{process.pid}/status").read_text()
                    lines = dict(line.split(":", 1) for line in text.splitlines())
                    kept = int(lines["RssAnon"].split()[0]) << 10  # maps of files can be dropped
                    highest[process.pid] = max(kept, highest.get(process.pid, 0))

        # A pause would hide what the writer holds; what workers hold is looked at as they go on.
        concatenate(paths[:count], tmp_path / f"out{count}.h5", options, jobs=2, progress=look)
        peaks.append(max(highest.values()))
    # 8 files hold 450 MB of rows; interpreters with their libraries are in both.
    assert peaks[1] < peaks[0] + (96 << 20)
