"""What every tier promises, whatever it is made of and however tiers are nested."""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cache.entries import entries_equal

from hepcache.cache import BufferMapping, ColumnCache, ColumnKey, Entry, MemoryOver
from hepcache.cache.tiers import in_memory

MB = 1 << 20
Tier = MutableMapping[Any, Any]


def raw(path: Path) -> ColumnCache:
    return ColumnCache(path, capacity_bytes=64 * MB, codec="raw")


def encoded(path: Path) -> ColumnCache:
    return ColumnCache(path, capacity_bytes=64 * MB, codec="lz4")


TIERS: dict[str, Callable[[Path], Tier]] = {
    "memory": lambda _: in_memory(64 * MB),
    "buffers": lambda path: BufferMapping(raw(path)),
    "encoded buffers": lambda path: BufferMapping(encoded(path)),
    "little memory over buffers": lambda path: MemoryOver(BufferMapping(raw(path)), 100),
    "memory over buffers": lambda path: MemoryOver(BufferMapping(encoded(path)), 64 * MB),
}


class Scene:
    """A tier, and names and values that suit it."""

    def __init__(self, name: str, path: Path) -> None:
        self.path, self._make = path, TIERS[name]
        self.tier = self._make(path)
        self._buffers = "buffers" in name
        self.only_memory = name == "memory"

    def reopened(self) -> Tier:
        return self._make(self.path)

    def name(self, number: int) -> Any:
        if self._buffers:
            return f"f3f0/Events/0-{number + 1}/0/nJet"
        return ColumnKey("f3f0", "tag", "Events", 0, number + 1, "nJet")

    def value(self, number: int, entries: int = 5000) -> Any:
        values = np.arange(entries, dtype=np.int32) + number
        return values if self._buffers else Entry(b"meta%d" % number, (values, values[:10] > 3))

    def equal(self, one: Any, other: Any) -> bool:
        if self._buffers:
            return one.dtype == other.dtype and np.array_equal(one, other)
        return entries_equal(one, other)


@pytest.fixture(params=TIERS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(request.param, tmp_path / "cache")


def test_it_begins_empty(scene: Scene) -> None:
    assert len(scene.tier) == 0
    assert list(scene.tier) == []
    assert scene.name(0) not in scene.tier
    with pytest.raises(KeyError):
        scene.tier[scene.name(0)]
    with pytest.raises(KeyError):
        del scene.tier[scene.name(0)]


def test_what_is_set_is_got(scene: Scene) -> None:
    for number in range(5):
        scene.tier[scene.name(number)] = scene.value(number)
    assert set(scene.tier) == {scene.name(number) for number in range(5)}
    assert len(scene.tier) == 5
    for _ in range(2):
        for number in range(5):
            assert scene.name(number) in scene.tier
            assert scene.equal(scene.tier[scene.name(number)], scene.value(number))


def test_the_last_value_counts(scene: Scene) -> None:
    name = scene.name(0)
    scene.tier[name] = scene.value(1)
    assert scene.equal(scene.tier[name], scene.value(1))
    scene.tier[name] = scene.value(2)
    assert scene.equal(scene.tier[name], scene.value(2))
    assert len(scene.tier) == 1


def test_what_is_deleted_is_gone(scene: Scene) -> None:
    scene.tier[scene.name(0)] = scene.value(0)
    scene.tier[scene.name(1)] = scene.value(1)
    assert scene.equal(scene.tier[scene.name(0)], scene.value(0))
    del scene.tier[scene.name(0)]
    assert scene.name(0) not in scene.tier
    with pytest.raises(KeyError):
        scene.tier[scene.name(0)]
    assert list(scene.tier) == [scene.name(1)]
    assert scene.equal(scene.tier.pop(scene.name(1)), scene.value(1))
    assert scene.tier.get(scene.name(1)) is None


def test_empty_and_large_values(scene: Scene) -> None:
    for number, entries in enumerate((0, 1, 3_000_000)):
        scene.tier[scene.name(number)] = scene.value(number, entries)
        assert scene.equal(scene.tier[scene.name(number)], scene.value(number, entries))


def test_what_lies_there_is_found_again(scene: Scene) -> None:
    if scene.only_memory:
        pytest.skip("memory alone lives as long as its process")
    scene.tier[scene.name(0)] = scene.value(0)
    again = scene.reopened()
    assert scene.equal(again[scene.name(0)], scene.value(0))
    again[scene.name(1)] = scene.value(1)
    assert scene.equal(scene.tier[scene.name(1)], scene.value(1))


def test_threads_share_it(scene: Scene) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(20):
                name = scene.name(number)
                found = scene.tier.get(name)
                assert found is None or scene.equal(found, scene.value(number))
                scene.tier[scene.name(number)] = scene.value(number)
                assert scene.equal(scene.tier[name], scene.value(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(scene.tier) == 20


def test_values_are_read_only_where_they_are_shared(scene: Scene) -> None:
    scene.tier[scene.name(0)] = scene.value(0)
    if scene.only_memory:
        pytest.skip("memory hands out the very object it was given")
    found = scene.tier[scene.name(0)]
    buffer = found if isinstance(found, np.ndarray) else found.buffers[0]
    with pytest.raises(ValueError, match="read-only"):
        buffer[0] = 1
