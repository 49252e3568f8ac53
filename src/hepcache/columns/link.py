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
    The bucket holds nothing in stock: ``n`` bytes take ``n / bandwidth``
    seconds after all that was asked before. The clock is the machine's
    monotonic one, which its processes share.
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
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            raw = os.pread(self._file, _STATE.size, 0)
            free_at = _STATE.unpack(raw)[0] if len(raw) == _STATE.size else 0.0
            done_at = max(began, free_at) + nbytes / self.bandwidth
            os.pwrite(self._file, _STATE.pack(done_at), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        wait_s = done_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        return time.monotonic() - began

    def close(self) -> None:
        """Close the state file."""
        os.close(self._file)
