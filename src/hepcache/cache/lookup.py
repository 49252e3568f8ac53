"""The hit path: a stored column, checked, decoded where it has to be, and handed out.

No lock is taken and nothing is written here, but for a damaged file, which is
set aside.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.disk.codecs import RAW, decompress
from hepcache.cache.disk.files import Fingerprint, read_column, verify_payload, verify_payloads
from hepcache.cache.disk.format import Damage, ForeignFile, Header
from hepcache.cache.disk.layout import Layout
from hepcache.cache.disk.mapping import is_mapped
from hepcache.cache.held import Held
from hepcache.cache.model import ColumnKey, Entry
from hepcache.cache.verified import Verified
from hepcache.telemetry import Cause

__all__ = ["Lookup", "Verify"]

Verify = Literal["first-use", "always", "never"]


class Lookup:
    """Finds stored columns for one process.

    Parameters
    ----------
    layout
        Paths of the cache directory.
    verify
        When payloads are compared with their checksums. Encoded ones are
        whenever they are decoded, because a decoder trusts its input.
    memory_bytes
        How much of what it has found this process holds on to.
    removed
        Called with the size and the owner of a damaged file that was moved
        to the quarantine.
    """

    def __init__(
        self,
        layout: Layout,
        verify: Verify,
        memory_bytes: int,
        removed: Callable[[int, int], None],
    ) -> None:
        self._layout, self._verify, self._removed = layout, verify, removed
        self._verified = Verified()
        self._held = Held(memory_bytes)

    def find(self, key: ColumnKey, digest: bytes) -> tuple[Entry | None, Cause]:
        """Return a stored column, or why there is none.

        Parameters
        ----------
        key
            The column.
        digest
            The key's digest.
        """
        if self._verify != "always" and (held := self._held.get(digest)) is not None:
            return held, "hit"
        path = self._layout.column(key)
        try:
            header, data, fingerprint = read_column(path, digest)
            entry = self._entry(header, data, fingerprint)
        except Damage:
            self.quarantine(path)
            return None, "corrupt"
        except (ForeignFile, OSError, ValueError, MemoryError):
            # No file, another key's or a later version's; no permission, no memory.
            return None, "miss"
        in_place = is_mapped(data) and all(one.codec == RAW for one in header.buffers)
        self._held.put(digest, path, fingerprint, entry, data if in_place else None)
        return entry, "hit"

    def _entry(self, header: Header, data: NDArray[np.uint8], fingerprint: Fingerprint) -> Entry:
        if self._verify == "always" or (
            self._verify == "first-use" and fingerprint not in self._verified
        ):
            verify_payloads(header, data)
            self._verified.add(fingerprint)
        buffers = (_buffer(header, data, number) for number in range(len(header.buffers)))
        return Entry(header.meta, tuple(buffers))

    def let_go(self) -> None:
        """Give back what is held of columns that are no longer stored."""
        self._held.sweep()

    def quarantine(self, path: str) -> None:
        """Set a damaged file aside, for the administrator to look at."""
        name = f"{os.path.basename(path)}.{os.urandom(4).hex()}"  # noqa: PTH119
        try:
            found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
            os.rename(path, self._layout.quarantine / name)  # noqa: PTH104
        except OSError:
            return
        self._removed(found.st_size, found.st_uid)


def _buffer(header: Header, data: NDArray[np.uint8], number: int) -> NDArray[Any]:
    record = header.buffers[number]
    payload = data[record.offset : record.offset + record.stored_bytes]
    if record.codec != RAW:
        verify_payload(header, data, number)
        payload = decompress(payload, record.codec, record.raw_bytes)
        payload.flags.writeable = False
    elif record.stored_bytes != record.raw_bytes:
        raise Damage(f"buffer {number} is raw, yet {record.stored_bytes} bytes are stored")
    return payload.view(record.dtype).reshape(record.shape)
