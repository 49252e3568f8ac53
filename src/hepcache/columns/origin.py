"""Bytes of one file at its origin: counted, retried, never short, in few requests."""

from __future__ import annotations

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
from hepcache.columns.requests import Requests, told
from hepcache.columns.threads import foreground
from hepcache.columns.transport import LocalTransport, Range, Transport, open_transport
from hepcache.errors import OriginError
from hepcache.fileset.paths import without_credentials
from hepcache.fileset.transient import retried
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
        self.fetch_s = self.use_s = 0.0
        self._requests = Requests(path, transport, limit, link, retries)
        # What is fetched ahead is counted for the chunk that asks for it.
        self._ahead = Ahead(
            lambda ranges: self._requests.fetch(ranges, ahead=True),
            lambda nbytes: self._requests.count(nbytes, nbytes),
        )
        self._transport, self._position = transport, 0
        self._counts = threading.Lock()

    @property
    def requested_bytes(self) -> int:
        """Bytes that were asked for, each time they were."""
        return self._requests.requested_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes that came."""
        return self._requests.read_bytes

    @property
    def local(self) -> bool:
        """Whether the file is read as a file, whose next bytes the kernel has ready."""
        return isinstance(self._transport, LocalTransport)

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
        (data,) = self.obtain([(start, length)])
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

    def await_few(self) -> None:
        """Return when what was expected and has not come fits into one request."""
        self._ahead.wait_below(self._transport.most_bytes)

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
        found = self.obtain([ranges[one] for one in group])
        arrived = time.perf_counter()
        for number, data in zip(group, found, strict=True):
            use(number, data)
        self._count(fetch_s=arrived - began, use_s=time.perf_counter() - arrived)

    def hint(self, ranges: Sequence[Range]) -> None:
        """Say which ranges will be asked for soon; nothing is fetched or kept here."""
        self._transport.expect(ranges)

    def obtain(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return ranges whole, in one request, by the thread that calls.

        Raises
        ------
        OriginError
            As for :meth:`fetch`.
        """
        found = [self._ahead.take(*one) for one in ranges]
        missing = [number for number, data in enumerate(found) if data is None]
        if missing:
            fetched = self._requests.fetch([ranges[number] for number in missing])
            for number, data in zip(missing, fetched, strict=True):
                found[number] = memoryview(data)
        return [data for data in found if data is not None]

    def _count(self, fetch_s: float = 0.0, use_s: float = 0.0) -> None:
        with self._counts:
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
        raise OriginError(public, told(error)) from error
    limit = _limit(wanted.cache_directory / "origins", transport.origin, wanted.origin_requests)
    return Origin(public, transport, limit, link, wanted.origin_retries)


@lru_cache(maxsize=4)
def _link(bandwidth: float, state: Path) -> Link:
    return Link(bandwidth, state)


@lru_cache(maxsize=64)
def _limit(path: Path, origin: str, slots: int) -> Limit:
    return Limit(path, origin, slots)
