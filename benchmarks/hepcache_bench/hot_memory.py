"""What a worker's process takes for chunks, read in cycles: measured in processes of their own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dask.config

from hepcache.errors import ProcessorError

__all__ = ["Resident", "peak_bytes", "resident"]

_SETTLED = 10


@dataclass(frozen=True, slots=True)
class Resident:
    """Memory of one process.

    Attributes
    ----------
    peak_bytes
        Largest resident size that it ever had.
    growth_bytes
        How much larger its resident size was in the end than after the tenth
        cycle, when all that is kept from cycle to cycle was there.
    """

    peak_bytes: int
    growth_bytes: int


def resident(chunks: Any, method: str, entries: int, cycles: int) -> Resident:
    """Read a chunk again and again in a new process, cold at first.

    Parameters
    ----------
    chunks
        The :class:`~hepcache_bench.hot_readers.Chunks`; its scratch directory
        receives the caches.
    method
        Name of the method of ``chunks`` that makes the reader.
    entries
        Entries of the chunk.
    cycles
        How often to read it.

    Raises
    ------
    ProcessorError
        The process died.
    """
    # A fork would begin with this process's memory.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_read, args=(chunks, method, entries, cycles, theirs))
    process.start()
    theirs.close()
    try:
        return Resident(*ours.recv())
    except EOFError:
        raise ProcessorError(f"the process that read with {method} died") from None
    finally:
        process.join()


def _read(chunks: Any, method: str, entries: int, cycles: int, answer: Connection) -> None:
    # Both are there for Dask workers, whose size has this in it.
    import_module("distributed")
    place: Path = chunks.scratch / f"memory-{method}"
    chosen = {
        "hepcache.catalogue": str(place / "catalogue.sqlite"),
        "hepcache.cache.directory": str(place / "columns"),
        "hepcache.cache.group": None,
    }
    with dask.config.set(chosen):
        read = getattr(chunks, method)(0, entries)
        sizes = []
        for _ in range(cycles):
            read()
            sizes.append(_status()["VmRSS"])
    settled = sizes[min(_SETTLED, len(sizes)) - 1]
    answer.send((peak_bytes(), sizes[-1] - settled))


def peak_bytes() -> int:
    """Return the largest resident size that this process ever had."""
    return _status()["VmHWM"]


def _status() -> Mapping[str, int]:
    """Return this process's sizes in bytes by the kernel's names."""
    sizes = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            sizes[name] = int(value.split()[0]) * 1024
    return sizes
