from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache.disk.memory_map import map_file
from hepcache.io import memory
from hepcache.io.memory import PagePool, page_pool, size_class

FLOATS = np.dtype("f4")


def test_pages_serve_again_only_when_no_array_uses_them() -> None:
    pool = PagePool()
    first = pool.empty(1_000_000, FLOATS)
    place = first.ctypes.data
    part = first[10:20].view(np.uint8)
    del first
    gc.collect()
    assert pool.waiting_bytes == 0
    assert pool.empty(1_000_000, FLOATS).ctypes.data != place
    held = pool.waiting_bytes
    del part
    gc.collect()
    assert pool.waiting_bytes == held + size_class(4_000_000)
    found = {pool.empty(999_000, FLOATS).ctypes.data for _ in range(2)}
    assert place in found


def test_what_was_given_out_is_writable_and_as_long_as_asked_for() -> None:
    pool = PagePool()
    for count in (0, 1, 65_536, 65_537, 3_000_001):
        array = pool.empty(count, FLOATS)
        array[:] = 7
        assert (array.shape, array.dtype) == ((count,), FLOATS)
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_no_more_is_kept_than_is_allowed() -> None:
    pool = PagePool(kept_bytes=5_000_000)
    arrays = [pool.empty(1_000_000, FLOATS) for _ in range(3)]
    del arrays
    gc.collect()
    assert pool.waiting_bytes == size_class(4_000_000)
    pool.clear()
    assert pool.waiting_bytes == 0


def test_a_file_read_in_place_takes_the_room_of_what_waits(tmp_path: Path) -> None:
    (tmp_path / "column").write_bytes(bytes(3_000_000))
    page_pool().clear()
    arrays = [page_pool().empty(1_000_000, FLOATS) for _ in range(2)]
    del arrays
    gc.collect()
    assert page_pool().waiting_bytes == 2 * size_class(4_000_000)
    with (tmp_path / "column").open("rb") as file:
        maps = [map_file(file.fileno(), 3_000_000)]
        assert page_pool().waiting_bytes == size_class(4_000_000)
        maps.append(map_file(file.fileno(), 3_000_000))
        assert page_pool().waiting_bytes == 0
        maps.append(map_file(file.fileno(), 3_000_000))


def test_nothing_is_kept_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short:
        available = 1_000_000

    monkeypatch.setattr(memory.psutil, "virtual_memory", Short)
    pool = PagePool()
    pool.empty(1_000_000, FLOATS)
    gc.collect()
    assert pool.waiting_bytes == 0


def test_what_is_idle_is_freed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PagePool()
    pool.empty(1_000_000, FLOATS)
    gc.collect()
    pool.clear_idle()
    assert pool.waiting_bytes > 0
    later = time.monotonic() + 31
    monkeypatch.setattr(memory.time, "monotonic", lambda: later)
    pool.clear_idle()
    assert pool.waiting_bytes == 0
