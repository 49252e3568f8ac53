from __future__ import annotations

import errno
import multiprocessing
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from hepcache.errors import ConfigurationError, OriginError
from hepcache.io.emulated_link import Link, environment
from hepcache.io.origin import OriginFile, open_origin
from hepcache.io.requests import Requests

DATA = bytes(range(256)) * 40


class Fake:
    """A transport over a function that reads one range."""

    origin, size, gap_bytes, most_ranges, most_bytes = "fake", len(DATA), 16, 1, 1000

    def __init__(self, pread) -> None:
        self.pread = pread
        self.renewed = 0

    def expect(self, ranges) -> None:
        pass

    def read(self, ranges) -> list[bytes]:
        return [self.pread(start, length) for start, length in ranges]

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        pass


def origin(pread) -> OriginFile:
    return OriginFile("file.root", Requests("file.root", Fake(pread), None, None))


def test_local_file_reads_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    with open_origin(str(path)) as file:
        assert file.fetch(100, 50) == DATA[100:150]
        file.seek(-10, os.SEEK_END)
        assert file.tell() == len(DATA) - 10
        assert file.read(100) == DATA[-10:]
        assert file.requested_bytes == 60


def test_url_reads_through_fsspec() -> None:
    fsspec.filesystem("memory").pipe_file("/origin/data.bin", DATA)
    with open_origin("memory://origin/data.bin") as file:
        assert (file.size, file.fetch(3, 7)) == (len(DATA), DATA[3:10])


def test_short_reads_are_completed() -> None:
    file = origin(lambda start, length: DATA[start : start + min(length, 7)])
    assert file.fetch(5, 100) == DATA[5:105]


def test_transient_errors_are_retried() -> None:
    failures = [errno.ESTALE, errno.EIO]

    def pread(start: int, length: int) -> bytes:
        if failures:
            raise OSError(failures.pop(), "busy")
        return DATA[start : start + length]

    assert origin(pread).fetch(0, 10) == DATA[:10]
    assert not failures


def test_final_errors_are_not_retried_and_keep_the_origins_words() -> None:
    calls = []

    def pread(start: int, length: int) -> bytes:
        calls.append(start)
        raise PermissionError(errno.EACCES, "not for you")

    with pytest.raises(OriginError, match=r"file\.root.*not for you"):
        origin(pread).fetch(0, 10)
    assert len(calls) == 1


def test_truncated_file_is_an_error_not_short_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hepcache.io.retry.RETRIES", 1)
    file = origin(lambda start, length: DATA[start : min(start + length, 100)])
    with pytest.raises(OriginError, match="short read"):
        file.fetch(90, 20)


def test_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(OriginError, match="No such file"):
        open_origin(str(tmp_path / "nowhere.root"))


def test_unknown_protocol_says_so() -> None:
    with pytest.raises((OriginError, ValueError), match="nope"):
        open_origin("nope://host/file.root")


def _take(state: Path, count: int) -> None:
    link = Link(1e6, state)
    for _ in range(count):
        link.take(10_000)


def test_link_is_shared_by_processes(tmp_path: Path) -> None:
    state = tmp_path / "link"
    _take(state, 1)
    context = multiprocessing.get_context("fork")
    began = time.monotonic()
    workers = [context.Process(target=_take, args=(state, 10)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    # 300 kB through 1 MB/s, however many take part.
    assert time.monotonic() - began >= 0.29


def test_who_asks_for_little_does_not_wait_behind_who_asked_for_much(tmp_path: Path) -> None:
    links = [Link(2e6, tmp_path / "link") for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        much = threads.submit(links[0].take, 2_000_000)
        while (tmp_path / "link").stat().st_size == 0:
            time.sleep(0.001)
        little = threads.submit(links[1].take, 200_000)
        # Equal parts: some 0.2 s, not the second that the other one takes alone.
        assert little.result() < 0.7 * much.result()


def test_emulated_bandwidth_slows_an_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(DATA)
    for name, value in environment("100 kB/s", tmp_path / "a state").items():
        monkeypatch.setenv(name, value)
    with open_origin(str(path)) as file:
        file.fetch(0, 10_000)
        assert file.fetch_s >= 0.09


@pytest.mark.parametrize(
    "bandwidth", ["fast", 0, "0 MB/s", -20, "-20 MB", "", "MB/s", True, 0.5, "1e999", "5 foos"]
)
def test_a_bandwidth_that_is_none_is_refused(bandwidth: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"found {bandwidth!r}")):
        environment(bandwidth, tmp_path)
