"""The same buffers in hepcache's store, in its peers and in plain files, read side by side."""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.errors import ConfigurationError

__all__ = [
    "BEYOND",
    "FIRST_USE",
    "HELD",
    "KEPT",
    "PEERS",
    "PLAIN",
    "Stores",
    "sample_buffers",
    "seconds",
    "sizes",
    "touch_all",
    "touch_pages",
]

FIRST_USE = "hepcache, first use"
BEYOND = "hepcache, beyond memory"
HELD = "hepcache, held"
PLAIN = "memory map"
KEPT = "memory map, kept"
PEERS = (
    "coffea BufferCache on zict.File",
    "the same, memory-mapped",
    "the same, Blosc",
    "diskcache",
)

Read = Callable[[str], Any]


def sample_buffers(nbytes: int, number: int) -> dict[str, NDArray[np.float32]]:
    """Return buffers as NanoAOD has them: floats with a truncated mantissa.

    Parameters
    ----------
    nbytes
        Size of each.
    number
        How many.
    """
    random = np.random.default_rng(nbytes)
    made = {}
    for count in range(number):
        values = random.exponential(30, nbytes // 4).astype(np.float32)
        truncated = values.view(np.uint32) & np.uint32(0xFFFFE000)
        made[f"6ac7019c-2941-11f1-b022-001a4abb4031/Events/0-{count + 1}/0/Jet_pt"] = (
            truncated.view(np.float32)
        )
    return made


class Stores:
    """One set of buffers, kept by everybody.

    Parameters
    ----------
    directory
        An empty directory; every store gets one below it.
    buffers
        What to keep, by name.

    Attributes
    ----------
    names
        Names of the buffers.
    openers
        By name of a store, what makes its reader for one run. Only that of
        hepcache's first use makes a new one each time.
    """

    def __init__(self, directory: Path, buffers: Mapping[str, NDArray[np.float32]]) -> None:
        self._directory = directory
        self.names = tuple(buffers)
        self._keys = {
            name: ColumnKey("6ac7019c", "0123456789abcdef", "Events", 0, number + 1, "Jet_pt")
            for number, name in enumerate(buffers)
        }
        self._files = {name: directory / f"{number}.raw" for number, name in enumerate(buffers)}
        ours = self._cache(0)
        for name, buffer in buffers.items():
            if not ours.put(self._keys[name], Entry(b"", (buffer,))):
                raise ConfigurationError("directory", "room for the buffers", directory)
            buffer.tofile(self._files[name])
        everything = sum(buffer.nbytes for buffer in buffers.values())
        readers = {
            BEYOND: self._reader(everything // 8),
            HELD: self._reader(2 * everything),
            PLAIN: self._mapped,
            KEPT: {name: self._mapped(name) for name in buffers}.__getitem__,
            **self._filled_peers(buffers),
        }
        # Comparing once is also what makes hepcache's readers know the checksums.
        for reader in readers.values():
            for name, buffer in buffers.items():
                if not np.array_equal(_as_floats(reader(name)), buffer):
                    raise AssertionError(f"a store returned other bytes for {name}")
        self.openers: dict[str, Callable[[], Read]] = {
            FIRST_USE: lambda: self._reader(0),
            **{name: _constant(reader) for name, reader in readers.items()},
        }

    def _reader(self, memory_bytes: int) -> Read:
        """Return a reader that has seen nothing yet, as in a new process."""
        cache, keys = self._cache(memory_bytes), self._keys

        def read(name: str) -> Any:
            entry, cause = cache.get(keys[name])
            if entry is None:
                raise AssertionError(f"hepcache lost a buffer: {cause}")
            return entry.buffers[0]

        return read

    def _cache(self, memory_bytes: int) -> ColumnCache:
        # Raw, as "auto" keeps what the page cache holds; peers' own codec is a row of its own.
        return ColumnCache(
            self._directory / "hepcache",
            capacity_bytes=1 << 40,
            codec="raw",
            memory_bytes=memory_bytes,
        )

    def _mapped(self, name: str) -> NDArray[np.float32]:
        with self._files[name].open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(content, np.float32)

    def _filled_peers(self, buffers: Mapping[str, NDArray[np.float32]]) -> dict[str, Read]:
        try:
            import diskcache
            import zict
            from coffea.nanoevents import BufferCache, NoCompressionCodec
            from numcodecs import Blosc
        except ImportError as error:
            raise ConfigurationError(
                "bench cache", "the peers to measure against: pip install 'hepcache[bench]'", error
            ) from error
        plain, blosc = NoCompressionCodec(), Blosc("zstd", clevel=1, shuffle=Blosc.BITSHUFFLE)
        at = self._directory
        peers = (
            BufferCache(zict.File(at / "zict"), plain),
            BufferCache(zict.File(at / "zict-map", memmap=True), plain),
            BufferCache(zict.File(at / "zict-blosc"), blosc),
        )
        disk = diskcache.Cache(str(at / "diskcache"))
        for name, buffer in buffers.items():
            for peer in peers:
                peer[name] = buffer
            disk[name] = buffer.tobytes()
        readers = (*(peer.__getitem__ for peer in peers), disk.__getitem__)
        return dict(zip(PEERS, readers, strict=True))


def _constant(read: Read) -> Callable[[], Read]:
    return lambda: read


def seconds(
    stores: Stores,
    readers: Mapping[str, Callable[[], Read]],
    touch: Callable[[Any], Any],
    runs: int,
) -> dict[str, float]:
    """Return the median time of each reader for all buffers, in interleaved runs.

    Parameters
    ----------
    stores
        The buffers.
    readers
        By name, what makes a reader; making it is not timed.
    touch
        What is done with a buffer.
    runs
        Number of runs.
    """
    times: dict[str, list[float]] = {name: [] for name in readers}
    turns = list(readers.items())
    for run in range(runs):
        # Nobody always follows the same neighbour, who leaves the CPU's caches as he likes.
        first = run % len(turns)
        for name, make in turns[first:] + turns[:first]:
            read = make()
            began = time.perf_counter()
            for buffer in stores.names:
                touch(read(buffer))
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def touch_pages(buffer: Any) -> Any:
    """Read a byte of every page: what was mapped is then in memory, as what was read is."""
    return np.bitwise_xor.reduce(np.frombuffer(buffer, np.uint8)[:: mmap.PAGESIZE])


def touch_all(buffer: Any) -> Any:
    """Read every byte."""
    return np.bitwise_xor.reduce(np.frombuffer(buffer, np.uint64))


def _as_floats(buffer: Any) -> NDArray[np.float32]:
    return np.frombuffer(buffer, np.float32)


def sizes(*, quick: bool) -> Sequence[tuple[int, int]]:
    """Return sizes of buffers in bytes, and how many of each."""
    total = (16 if quick else 64) << 20
    return [(nbytes, total // nbytes) for nbytes in (64 << 10, 256 << 10, 1 << 20, 4 << 20)]
