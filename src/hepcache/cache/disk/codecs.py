"""Light codecs of stored buffers: Blosc frames, a bit shuffle before LZ4 or Zstandard.

NanoAOD columns are counters, identifiers and floats of truncated mantissa: after a
bit shuffle they shrink two- to eightfold and decode at some GB/s. A codec pays where
reading fewer bytes saves more time than decoding takes. A byte kept costs the time to
read it again in every cycle, and, where the cache is nearly full, the time to fetch
another byte that has to go for it.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import psutil
from numpy.typing import NDArray

from hepcache.cache.disk.format import Damage, ForeignFile

Codec = Literal["raw", "lz4", "zstd"]
"""How a buffer is kept."""

CodecName = Literal["auto", "raw", "lz4", "zstd"]
"""What may be asked for; ``auto`` chooses by :func:`choose`."""

RAW, BLOSC = 0, 1
"""Numbers in the file format. A Blosc frame says itself what is in it."""

_FRAME = struct.Struct("<4xI4xI")  # of Blosc's own 16 bytes: decoded size, size of the frame
_LEVEL = 1
_BIT_SHUFFLE = 2
_MEMORY_RATE = 10e9  # of reading what the page cache holds, in bytes/s
_ORIGIN_RATE = 100e6  # of decoded bytes from the origin; only its order of magnitude matters
_FULL_FROM = 0.7  # of the capacity: from here on a byte kept displaces another before long
_GAIN = 0.9  # what a codec may cost at most, in units of raw: a draw goes to raw
_SAMPLE_BYTES = 128 << 10
_SMALL_BYTES = 4096  # a block of the volume; less can't be saved
_PROBE_BYTES = 16 << 20
ByteCost = float
"""Seconds per byte that is kept on the volume."""


def compress(array: NDArray[Any], codec: Codec) -> NDArray[np.uint8] | None:
    """Return a Blosc frame of an array, or ``None`` where that would save nothing.

    ``codec``: ``"lz4"`` or ``"zstd"``; ``"raw"`` gives ``None``.
    """
    # Blosc's frames hold less than 2 GiB; a column of a segment has a few MB.
    if codec == "raw" or not 0 < array.nbytes < 1 << 31:
        return None
    plain = array.view(f"u{array.dtype.itemsize}") if array.dtype.kind in "mM" else array
    frame = np.frombuffer(_blosc().compress(plain, codec.encode(), _LEVEL, _BIT_SHUFFLE), np.uint8)
    return frame if frame.nbytes < 0.9 * array.nbytes else None


def decompress(payload: NDArray[np.uint8], codec: int, raw_bytes: int) -> NDArray[np.uint8]:
    """Return the decoded bytes of a payload.

    ``payload``: what is stored, without padding; its checksum has been compared.
    It returns an array of shape ``(raw_bytes,)``, dtype ``uint8``.
    """
    if codec != BLOSC:
        raise ForeignFile(f"codec {codec}")
    # Blosc itself reads as far as the frame says, so look before.
    if payload.nbytes < _FRAME.size or _FRAME.unpack_from(payload.data) != (
        raw_bytes,
        payload.nbytes,
    ):
        raise Damage("a frame contradicts the table of buffers")
    out = np.empty(raw_bytes, np.uint8)
    try:
        _blosc().decompress(payload, out)
    except RuntimeError as error:
        raise Damage(f"a frame can't be decoded: {error}") from error
    return out


def _blosc() -> Any:
    # Half a second, which a cache of raw columns need not pay.
    from numcodecs import blosc

    return blosc


@dataclass(frozen=True, slots=True)
class Trial:
    """How a codec did on a sample.

    ``ratio``: stored bytes per raw byte.
    ``decode_rate``: raw bytes per second.
    """

    codec: Codec
    ratio: float
    decode_rate: float


def byte_cost(
    used_bytes: int, capacity_bytes: int, memory_bytes: int, volume_rate: float
) -> ByteCost:
    """Return the seconds that a byte kept on the volume costs a cycle.

    ``memory_bytes``: memory of the host that may serve as page cache.
    ``volume_rate``: sequential reading from the volume, in bytes/s.

    A small cache is read from memory; a large one from the SSD; and a full
    one has to fetch from the origin what it had to evict.

    >>> f"{byte_cost(1 << 30, 1 << 40, 8 << 30, 1e9):.1e}"
    '1.0e-10'
    >>> f"{byte_cost(1 << 39, 1 << 40, 0, 1e9):.1e}"
    '1.0e-09'
    >>> f"{byte_cost(1 << 40, 1 << 40, 0, 1e9):.1e}"
    '1.1e-08'
    """
    resident = min(1.0, memory_bytes / max(used_bytes, 1))
    read = resident / _MEMORY_RATE + (1 - resident) / volume_rate
    full = used_bytes / max(capacity_bytes, 1)
    pressure = min(max((full - _FULL_FROM) / (1 - _FULL_FROM), 0.0), 1.0)
    return read + pressure / _ORIGIN_RATE


def choose(trials: Sequence[Trial], cost: ByteCost) -> Codec:
    """Return the codec under which a column costs a cycle least.

    ``cost``: seconds per byte kept.

    >>> trial = Trial("lz4", ratio=0.5, decode_rate=2.5e9)
    >>> choose([trial], cost=1e-10), choose([trial], cost=1e-9)
    ('raw', 'lz4')
    """
    best: Codec = "raw"
    least = _GAIN * cost
    for trial in trials:
        seconds = trial.ratio * cost + 1 / trial.decode_rate
        if seconds < least:
            best, least = trial.codec, seconds
    return best


def try_codecs(buffers: Sequence[NDArray[Any]]) -> list[Trial]:
    """Measure the codecs on the middle of a column's largest buffer."""
    largest = max(buffers, key=lambda buffer: buffer.nbytes, default=None)
    if largest is None or largest.nbytes <= _SMALL_BYTES:
        return []
    flat = largest.reshape(-1)
    length = _SAMPLE_BYTES // flat.itemsize
    first = max(0, (len(flat) - length) // 2)
    sample = np.ascontiguousarray(flat[first : first + length])
    trials = []
    codecs: tuple[Codec, ...] = ("lz4", "zstd")
    for codec in codecs:
        frame = compress(sample, codec)
        if frame is not None:
            began = time.perf_counter()
            decompress(frame, BLOSC, sample.nbytes)
            took = max(time.perf_counter() - began, 1e-9)
            trials.append(Trial(codec, frame.nbytes / sample.nbytes, sample.nbytes / took))
    return trials


def page_cache_bytes() -> int:
    """Return how much of the host's memory may serve as page cache now."""
    return int(psutil.virtual_memory().available // 2)


def measure_volume(directory: str) -> float:
    """Return how fast the volume under a directory reads, in bytes/s."""
    data = os.urandom(1 << 20)
    # Without a name, so that a crash leaves nothing.
    descriptor = os.open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_PROBE_BYTES // len(data)):
            os.write(descriptor, data)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        for at in range(0, _PROBE_BYTES, len(data)):
            os.pread(descriptor, len(data), at)
        return _PROBE_BYTES / max(time.perf_counter() - began, 1e-9)
    finally:
        os.close(descriptor)
