"""How bytes come from an origin: a local or NFS path, or a URL through fsspec."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

import fsspec

from hepcache.fileset.paths import is_url, location

__all__ = [
    "Changed", "LocalTransport", "Range", "Transport", "UrlTransport", "VectorTransport",
    "open_transport",
]  # fmt: skip

Range = tuple[int, int]
"""Start and length, in bytes."""

_MIB = 1 << 20
_TIMEOUT_S = 60


class Changed(Exception):  # noqa: N818 - a finding, told to the user by OriginError
    """The file is not the one that was opened."""


class Transport(Protocol):
    """Reads ranges of one file; several threads may do so at once.

    Attributes
    ----------
    origin
        Who is asked: a server, or a mounted volume. It shares a limit of requests.
    size
        Size of the file in bytes.
    gap_bytes
        Unwanted bytes between two ranges that cost less than asking twice.
    most_ranges, most_bytes
        Ranges of one request, and bytes that one should have at most.
    """

    origin: str
    size: int
    gap_bytes: int
    most_ranges: int
    most_bytes: int

    def expect(self, ranges: Sequence[Range]) -> None:
        """Hint that ranges will be read soon."""

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Ask once for up to ``most_ranges`` ranges; each may come back shorter, never longer."""
        ...

    def renew(self) -> None:
        """Open the file anew, after an error that may pass.

        Raises
        ------
        Changed
            It is another file now.
        """

    def close(self) -> None:
        """Let go of the file."""


class LocalTransport:
    """A file on a local file system or NFS.

    Parameters
    ----------
    path
        Path, with or without ``file://``.
    """

    gap_bytes, most_ranges, most_bytes = 64 * 1024, 1, 4 * _MIB

    def __init__(self, path: str) -> None:
        self._path = location(path)
        self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        self._retired: list[int] = []
        found = os.fstat(self._file)
        self.size, self._mtime_ns = found.st_size, found.st_mtime_ns
        self.origin = f"volume-{found.st_dev}"

    def expect(self, ranges: Sequence[Range]) -> None:
        """Tell the kernel to read ahead; the server is asked for many ranges at once."""
        for start, length in ranges:
            with suppress(OSError):
                os.posix_fadvise(self._file, start, length, os.POSIX_FADV_WILLNEED)

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read each range once."""
        return [os.pread(self._file, length, start) for start, length in ranges]

    def renew(self) -> None:
        """Open the path again: a stale NFS handle never gets well by itself.

        Raises
        ------
        Changed
            Another file stands there now, or this one was written.
        """
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(file)
        if (found.st_size, found.st_mtime_ns) != (self.size, self._mtime_ns):
            os.close(file)
            raise Changed(
                f"it had {self.size} bytes, and has {found.st_size} now"
                if found.st_size != self.size
                else "it was written meanwhile"
            )
        # Another thread may be reading from the old one.
        self._retired.append(self._file)
        self._file = file

    def close(self) -> None:
        """Close the file."""
        for file in (*self._retired, self._file):
            os.close(file)
        self._retired.clear()


class UrlTransport:
    """A file behind a URL, through its fsspec file system: https, s3 and others.

    Parameters
    ----------
    url
        The URL.
    options
        Options of the file system. Credentials are in them, in the
        environment or in the library's own files, and stay there.
    """

    gap_bytes, most_ranges, most_bytes = 64 * 1024, 1, 4 * _MIB

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._filesystem, self._inner = fsspec.core.url_to_fs(url, **options)
        info = self._filesystem.info(self._inner)
        if info.get("size") is None:
            raise OSError(errno.ESPIPE, "the server gives no size; does it serve byte ranges?")
        self.size = int(info["size"])
        split = urlsplit(url)
        self.origin = f"{split.scheme}://{split.hostname or ''}:{split.port or ''}"
        self._extra: dict[str, Any] = {}
        etag = info.get("ETag")
        if split.scheme in ("http", "https") and isinstance(etag, str) and etag.startswith('"'):
            # A file that is replaced now must not be mixed with what it was.
            headers = dict(getattr(self._filesystem, "kwargs", {}).get("headers") or {})
            self._extra["headers"] = {**headers, "If-Match": etag}

    def expect(self, ranges: Sequence[Range]) -> None:
        """Do nothing: ranges are asked for in parallel."""

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Ask for each range; a server that does not serve ranges is an error."""
        return [self._read(start, length) for start, length in ranges]

    def _read(self, start: int, length: int) -> bytes:
        try:
            data = self._filesystem.cat_file(
                self._inner, start=start, end=start + length, **self._extra
            )
        except Exception as error:
            if getattr(error, "status", None) == 412:
                raise Changed("its ETag is another one now") from error
            raise
        return bytes(data) if not isinstance(data, bytes) else data

    def renew(self) -> None:
        """Do nothing: every request stands for itself."""

    def close(self) -> None:
        """Do nothing: fsspec keeps the connections for other files."""


class VectorTransport(UrlTransport):
    """A file of an XRootD server, through fsspec-xrootd's vector reads.

    Parameters
    ----------
    url, options
        As for :class:`UrlTransport`.
    """

    # A vector's ranges cost no round trip each, so gaps need not be read.
    gap_bytes, most_ranges, most_bytes = 1024, 512, 4 * _MIB

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        # Its own default is to wait for ever.
        super().__init__(url, {"timeout": _TIMEOUT_S, **options})
        self._mtime = self._filesystem.info(self._inner).get("mtime")

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Ask for all ranges at once."""
        starts = [start for start, _ in ranges]
        ends = [start + length for start, length in ranges]
        found: list[bytes] = self._filesystem.cat_ranges([self._inner] * len(ranges), starts, ends)
        return found

    def renew(self) -> None:
        """Close the library's handle of the file, which may be broken.

        Raises
        ------
        Changed
            Another file stands there now.
        """
        with suppress(OSError):
            self._filesystem.invalidate_cache(self._inner)
        info = self._filesystem.info(self._inner)
        if (info.get("size"), info.get("mtime")) != (self.size, self._mtime):
            raise Changed("its size or time of change is another one now")


def open_transport(path: str, options: Mapping[str, Any]) -> Transport:
    """Return the transport for a path or URL."""
    if not is_url(path):
        return LocalTransport(path)
    if path.startswith(("root://", "roots://", "xroot://")):
        return VectorTransport(path, options)
    return UrlTransport(path, options)
