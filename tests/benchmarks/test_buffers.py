from __future__ import annotations

from pathlib import Path

import numpy as np

from hepcache_bench.buffers import (
    BEYOND,
    FIRST_USE,
    HELD,
    KEPT,
    PEERS,
    PLAIN,
    Stores,
    sample_buffers,
    seconds,
    touch_all,
)


def test_everybody_returns_the_same_bytes(tmp_path: Path) -> None:
    buffers = sample_buffers(64 << 10, 3)
    stores = Stores(tmp_path, buffers)
    assert set(stores.openers) == {FIRST_USE, BEYOND, HELD, PLAIN, KEPT, *PEERS}
    for make in stores.openers.values():
        read = make()
        for name, buffer in buffers.items():
            assert np.frombuffer(read(name), np.float32).tobytes() == buffer.tobytes()


def test_only_a_new_process_opens_files_again(tmp_path: Path) -> None:
    stores = Stores(tmp_path, sample_buffers(64 << 10, 10))
    name = stores.names[0]
    for store in (FIRST_USE, BEYOND, HELD):
        firsts = [stores.openers[store]()(name) for _ in range(2)]
        assert np.shares_memory(*firsts) == (store != FIRST_USE)


def test_a_touch_uses_every_byte() -> None:
    buffer = np.zeros(64, np.uint8)
    for place in range(len(buffer)):
        buffer[place] = 1
        assert touch_all(buffer) != 0
        buffer[place] = 0


def test_times_are_of_all_buffers_in_turns(tmp_path: Path) -> None:
    stores = Stores(tmp_path, sample_buffers(64 << 10, 2))
    seen: list[str] = []

    def read(name: str) -> object:
        seen.append(name)
        return np.zeros(8, np.uint64)

    found = seconds(stores, {"x": lambda: read, PLAIN: stores.openers[PLAIN]}, touch_all, 3)
    assert seen == list(stores.names) * 3
    assert all(value > 0 for value in found.values())
