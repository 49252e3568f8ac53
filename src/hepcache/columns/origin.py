"""Bytes of one file at its origin: counted, retried, never short."""

from __future__ import annotations

import errno
import io
import os
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import fsspec

from hepcache.columns.link import Link
from hepcache.errors import OriginError
from hepcache.settings import settings

__all__ = ["Origin", "open_origin"]

_T = TypeVar("_T")
# What a busy file server or a flapping network answers; anything else is final.
_TRANSIENT = {
    errno.EIO, errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT,
    errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED, errno.EREMOTEIO, errno.EPIPE,
}  # fmt: skip


class Origin(io.RawIOBase):
    """A file at its origin, as a seekable file object that counts.

    Parameters
    ----------
    path
        A path or URL, for messages.
    size
        Size in bytes.
    pread
        ``pread(start, length)`` returns at most ``length`` bytes.
    shut
        Called once, when the file is closed.
    link
        An emulated link that the bytes must pass.
    retries
        Attempts after a transient error.
    """

    def __init__(
        self,
        path: str,
        size: int,
        pread: Callable[[int, int], bytes],
        shut: Callable[[], None],
        link: Link | None = None,
        retries: int = 4,
    ) -> None:
        super().__init__()
        self.path, self.size = path, size
        self.requested_bytes = 0
        self.waited_s = 0.0
        self._pread, self._shut, self._link, self._retries = pread, shut, link, retries
        self._position = 0

    def fetch(self, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start``.

        Raises
        ------
        OriginError
            The origin refused, or gave fewer bytes than the file has.
        """
        began = time.perf_counter()
        data = self._retried(lambda: self._complete(start, length))
        self.requested_bytes += length
        if self._link is not None:
            self._link.take(length)
        self.waited_s += time.perf_counter() - began
        return data

    def _complete(self, start: int, length: int) -> bytes:
        parts: list[bytes] = []
        missing = length
        while missing:
            part = self._pread(start + length - missing, missing)
            if not part:
                # A read that ends early on an open file is how a replaced or
                # half-synced NFS file shows: ask again, then give up.
                raise OSError(
                    errno.EIO, f"short read: {length} bytes at {start}, {missing} missing"
                )
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _retried(self, attempt: Callable[[], _T]) -> _T:
        for tried in range(self._retries + 1):
            try:
                return attempt()
            except (OSError, TimeoutError) as error:
                transient = error.errno in _TRANSIENT or isinstance(error, TimeoutError)
                if not transient or tried == self._retries:
                    raise OriginError(self.path, f"{type(error).__name__}: {error}") from error
                time.sleep(0.05 * 2**tried)
        raise AssertionError("unreachable")

    # The file protocol, for uproot.
    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position of the next :meth:`read`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the position of the next :meth:`read`."""
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Return bytes from the position; fewer only at the end of the file."""
        rest = max(0, self.size - self._position)
        length = rest if size is None or size < 0 else min(size, rest)
        data = self.fetch(self._position, length) if length else b""
        self._position += length
        return data

    def close(self) -> None:
        """Close the file; safe to call again."""
        if not self.closed:
            self._shut()
        super().close()


def open_origin(path: str, options: Mapping[str, Any] | None = None) -> Origin:
    """Open a file at its origin.

    Parameters
    ----------
    path
        A local or NFS path, or a URL that fsspec knows.
    options
        Options for the fsspec file system.

    Raises
    ------
    OriginError
        The file can't be opened; the message holds the origin's own words.
    """
    wanted = settings()
    link = None
    if wanted.origin_bandwidth is not None:
        state = wanted.origin_bandwidth_state or wanted.cache_directory / "origin-link"
        link = _link(wanted.origin_bandwidth, state)
    try:
        if "://" in path and not path.startswith("file://"):
            return _open_url(path, dict(options or {}), link, wanted.origin_retries)
        return _open_local(path.removeprefix("file://"), link, wanted.origin_retries)
    except ImportError as error:
        raise OriginError(path, f"{error}; install the package it names") from error
    except OSError as error:
        raise OriginError(path, f"{type(error).__name__}: {error}") from error


def _open_local(path: str, link: Link | None, retries: int) -> Origin:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return Origin(
        path,
        os.fstat(file).st_size,
        lambda start, length: os.pread(file, length, start),
        lambda: os.close(file),
        link,
        retries,
    )


def _open_url(path: str, options: dict[str, Any], link: Link | None, retries: int) -> Origin:
    filesystem, inner = fsspec.core.url_to_fs(path, **options)
    size = int(filesystem.size(inner))
    return Origin(
        path,
        size,
        lambda start, length: filesystem.cat_file(inner, start=start, end=start + length),
        lambda: None,
        link,
        retries,
    )


@lru_cache(maxsize=4)
def _link(bandwidth: float, state: Path) -> Link:
    return Link(bandwidth, state)
