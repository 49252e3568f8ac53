"""Processes that die, race or run out of room: nothing is lost but time."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry, Limits
from hepcache.cache.disk.files import remove_garbage
from hepcache.cache.inventory import columns
from hepcache.cache.model import entries_equal

FORK = multiprocessing.get_context("fork")
GB = 1 << 30


def key(number: int) -> ColumnKey:
    return ColumnKey("6ac7019c", "tag", "Events", number // 10, 1000, f"c{number % 10}")


def entry(number: int, size: int = 20_000) -> Entry:
    return Entry(b"m%d" % number, (np.random.default_rng(number).integers(0, 99, size),))


def opened(path: Path) -> ColumnCache:
    return ColumnCache(path, capacity_bytes=GB)


def fill_for_ever(path: Path) -> None:
    cache, number = opened(path), 0
    while True:
        keys = [key((number + i) % 200) for i in range(7)]
        cache.fetch(keys, lambda missing: {one: entry(_number(one)) for one in missing})
        for one in keys[:3]:
            cache.put(one, entry(_number(one)))
        number += 7


def _number(one: ColumnKey) -> int:
    return one.start * 10 + int(one.column[1:])


@pytest.mark.slow
def test_two_hundred_killed_fillers_leave_nothing_wrong(tmp_path: Path) -> None:
    cache = opened(tmp_path / "c")
    chance = random.Random(7)
    served = 0
    for _ in range(200):
        filler = FORK.Process(target=fill_for_ever, args=(tmp_path / "c",))
        filler.start()
        assert filler.pid is not None
        time.sleep(chance.uniform(0.005, 0.07))  # the moment to die, not a synchronisation
        os.kill(filler.pid, signal.SIGKILL)
        filler.join()
        for number in chance.sample(range(200), 10):
            found, cause = cache.get(key(number))
            assert cause in ("hit", "miss")
            if found is not None:
                served += 1
                assert entries_equal(found, entry(number))
    assert served > 100
    assert cache.counters.quarantined == 0
    # Nobody holds a lock any more, and all can still be filled.
    found = cache.fetch(
        [key(number) for number in range(200)],
        lambda missing: {one: entry(_number(one)) for one in missing},
    )
    cache.flush()
    assert all(entries_equal(got, entry(_number(one))) for one, (got, _) in found.items())
    remove_garbage(str(cache.layout.temporary))
    assert list(cache.layout.temporary.iterdir()) == []
    for number in range(200):
        got, cause = opened(tmp_path / "c").get(key(number)) if number % 50 == 0 else (None, "")
        assert got is None or cause == "hit"


def race(path: Path, log: Path, numbers: Sequence[int], start: object) -> None:
    cache = opened(path)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def produce(missing: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
        for one in missing:
            os.write(descriptor, f"{_number(one)}\n".encode())
        return {one: entry(_number(one), 500) for one in missing}

    start.wait()
    for first in range(0, len(numbers), 25):
        keys = [key(number) for number in numbers[first : first + 25]]
        for one, (got, _) in cache.fetch(keys, produce).items():
            if not entries_equal(got, entry(_number(one), 500)):
                os._exit(3)
    cache.close()


def test_two_hosts_of_three_processes_read_500_columns_once_each(tmp_path: Path) -> None:
    chance = random.Random(3)
    start = FORK.Barrier(6)
    racers = []
    for host in ("host-0", "host-1"):
        for _ in range(3):
            numbers = chance.sample(range(500), 500)
            arguments = (tmp_path / host, tmp_path / f"{host}.log", numbers, start)
            racers.append(FORK.Process(target=race, args=arguments))
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    for host in ("host-0", "host-1"):
        read = Counter(map(int, (tmp_path / f"{host}.log").read_text().split()))
        assert read == Counter(range(500))
        assert len(list(columns(opened(tmp_path / host).layout))) == 500


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB: an image that is mounted, else a tmpfs."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small volume; run as root to test a full disk")
    where, image = tmp_path / "volume", tmp_path / "image"
    where.mkdir()
    image.touch()
    os.truncate(image, 16 << 20)
    ways = [
        [["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), where]],
        [["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(where)]],
    ]
    for way in ways:
        if all(_runs([str(part) for part in command]) for command in way):
            break
    else:
        pytest.skip("neither a loop device nor a tmpfs can be mounted here")
    yield where
    subprocess.run(["umount", "--lazy", where], check=True)


def _runs(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_full_disk_passes_through_and_recovers(small_volume: Path) -> None:
    limits = Limits(run=0.0, cull=0.0, stop=0.0)  # so that the disk itself says no
    cache = ColumnCache(small_volume / "c", limits=limits, codec="raw")
    ballast = small_volume / "ballast"
    kept = [number for number in range(20) if cache.put(key(number), entry(number))]
    assert kept == list(range(20))
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    asked: list[ColumnKey] = []

    def produce(missing: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
        asked.extend(missing)
        return {one: entry(_number(one)) for one in missing}

    keys = [key(number) for number in range(40)]
    for _ in range(2):
        for one, (got, _) in cache.fetch(keys, produce).items():
            assert entries_equal(got, entry(_number(one)))
        cache.flush()
    assert cache.counters.refused > 0
    assert len(asked) >= 40
    assert list(cache.layout.temporary.iterdir()) == []
    ballast.unlink()
    asked.clear()
    cache.fetch(keys, produce)
    cache.flush()
    again = ColumnCache(small_volume / "c", limits=limits, codec="raw")
    for one, (got, cause) in again.fetch(keys, produce).items():
        assert cause == "hit"
        assert entries_equal(got, entry(_number(one)))


def test_a_limit_of_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    """As an unprivileged user meets it: writing fails in the middle of a file."""

    def fill(path: Path) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        cache = opened(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        good = not cache.put(key(1), entry(1)) and cache.put(key(2), entry(2, 100))
        good = good and list(cache.layout.temporary.iterdir()) == []
        os._exit(0 if good else 1)

    child = FORK.Process(target=fill, args=(tmp_path / "c",))
    child.start()
    child.join()
    assert child.exitcode == 0
    cache = opened(tmp_path / "c")
    assert cache.get(key(1)) == (None, "miss")
    assert cache.get(key(2))[1] == "hit"
