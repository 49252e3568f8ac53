from __future__ import annotations

from pathlib import Path

import numpy as np

from hepcache.bench.buffers import OURS, PEERS, PLAIN, Stores, sample_buffers, seconds, touch_all


def test_everybody_returns_the_same_bytes(tmp_path: Path) -> None:
    buffers = sample_buffers(64 << 10, 3)
    stores = Stores(tmp_path, buffers)
    assert set(stores.readers) == {OURS, PLAIN, *PEERS}
    for read in (*stores.readers.values(), stores.opened()):
        for name, buffer in buffers.items():
            assert np.frombuffer(read(name), np.float32).tobytes() == buffer.tobytes()


def test_times_are_of_all_buffers(tmp_path: Path) -> None:
    stores = Stores(tmp_path, sample_buffers(64 << 10, 2))
    seen: list[str] = []

    def make() -> object:
        return lambda name: seen.append(name) or np.zeros(8, np.uint64)

    found = seconds(stores, {"x": make, PLAIN: lambda: stores.readers[PLAIN]}, touch_all, 3)
    assert seen == list(stores.names) * 3
    assert all(value > 0 for value in found.values())
