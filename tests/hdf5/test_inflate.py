"""Chunks inflated in bulk are what they are one by one; damaged ones are never taken."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from hepcache.hdf5 import inflate
from hepcache.hdf5.inflate import inflate_all


@pytest.fixture(params=["compiled", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    loop = inflate._compiled() if request.param == "compiled" else None
    if request.param == "compiled":
        assert loop is not None
    monkeypatch.setattr(inflate, "_loop", lambda _count: loop)
    return str(request.param)


def _streams(raw: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    stored = [zlib.compress(one, 1 + n % 9) for n, one in enumerate(raw)]
    sizes = np.array([len(one) for one in stored])
    gap = b"\xff" * 3
    places = np.cumsum(sizes + len(gap)) - sizes
    whole = np.frombuffer(b"".join(gap + one for one in stored), np.uint8)
    return whole, places, sizes


def test_streams_of_any_length_go_where_they_belong(way: str) -> None:
    rng = np.random.default_rng(3)
    raw = [rng.integers(0, 4 + n, 1 + 37 * n, np.uint8).tobytes() for n in range(200)]
    stored, places, sizes = _streams(raw)
    rooms = np.array([len(one) for one in raw])
    targets = (np.cumsum(rooms[::-1]) - rooms[::-1])[::-1]
    out = np.zeros(int(rooms.sum()), np.uint8)
    inflate_all(stored, places, sizes, out, targets, rooms)
    assert out.tobytes() == b"".join(raw[::-1])


def test_a_later_stream_overwrites_an_earlier_one(way: str) -> None:
    stored, places, sizes = _streams([b"a" * 100, b"b" * 100])
    out = np.zeros(150, np.uint8)
    inflate_all(stored, places, sizes, out, np.array([0, 50]), np.array([100, 100]))
    assert out.tobytes() == b"a" * 50 + b"b" * 100


@pytest.mark.parametrize("fault", ["bit", "checksum", "short", "long", "cut", "outside", "room"])
def test_damage_is_an_error(way: str, fault: str) -> None:
    rng = np.random.default_rng(5)
    raw = [rng.integers(0, 9, 512, np.uint8).tobytes() for _ in range(3)]
    stored, places, sizes = _streams(raw)
    stored, rooms = stored.copy(), np.full(3, 512)
    if fault == "bit":
        stored[places[1] + sizes[1] // 2] ^= 16
    elif fault == "checksum":
        stored[places[1] + sizes[1] - 1] ^= 1
    elif fault in ("short", "long"):
        rooms[1] += 1 if fault == "short" else -1
    elif fault == "cut":
        sizes[1] -= 5
    elif fault == "outside":
        places[1] = len(stored) - 1
    out = np.zeros(3 * 512 - (fault == "room"), np.uint8)
    with pytest.raises(ValueError, match=r"chunk|inflat|rror|ncomplete"):
        inflate_all(stored, places, sizes, out, np.arange(3) * 512, rooms)


def test_nothing_to_do() -> None:
    none = np.zeros(0, np.int64)
    inflate_all(np.zeros(0, np.uint8), none, none, np.zeros(0, np.uint8), none, none)
