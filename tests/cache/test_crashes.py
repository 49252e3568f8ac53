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
from typing import Any

import pytest
from tests.cache.kinds import Columns, Kind

from hepcache.cache import ColumnCache, Limits
from hepcache.cache.contents import stored_columns
from hepcache.cache.disk.files import remove_garbage

FORK = multiprocessing.get_context("fork")
GB = 1 << 30


def opened(path: Path) -> ColumnCache:
    return ColumnCache(path, capacity_bytes=GB)


def fill_for_ever(kind: Kind, path: Path) -> None:
    cache, number = opened(path), 0
    while True:
        kind.ask(cache, [(number + more) % 200 for more in range(7)])
        if isinstance(kind, Columns):
            for again in range(number, number + 3):
                cache.put(kind.key(again % 200), kind.entry(again % 200))
        number += 7


@pytest.mark.slow
def test_killed_fillers_leave_nothing_wrong(kind: Kind, tmp_path: Path) -> None:
    cache = opened(tmp_path / "c")
    chance = random.Random(7)
    served = 0
    kills, latest_s = (200, 0.07) if isinstance(kind, Columns) else (80, 0.6)
    for _ in range(kills):
        filler = FORK.Process(target=fill_for_ever, args=(kind, tmp_path / "c"))
        filler.start()
        assert filler.pid is not None
        time.sleep(chance.uniform(0.005, latest_s))  # the moment to die, not a synchronisation
        os.kill(filler.pid, signal.SIGKILL)
        filler.join()
        served += 10 - len(kind.ask(cache, chance.sample(range(200), 10)))
        cache.flush()
        # So that there is something to fill, and much that is there in part.
        stored = list(stored_columns(cache.layout))
        cache.remove(chance.sample(stored, len(stored) // 3))
    assert served > kills // 2
    assert cache.counters.quarantined == 0
    # Nobody holds a lock any more, and all can still be filled.
    kind.ask(cache, range(200))
    cache.flush()
    remove_garbage(str(cache.layout.temporary))
    assert list(cache.layout.temporary.iterdir()) == []
    assert kind.ask(opened(tmp_path / "c"), range(200)) == []


def race(kind: Kind, path: Path, log: Path, numbers: Sequence[int], start: Any) -> None:
    cache = opened(path)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    start.wait()
    for first in range(0, len(numbers), 25):
        for number in kind.ask(cache, numbers[first : first + 25], 500):
            os.write(descriptor, f"{number}\n".encode())
    cache.close()


def test_two_hosts_of_three_processes_make_what_they_race_for(kind: Kind, tmp_path: Path) -> None:
    chance = random.Random(3)
    start = FORK.Barrier(6)
    racers = []
    number = 500 if isinstance(kind, Columns) else 50
    for host in ("host-0", "host-1"):
        for _ in range(3):
            # In any order on one, and neck and neck on the other.
            numbers = list(range(number))
            if host == "host-0":
                chance.shuffle(numbers)
            arguments = (kind, tmp_path / host, tmp_path / f"{host}.log", numbers, start)
            racers.append(FORK.Process(target=race, args=arguments))
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    for host in ("host-0", "host-1"):
        made = Counter(map(int, (tmp_path / f"{host}.log").read_text().split()))
        assert set(made) == set(range(number))
        if isinstance(kind, Columns):
            assert set(made.values()) == {1}
        cache = opened(tmp_path / host)
        assert kind.ask(cache, range(number), 500) == []
        stored = [column.key for column in stored_columns(cache.layout)]
        values = [key for key in stored if key and key.column != "x"]
        assert len(values) == len(set(values)) == kind.parts * number


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


def test_a_full_disk_passes_through_and_recovers(kind: Kind, small_volume: Path) -> None:
    limits = Limits(cull=0.0)  # so that the disk itself says no
    cache = ColumnCache(small_volume / "c", limits=limits, codec="raw")
    ballast = small_volume / "ballast"
    assert kind.ask(cache, range(20)) == list(range(20))
    cache.flush()
    assert kind.ask(cache, range(20)) == []
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    made: list[int] = []
    for _ in range(2):
        made += kind.ask(cache, range(40))
        cache.flush()
    assert len(made) >= 40
    assert cache.counters.refused > 0
    assert list(cache.layout.temporary.iterdir()) == []
    ballast.unlink()
    kind.ask(cache, range(40))
    cache.flush()
    again = ColumnCache(small_volume / "c", limits=limits, codec="raw")
    assert kind.ask(again, range(40)) == []


def test_a_limit_of_file_sizes_is_a_full_disk(kind: Kind, tmp_path: Path) -> None:
    """As an unprivileged user meets it: writing fails in the middle of a file."""

    def fill(path: Path) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        cache = opened(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        good = kind.ask(cache, [1]) == [1] and kind.ask(cache, [2], 100) == [2]
        cache.flush()
        good = good and cache.counters.refused == kind.parts
        good = good and list(cache.layout.temporary.iterdir()) == []
        os._exit(0 if good else 1)

    child = FORK.Process(target=fill, args=(tmp_path / "c",))
    child.start()
    child.join()
    assert child.exitcode == 0
    cache = opened(tmp_path / "c")
    assert kind.ask(cache, [2], 100) == []
    assert kind.ask(cache, [1]) == [1]
