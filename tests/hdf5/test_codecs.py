"""Chunks inflated in bulk are what was deflated; damaged ones are never taken."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from hepcache.hdf5 import codecs
from hepcache.hdf5.codecs import inflate, inflate_all


@pytest.fixture(params=["compiled", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """In bulk by the compiled loop, as many streams are, or by Python's."""
    monkeypatch.setattr(codecs, "_WORTH_COMPILING", -1 if request.param == "compiled" else 1 << 60)
    return str(request.param)


def _streams(chunks: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return streams with gaps between them, and where each begins and its size."""
    streams = [zlib.compress(chunk, 1 + n % 9) for n, chunk in enumerate(chunks)]
    sizes = np.array([len(stream) for stream in streams])
    gap = b"\xff" * 3
    offsets = np.cumsum(sizes + len(gap)) - sizes
    stored = np.frombuffer(b"".join(gap + stream for stream in streams), np.uint8)
    return stored.copy(), offsets, sizes


def test_streams_of_any_length_go_where_they_belong(way: str) -> None:
    rng = np.random.default_rng(3)
    chunks = [rng.integers(0, 4 + n, 1 + 37 * n, np.uint8).tobytes() for n in range(200)]
    stored, offsets, sizes = _streams(chunks)
    assert sizes.min() < 20 < 2000 < sizes.max()  # both libraries have some
    raw_sizes = np.array([len(chunk) for chunk in chunks])
    targets = (np.cumsum(raw_sizes[::-1]) - raw_sizes[::-1])[::-1]
    out = np.zeros(int(raw_sizes.sum()), np.uint8)
    inflate_all(stored, offsets, sizes, out, targets, raw_sizes)
    assert out.tobytes() == b"".join(chunks[::-1])
    for chunk, offset, size in zip(chunks, offsets.tolist(), sizes.tolist(), strict=True):
        assert inflate(stored[offset : offset + size].tobytes(), len(chunk)) == chunk


@pytest.mark.parametrize("nbytes", [200, 5000])
@pytest.mark.parametrize(
    "fault", ["bit", "checksum", "short", "long", "cut", "outside", "overflow", "out"]
)
def test_damage_is_an_error(way: str, nbytes: int, fault: str) -> None:
    rng = np.random.default_rng(5)
    chunks = [rng.integers(0, 9, nbytes, np.uint8).tobytes() for _ in range(3)]
    stored, offsets, sizes = _streams(chunks)
    raw_sizes = np.full(3, nbytes)
    if fault == "bit":
        stored[offsets[1] + sizes[1] // 2] ^= 16
    elif fault == "checksum":
        stored[offsets[1] + sizes[1] - 1] ^= 1
    elif fault in ("short", "long"):
        raw_sizes[1] += 1 if fault == "short" else -1
    elif fault == "cut":
        sizes[1] -= 5
    elif fault == "outside":
        offsets[1] = len(stored) - 1
    elif fault == "overflow":
        offsets[1] = sizes[1] = 1 << 62
    out = np.zeros(3 * nbytes - (fault == "out"), np.uint8)
    with pytest.raises(ValueError, match="chunk"):
        inflate_all(stored, offsets, sizes, out, np.arange(3) * nbytes, raw_sizes)
    if fault not in ("out", "overflow"):
        with pytest.raises(ValueError, match="chunk"):
            inflate(stored[offsets[1] : offsets[1] + sizes[1]].tobytes(), int(raw_sizes[1]))


def test_nothing_to_do() -> None:
    none = np.zeros(0, np.int64)
    inflate_all(np.zeros(0, np.uint8), none, none, np.zeros(0, np.uint8), none, none)
