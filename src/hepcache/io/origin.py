"""Bytes of one file at its origin: counted, retried, never short, in few requests."""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import lru_cache
from pathlib import Path
from typing import Any

from hepcache.credentials import told_cause, without_credentials
from hepcache.errors import OriginError
from hepcache.io.emulated_link import emulated_link
from hepcache.io.ranges import Range
from hepcache.io.read_ahead import PrefetchedRanges
from hepcache.io.replicas import PLACE_PATIENCE_S, ReplicaRequests
from hepcache.io.requests import RequestLimiter, Requests, origins_words
from hepcache.io.retry import retried
from hepcache.io.threads import decoding, foreground, usable_cores
from hepcache.io.transport import LocalTransport, Transport, open_transport
from hepcache.settings import settings
from hepcache.telemetry import PlaceUse


class OriginFile(io.RawIOBase):
    """A file at its origin, as a seekable file object that counts.

    ``requests``: asks for its bytes, at one place or at several.

    Safe to use from several threads, but for the file protocol.
    """

    def __init__(self, path: str, requests: Requests | ReplicaRequests) -> None:
        super().__init__()
        self.path, self.size = path, requests.transport.size
        self.fetch_s = self.use_s = 0.0
        self._requests = requests
        # What is fetched ahead is counted for the chunk that asks for it.
        self._ahead = PrefetchedRanges(
            lambda ranges: self._requests.fetch(ranges, ahead=True),
            lambda nbytes: self._requests.count(nbytes, nbytes),
        )
        self._position = 0
        self._counts = threading.Lock()

    def __repr__(self) -> str:
        # uproot has no other name for what it is given, and puts this into its messages.
        return self.path

    @property
    def requested_bytes(self) -> int:
        """Bytes that were asked for, each time they were."""
        return self._requests.requested_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes that came."""
        return self._requests.read_bytes

    @property
    def _transport(self) -> Transport:
        return self._requests.transport

    def take_uses(self) -> dict[str, PlaceUse]:
        """Return what each place served, and failed, since the last call; of several places."""
        return self._requests.take_uses()

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

        Raises ``OriginError``: the origin refused, or gave fewer bytes than the file has.
        """
        began = time.perf_counter()
        (data,) = self.obtain([(start, length)])
        self._count(fetch_s=time.perf_counter() - began)
        return bytes(data)

    def gather(self, ranges: Sequence[Range], use: Callable[[int, memoryview], None]) -> None:
        """Fetch ranges in parallel, and use each as it arrives.

        ``use``: called in another thread with the position of a range in ``ranges`` and its bytes;
        several calls at once.
        Raises ``OriginError``: as for :meth:`fetch`.
        Raises ``Exception``: what ``use`` raised.
        """
        self._transport.expect(ranges)
        most_ranges = self._transport.most_ranges
        if self.local:
            # All cores shall have something to inflate.
            most_ranges = min(most_ranges, -(-len(ranges) // usable_cores()))
        groups = list(self._groups(ranges, most_ranges))
        if len(groups) == 1:
            self._gather_group(groups[0], ranges, use)
            return
        threads = foreground()
        if self.local:
            # There is little to wait for, so that what takes longest had better begin first.
            threads = decoding()
            groups.sort(key=lambda group: -sum(ranges[number][1] for number in group))
        jobs = [threads.submit(self._gather_group, group, ranges, use) for group in groups]
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
        groups = self._groups(ranges, self._transport.most_ranges)
        self._ahead.begin([[ranges[number] for number in group] for group in groups])

    def await_few(self) -> None:
        """Return when what was expected and has not come fits into one request."""
        self._ahead.wait_below(self._transport.most_bytes)

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop ranges that were expected, fetched or not."""
        self._ahead.drop(ranges)

    def _groups(self, ranges: Sequence[Range], most_ranges: int) -> Iterator[list[int]]:
        """Yield positions of ranges, together those of one request."""
        group: list[int] = []
        total = 0
        for number, (_, length) in enumerate(ranges):
            full = len(group) == most_ranges
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
        found = self.obtain([ranges[number] for number in group])
        arrived = time.perf_counter()
        for number, data in zip(group, found, strict=True):
            use(number, data)
        self._count(fetch_s=arrived - began, use_s=time.perf_counter() - arrived)

    def hint(self, ranges: Sequence[Range]) -> None:
        """Say which ranges will be asked for soon; nothing is fetched or kept here."""
        self._transport.expect(ranges)

    def in_memory(self, start: int, into: memoryview) -> int:
        """Read from ``start`` what the host has in memory; return how many bytes that were.

        It never waits, asks nobody, and is not counted.
        """
        return self._transport.in_memory(start, into)

    def obtain(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return ranges whole, in one request, by the thread that calls.

        Raises ``OriginError``: as for :meth:`fetch`.
        """
        found = [self._ahead.take(*wanted) for wanted in ranges]
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
            self._requests.close()
        super().close()


def open_origin(
    path: str,
    options: Mapping[str, Any] | None = None,
    places: Sequence[str] = (),
    check: Callable[[str], None] = lambda _: None,
) -> OriginFile:
    """Open a file at its origin.

    ``places``: where it lies, in the order in which these are tried; at ``path`` if not given.
    ``check``: raises an error unless one of several places has the content that is wanted.
    Raises ``OriginError``: the file can't be opened; the message holds the origin's own words.
    """
    public = without_credentials(path)
    if len(places) > 1:

        def open_place(place: str) -> Requests:
            return _requests(place, options or {}, PLACE_PATIENCE_S)

        return OriginFile(public, ReplicaRequests(public, places, open_place, check))
    return OriginFile(public, _requests(places[0] if places else path, options or {}))


def _requests(path: str, options: Mapping[str, Any], patience_s: float = math.inf) -> Requests:
    public = without_credentials(path)
    try:
        transport = retried(lambda: open_transport(path, options), patience_s=patience_s)
    except ImportError as error:
        problem = f"{error}; say: pip install 'hepcache[remote]'"
        raise OriginError(public, problem) from told_cause(error)
    except Exception as error:  # each library has its own tree of errors
        raise OriginError(public, origins_words(error)) from told_cause(error)
    limit = _limit(settings().cache_directory / "origins", transport.origin)
    return Requests(public, transport, limit, emulated_link(), patience_s)


@lru_cache(maxsize=64)
def _limit(path: Path, origin: str) -> RequestLimiter:
    return RequestLimiter(path, origin)
