"""An emulated link to a shared origin: one token bucket for all processes.

The published system's cold cycle was bound by one NFS server behind one
link. On a single machine nothing is, so benchmarks put this bucket between
the workers and their files. It never holds data back, only time. A variable of
the environment puts a process behind it; :class:`~hepcache.clusters.LocalCluster`
gives it to its workers.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from dask.utils import parse_bytes

from hepcache.errors import ConfigurationError
from hepcache.io.atomic import make_directories

VARIABLE = "HEPCACHE_EMULATED_LINK"
"""Of a process behind a link: its bytes per second, a space, and the file of its state."""

_STATE = struct.Struct("<d")

_BLOCK_S, _LEAST_BLOCK = 0.01, 64 * 1024
# A reader that wakes a moment late still gets the bytes of that moment.
_BURST_S = 0.005


class Link:
    """A token bucket whose state is a file, so that processes share it.

    ``bandwidth``: bytes per second of the whole link.
    ``state``: the file; made when missing. Every process of the machine that names the same file
    shares the link.

    Bytes pass in blocks of 10 ms, so that all who read at the same time get
    equal parts, as connections do; the bucket holds no more than 5 ms in
    stock. The clock is the machine's monotonic one, which its processes share.
    """

    def __init__(self, bandwidth: float, state: Path) -> None:
        self.bandwidth = bandwidth
        make_directories(state.parent)
        self._file = os.open(state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, nbytes: int) -> float:
        """Wait until ``nbytes`` have passed the link."""
        began = time.monotonic()
        block = max(_LEAST_BLOCK, int(self.bandwidth * _BLOCK_S))
        for passed in range(0, nbytes, block):
            wait_s = self._book(min(block, nbytes - passed)) - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
        return time.monotonic() - began

    @property
    def backlog_s(self) -> float:
        """Seconds after which all will have passed that wants to pass now."""
        return max(self._free_at() - time.monotonic(), 0.0)

    def _free_at(self) -> float:
        raw = os.pread(self._file, _STATE.size, 0)
        return float(_STATE.unpack(raw)[0]) if len(raw) == _STATE.size else 0.0

    def _book(self, nbytes: int) -> float:
        """Return when bytes that want to pass now will have passed."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            done_at = max(time.monotonic() - _BURST_S, self._free_at()) + nbytes / self.bandwidth
            os.pwrite(self._file, _STATE.pack(done_at), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return done_at


def bytes_per_s(bandwidth: str | float) -> float:
    """Return a bandwidth such as ``"20 MB/s"`` in bytes per second.

    Raises ``ConfigurationError``: it is none.
    """
    text, found = str(bandwidth).removesuffix("/s"), 0
    # A unit alone would be one of it.
    if any(map(str.isdecimal, text)):
        with suppress(ValueError, OverflowError):
            found = parse_bytes(text)
    if found < 1:
        expected = "bytes per second, at least 1, such as 20 MB/s"
        raise ConfigurationError("origin_bandwidth", expected, bandwidth)
    return float(found)


def environment(bandwidth: str | float, state: Path) -> dict[str, str]:
    """Return what puts processes behind one link, as variables of their environment.

    Raises ``ConfigurationError``: the bandwidth is none.
    """
    return {VARIABLE: f"{bytes_per_s(bandwidth)} {state.absolute()}"}


def emulated_link() -> Link | None:
    """Return the link that this process is behind, if there is one."""
    said = os.environ.get(VARIABLE)
    return None if said is None else _link(said)


@lru_cache(maxsize=4)
def _link(said: str) -> Link:
    bandwidth, _, state = said.partition(" ")
    return Link(float(bandwidth), Path(state))
