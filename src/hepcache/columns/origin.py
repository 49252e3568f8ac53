"""Bytes of one file at its origin: counted, retried, never short, in few requests."""

from __future__ import annotations

import errno
import io
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import lru_cache
from pathlib import Path
from typing import Any

from hepcache.columns.ahead import Ahead
from hepcache.columns.limit import Limit
from hepcache.columns.link import Link
from hepcache.columns.threads import foreground
from hepcache.columns.transport import Changed, Range, Transport, open_transport
from hepcache.errors import OriginError
from hepcache.fileset.paths import without_credentials
from hepcache.fileset.transient import is_transient, pause_s, retried, words
from hepcache.settings import settings

__all__ = ["Origin", "open_origin"]


class Origin(io.RawIOBase):
    """A file at its origin, as a seekable file object that counts.

    Parameters
    ----------
    path
        A path or URL, for messages.
    transport
        Reads ranges of it.
    limit
        Slots for requests, which this host's processes share.
    link
        An emulated link that the bytes must pass.
    retries
        Attempts after a transient error.

    Attributes
    ----------
    requested_bytes, read_bytes
        Bytes that were asked for, each time they were, and that came.
    fetch_s, use_s
        Seconds of threads: waiting for bytes, and in what was done with them.

    Notes
    -----
    Safe to use from several threads, but for the file protocol.
    """

    def __init__(
        self,
        path: str,
        transport: Transport,
        limit: Limit | None = None,
        link: Link | None = None,
        retries: int = 4,
    ) -> None:
        super().__init__()
        self.path, self.size = path, transport.size
        self.requested_bytes = self.read_bytes = 0
        self.fetch_s = self.use_s = 0.0
        self._ahead = Ahead(lambda ranges: self._request(ranges, ahead=True), self._came_ahead)
        self._transport, self._limit, self._link = transport, limit, link
        self._retries, self._position = retries, 0
        self._counts = threading.Lock()

    @property
    def gap_bytes(self) -> int:
        """Unwanted bytes between two ranges that cost less than asking twice."""
        return self._transport.gap_bytes

    @property
    def most_bytes(self) -> int:
        """Bytes that one request should have at most."""
        return self._transport.most_bytes

    def fetch(self, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start``.

        Raises
        ------
        OriginError
            The origin refused, or gave fewer bytes than the file has.
        """
        began = time.perf_counter()
        (data,) = self._obtain([(start, length)])
        self._count(fetch_s=time.perf_counter() - began)
        return bytes(data)

    def gather(self, ranges: Sequence[Range], use: Callable[[int, memoryview], None]) -> None:
        """Fetch ranges in parallel, and use each as it arrives.

        Parameters
        ----------
        ranges
            Start and length of each, by position in the file.
        use
            Called in another thread with the position of a range in
            ``ranges`` and its bytes; several calls at once.

        Raises
        ------
        OriginError
            As for :meth:`fetch`.
        Exception
            What ``use`` raised.
        """
        self._transport.expect(ranges)
        groups = list(self._groups(ranges))
        if len(groups) == 1:
            self._gather_group(groups[0], ranges, use)
            return
        jobs = [foreground().submit(self._gather_group, group, ranges, use) for group in groups]
        wait(jobs, return_when=FIRST_EXCEPTION)
        for job in jobs:
            job.cancel()
        # None may still be at work when the caller goes on.
        wait(jobs)
        for job in jobs:
            if not job.cancelled():
                job.result()

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch ranges that will be asked for, in the background."""
        self._transport.expect(ranges)
        self._ahead.begin([[ranges[one] for one in group] for group in self._groups(ranges)])

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop ranges that were expected, fetched or not."""
        self._ahead.drop(ranges)

    def _groups(self, ranges: Sequence[Range]) -> Iterator[list[int]]:
        """Return positions of ranges, together those of one request."""
        group: list[int] = []
        total = 0
        for number, (_, length) in enumerate(ranges):
            full = len(group) == self._transport.most_ranges
            if group and (full or total + length > self._transport.most_bytes):
                yield group
                group, total = [], 0
            group.append(number)
            total += length
        if group:
            yield group

    def _gather_group(
        self, group: Sequence[int], ranges: Sequence[Range], use: Callable[[int, memoryview], None]
    ) -> None:
        began = time.perf_counter()
        found = self._obtain([ranges[one] for one in group])
        arrived = time.perf_counter()
        for number, data in zip(group, found, strict=True):
            use(number, data)
        self._count(fetch_s=arrived - began, use_s=time.perf_counter() - arrived)

    def _obtain(self, ranges: Sequence[Range]) -> list[memoryview]:
        found = [self._ahead.take(*one) for one in ranges]
        missing = [number for number, data in enumerate(found) if data is None]
        if missing:
            fetched = self._request([ranges[number] for number in missing])
            for number, data in zip(missing, fetched, strict=True):
                found[number] = memoryview(data)
        return [data for data in found if data is not None]

    def _request(self, ranges: Sequence[Range], *, ahead: bool = False) -> list[bytes]:
        """Return ranges whole, after as many attempts as it takes and is allowed."""
        parts: list[list[bytes]] = [[] for _ in ranges]
        rest = list(ranges)
        tried = 0
        while any(length for _, length in rest):
            wanted = [number for number, (_, length) in enumerate(rest) if length]
            try:
                self._ask(wanted, rest, parts, ahead=ahead)
            except Exception as error:
                # Whatever the library raises: each has its own tree of errors.
                if isinstance(error, OriginError):
                    raise
                if tried == self._retries or not is_transient(error):
                    raise self._error(error) from error
                time.sleep(pause_s(tried))
                tried += 1
                self._renew()
        return [one[0] if len(one) == 1 else b"".join(one) for one in parts]

    def _ask(
        self,
        wanted: Sequence[int],
        rest: list[Range],
        parts: list[list[bytes]],
        *,
        ahead: bool,
    ) -> None:
        """Ask once for what is missing of some ranges, and note what came of each."""
        asked = [rest[number] for number in wanted]
        if not ahead:
            self._count(requested_bytes=sum(length for _, length in asked))
        if self._limit is None:
            found = self._passed(asked)
        else:
            with self._limit.slot():
                found = self._passed(asked)
        came = sum(map(len, found))
        if not ahead:
            self._count(read_bytes=came)
        for number, (start, length), data in zip(wanted, asked, found, strict=True):
            if len(data) > length:
                raise OriginError(
                    self.path,
                    f"it gave {len(data)} bytes where {length} were asked for at {start}: "
                    "the server does not serve byte ranges",
                )
            if data:
                parts[number].append(data)
                rest[number] = start + len(data), length - len(data)
        if not came:
            # A read that ends early on an open file is how a replaced or
            # half-synced NFS file shows: ask again, then give up.
            start, length = asked[0]
            raise OSError(errno.EIO, f"short read: of {length} bytes at {start} none came")

    def _passed(self, ranges: Sequence[Range]) -> list[bytes]:
        found = self._transport.read(ranges)
        if self._link is not None:
            self._link.take(sum(map(len, found)))
        return found

    def _renew(self) -> None:
        try:
            self._transport.renew()
        except Changed as error:
            raise self._error(error) from error
        except Exception as error:
            if not is_transient(error):
                raise self._error(error) from error

    def _error(self, error: BaseException) -> OriginError:
        return OriginError(without_credentials(self.path), _told(error))

    def _came_ahead(self, nbytes: int) -> None:
        # What is fetched ahead is counted for the chunk that asks for it.
        self._count(requested_bytes=nbytes, read_bytes=nbytes)

    def _count(
        self,
        requested_bytes: int = 0,
        read_bytes: int = 0,
        fetch_s: float = 0.0,
        use_s: float = 0.0,
    ) -> None:
        with self._counts:
            self.requested_bytes += requested_bytes
            self.read_bytes += read_bytes
            self.fetch_s += fetch_s
            self.use_s += use_s

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
            self._ahead.close()
            self._transport.close()
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
    public = without_credentials(path)
    try:
        transport = retried(lambda: open_transport(path, options or {}), wanted.origin_retries)
    except ImportError as error:
        raise OriginError(public, f"{error}; say: pip install 'hepcache[remote]'") from error
    except Exception as error:  # each library has its own tree of errors
        raise OriginError(public, _told(error)) from error
    limit = _limit(wanted.cache_directory / "origins", transport.origin, wanted.origin_requests)
    return Origin(public, transport, limit, link, wanted.origin_retries)


def _told(error: BaseException) -> str:
    if isinstance(error, Changed):
        return f"the file was replaced while it was being analysed ({error}); run again"
    # fsspec says "not found" of every failure and keeps the reason as the cause.
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return f"{words(error)} ({words(error.__cause__)})"
    return words(error)


@lru_cache(maxsize=4)
def _link(bandwidth: float, state: Path) -> Link:
    return Link(bandwidth, state)


@lru_cache(maxsize=64)
def _limit(path: Path, origin: str, slots: int) -> Limit:
    return Limit(path, origin, slots)
