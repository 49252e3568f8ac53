"""An emulated link to a shared origin: one token bucket for all processes.

The published system's cold cycle was bound by one NFS server behind one
link. On a single machine nothing is, so benchmarks put this bucket between
the workers and their files. It never holds data back, only time.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path

__all__ = ["Link"]

_STATE = struct.Struct("<d")

_BLOCK_S, _LEAST_BLOCK = 0.01, 64 * 1024
# Who wakes a moment late has not lost the link to nobody.
_BURST_S = 0.005


class Link:
    """A token bucket whose state is a file, so that processes share it.

    Parameters
    ----------
    bandwidth
        Bytes per second of the whole link.
    state
        The file; made when missing. Every process of the machine that names
        the same file shares the link.

    Notes
    -----
    Bytes pass in blocks of 10 ms, so that whoever reads at the same time gets
    equal parts, as connections do; the bucket holds no more than 5 ms in
    stock. The clock is the machine's monotonic one, which its processes share.
    """

    def __init__(self, bandwidth: float, state: Path) -> None:
        self.bandwidth = bandwidth
        state.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, nbytes: int) -> float:
        """Wait until ``nbytes`` have passed the link.

        Returns
        -------
        float
            Seconds waited.
        """
        began = time.monotonic()
        block = max(_LEAST_BLOCK, int(self.bandwidth * _BLOCK_S))
        for passed in range(0, nbytes, block):
            wait_s = self._book(min(block, nbytes - passed)) - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
        return time.monotonic() - began

    def _book(self, nbytes: int) -> float:
        """Return when bytes that want to pass now will have passed."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            raw = os.pread(self._file, _STATE.size, 0)
            free_at = _STATE.unpack(raw)[0] if len(raw) == _STATE.size else 0.0
            done_at = max(time.monotonic() - _BURST_S, free_at) + nbytes / self.bandwidth
            os.pwrite(self._file, _STATE.pack(done_at), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return done_at

    def close(self) -> None:
        """Close the state file."""
        os.close(self._file)
