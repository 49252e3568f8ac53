"""Filling gives way to the run; what that costs is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry, fill
from hepcache.cache.fill import BackgroundWriter

MB = 1 << 20


def key(number: int) -> ColumnKey:
    return ColumnKey("u", "t", "Events", number, number + 1, "x")


def produce(missing: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
    return {wanted: Entry(b"", (np.full(MB, wanted.start, np.uint8),)) for wanted in missing}


class HungVolume:
    """A writer whose first job waits until the test lets it go on."""

    def __init__(self, limit_bytes: int) -> None:
        self.go_on = threading.Event()
        self.writer = BackgroundWriter(limit_bytes)
        self.writer.submit(self.go_on.wait, limit_bytes)


@pytest.fixture
def volume() -> Iterator[HungVolume]:
    hung = HungVolume(4 * MB)
    yield hung
    hung.go_on.set()
    hung.writer.flush()


@pytest.fixture
def cache(
    tmp_path: Path, volume: HungVolume, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ColumnCache]:
    monkeypatch.setattr("hepcache.cache.column_cache.BackgroundWriter", lambda _: volume.writer)
    monkeypatch.setattr(fill, "_PATIENCE_S", 0.3)
    opened = ColumnCache(tmp_path / "columns", capacity_bytes=1000 * MB, codec="raw")
    yield opened
    volume.go_on.set()
    opened.close()


def test_a_run_waits_for_a_hung_volume_once_and_gets_all_its_columns(
    cache: ColumnCache, volume: HungVolume
) -> None:
    keys = [key(number) for number in range(20)]
    began = time.monotonic()
    found = cache.fetch(keys, produce, patient=False)
    assert time.monotonic() - began < 5.0  # waiting for each would take six
    assert [int(found[wanted][0].buffers[0][-1]) for wanted in keys] == list(range(20))
    assert cache.counters.unkept_bytes == 20 * MB
    volume.go_on.set()
    cache.flush()
    # They are missing, not blocked: the next who wants them reads and stores them.
    again = cache.fetch(keys, produce, patient=True)
    assert {cause for _, cause in again.values()} == {"miss"}
    cache.flush()
    assert {cause for _, cause in cache.fetch(keys, produce).values()} == {"hit"}
    assert cache.counters.unkept_bytes == 20 * MB


def test_who_is_patient_waits_until_all_is_kept(cache: ColumnCache, volume: HungVolume) -> None:
    threading.Timer(0.3, volume.go_on.set).start()
    began = time.monotonic()
    cache.fetch([key(1), key(2)], produce)
    cache.flush()
    assert time.monotonic() - began > 0.25
    assert cache.counters.unkept_bytes == 0
    assert cache.has(key(1))
    assert cache.has(key(2))


def test_nothing_waits_in_memory_that_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    short = SimpleNamespace(available=1 * MB, total=100 * MB)
    monkeypatch.setattr(fill.psutil, "virtual_memory", lambda: short)
    hung = HungVolume(4 * MB)
    began = time.monotonic()
    assert not hung.writer.submit(lambda: None, 10, until=began + 60)
    assert time.monotonic() - began < 10
    hung.go_on.set()
    hung.writer.flush()
    # Where nothing waits, one may: it is written next, and holds what the run holds anyway.
    assert hung.writer.submit(lambda: None, 10, until=began + 60)
    hung.writer.flush()
