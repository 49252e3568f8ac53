"""How bytes come from an origin: a local or NFS path, or a URL through fsspec."""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import fsspec
import numpy as np

from hepcache.credentials import url_problem
from hepcache.io.memory import page_pool
from hepcache.io.ranges import Range

_BYTE = np.dtype(np.uint8)
_MIB = 1 << 20
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://|^[a-z]+::")
_SILENT_S = 60
_CONNECT_S = 10.0
_XROOTD_PORT = 1094
_REMEMBERED_S = 5.0

_open_until: dict[tuple[str, int], float] = {}


def path_problem(path: str) -> str:
    """Return why a path or URL is refused before anybody looks for it; ``""`` if it is not.

    >>> path_problem("a.root"), path_problem("")
    ('', 'it is empty')
    """
    if not path.strip():
        return "it is empty"
    return "it holds a null byte" if "\0" in path else url_problem(path)


def is_url(path: str) -> bool:
    """Return whether ``path`` must be read through a remote protocol."""
    return bool(_URL.match(path)) and not path.startswith("file://")


def location(path: str) -> str:
    """Return where a path leads from any directory: absolute, or the URL as it is.

    >>> location("file:///data/a.root")
    '/data/a.root'
    >>> location("root://server//data/a.root")
    'root://server//data/a.root'
    """
    if is_url(path):
        return path
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    # Not resolved: a link may be pointed at another file tomorrow.
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111


class FileChangedError(Exception):
    """The file is not the one that was opened."""


class Transport(Protocol):
    """Reads ranges of one file; several threads may do so at once.

    ``origin``: who is asked: a server, or a mounted volume. It shares a limit of requests.
    ``size``: size of the file in bytes.
    ``most_ranges``, ``most_bytes``: ranges of one request, and bytes that one should have at most.
    """

    origin: str
    size: int
    gap_bytes: int
    most_ranges: int
    most_bytes: int

    def expect(self, ranges: Sequence[Range]) -> None:
        """Hint that ranges will be read soon."""

    def read(self, ranges: Sequence[Range]) -> Sequence[bytes | memoryview]:
        """Ask once for up to ``most_ranges`` ranges; each may come back shorter, never longer."""
        ...

    def in_memory(self, start: int, into: memoryview) -> int:
        """Read from ``start`` what costs no waiting; return how many bytes that were."""
        ...

    def renew(self) -> None:
        """Open the file anew, after an error that may pass.

        Raises ``FileChangedError``: it is another file now.
        """

    def close(self) -> None:
        """Close the file."""


class LocalTransport:
    """A file on a local file system or NFS.

    ``path``: path, with or without ``file://``.
    """

    gap_bytes, most_ranges, most_bytes = 64 * 1024, 8, 4 * _MIB

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

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Read each range once, into memory that is used again."""
        return [self._read(*wanted) for wanted in ranges]

    def _read(self, start: int, length: int) -> memoryview:
        # Dask's workers give freed memory back at once, and new pages cost as much as reading.
        into = page_pool().empty(length, _BYTE).data
        return into[: os.preadv(self._file, [into], start)]

    def in_memory(self, start: int, into: memoryview) -> int:
        """Read what the page cache has; 0 where the system can't tell."""
        try:
            return os.preadv(self._file, [into], start, os.RWF_NOWAIT)
        except (AttributeError, OSError):
            return 0

    def renew(self) -> None:
        """Open the path again: a stale NFS handle never gets well by itself."""
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(file)
        if (found.st_size, found.st_mtime_ns) != (self.size, self._mtime_ns):
            os.close(file)
            raise FileChangedError(
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
    """A file behind a URL, through its fsspec file system: https, s3 and others."""

    gap_bytes, most_ranges, most_bytes = 64 * 1024, 1, 4 * _MIB

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._filesystem, self._inner = fsspec.core.url_to_fs(
            url, **filesystem_options(url, options)
        )
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
                raise FileChangedError("its ETag is another one now") from error
            raise
        return bytes(data) if not isinstance(data, bytes) else data

    def in_memory(self, start: int, into: memoryview) -> int:  # noqa: ARG002
        """Return 0: all is far away."""
        return 0

    def renew(self) -> None:
        """Do nothing: every request stands for itself."""

    def close(self) -> None:
        """Do nothing: fsspec keeps the connections for other files."""


def is_xrootd(path: str) -> bool:
    """Return whether a path is a URL of XRootD."""
    return path.startswith(("root://", "roots://", "xroot://"))


def require_listening(url: str) -> None:
    """Check that a server listens where a URL leads; of many calls in a row, one looks."""
    if any(name.lower() == "xroot_proxy" for name in os.environ):
        return  # the client goes another way
    parts = urlsplit(url)
    place = parts.hostname or "", parts.port or _XROOTD_PORT
    if _open_until.get(place, 0.0) > time.monotonic():
        return
    with socket.create_connection(place, timeout=_CONNECT_S):
        _open_until[place] = time.monotonic() + _REMEMBERED_S


def xrootd_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of the file system, with a time for each request."""
    from fsspec_xrootd import XRootDFileSystem

    # uproot can't hand on a time, and without one waits for ever.
    XRootDFileSystem.default_timeout = XRootDFileSystem.default_timeout or _SILENT_S
    return {"timeout": _SILENT_S, **options}


class VectorTransport(UrlTransport):
    """A file of an XRootD server, through fsspec-xrootd's vector reads.

    ``url``, ``options``: as for :class:`UrlTransport`.
    """

    # A vector's ranges cost no round trip each, so gaps need not be read.
    gap_bytes, most_ranges, most_bytes = 1024, 512, 4 * _MIB

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        require_listening(url)
        super().__init__(url, options)
        self._mtime = self._filesystem.info(self._inner).get("mtime")
        self._url, self._failed = url, False

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Ask for all ranges at once."""
        if self._failed:
            require_listening(self._url)
        starts = [start for start, _ in ranges]
        ends = [start + length for start, length in ranges]
        self._failed = True
        found: list[bytes] = self._filesystem.cat_ranges([self._inner] * len(ranges), starts, ends)
        self._failed = False
        return found

    def renew(self) -> None:
        """Close the library's handle of the file, which may be broken."""
        require_listening(self._url)
        with suppress(OSError):
            self._filesystem.invalidate_cache(self._inner)
        info = self._filesystem.info(self._inner)
        if (info.get("size"), info.get("mtime")) != (self.size, self._mtime):
            raise FileChangedError("its size or time of change is another one now")


def http_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of the file system, with a time after which a silent server has failed."""
    from aiohttp import ClientTimeout

    # aiohttp itself waits for five minutes where a link is cut.
    times = ClientTimeout(total=300, sock_connect=_CONNECT_S, sock_read=_SILENT_S)
    return {**options, "client_kwargs": {"timeout": times, **(options.get("client_kwargs") or {})}}


def filesystem_options(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of the file system of a URL, with the times that we wait for its server."""
    if is_xrootd(url):
        return xrootd_options(options)
    if url.startswith(("http://", "https://")):
        return http_options(options)
    return dict(options)


def open_transport(path: str, options: Mapping[str, Any]) -> Transport:
    """Return the transport for a path or URL."""
    if not is_url(path):
        return LocalTransport(path)
    if is_xrootd(path):
        return VectorTransport(path, options)
    return UrlTransport(path, options)
