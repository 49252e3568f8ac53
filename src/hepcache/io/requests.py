"""Requests for ranges of one file: limited, repeated where it helps, and never short."""

from __future__ import annotations

import errno
import math
import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from hepcache.credentials import told_cause
from hepcache.errors import OriginError
from hepcache.io.emulated_link import Link
from hepcache.io.locks import ByteLocks
from hepcache.io.ranges import Range
from hepcache.io.retry import error_text, is_transient, retried
from hepcache.io.transport import FileChangedError, Transport
from hepcache.telemetry import PlaceUse

SLOTS = 16
"""Requests that all processes of a host have under way at one origin, at most."""


class RequestLimiter:
    """Slots for requests at one origin."""

    def __init__(self, path: Path, origin: str) -> None:
        self.path = path
        # 62 bits number a lock: the first ones the origin, the last ones the slot.
        self._first = (xxhash.xxh3_64_intdigest(origin.encode()) >> 2) // SLOTS * SLOTS
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot, waiting until one is free."""
        locks = ByteLocks(self.path)
        try:
            begin = random.randrange(SLOTS)  # noqa: S311 - no secret
            numbers = [self._first + (begin + number) % SLOTS for number in range(SLOTS)]
            # A process that waits for one slot may miss that another is free; among several
            # who wait for different ones that costs little, and none waits for ever.
            if not any(locks.try_lock(number) for number in numbers):
                locks.lock(numbers[0])
            yield
        finally:
            locks.close()


class Requests:
    """Asks for ranges until they are whole, or it is certain that they won't come.

    ``limit``: slots that this host's processes share.
    ``link``: an emulated link that the bytes must pass.
    ``patience_s``: seconds of failures after which nothing is asked again.

    Safe to use from several threads.
    """

    def __init__(
        self,
        path: str,
        transport: Transport,
        limit: RequestLimiter | None,
        link: Link | None,
        patience_s: float = math.inf,
    ) -> None:
        self.path, self.requested_bytes, self.read_bytes = path, 0, 0
        self.transport, self._limit, self._link = transport, limit, link
        self._patience_s = patience_s
        self._counts = threading.Lock()

    def fetch(self, ranges: Sequence[Range], *, ahead: bool = False) -> list[bytes | memoryview]:
        """Return ranges whole, after as many attempts as it takes and is allowed."""
        parts: list[list[bytes | memoryview]] = [[] for _ in ranges]
        rest = list(ranges)

        def ask_until_whole() -> None:
            while wanted := [number for number, (_, length) in enumerate(rest) if length]:
                self._ask(wanted, rest, parts, ahead=ahead)

        try:
            retried(ask_until_whole, self._renew, self._patience_s)
        except OriginError:
            raise
        except Exception as error:  # each library has its own tree of errors
            raise self._error(error) from told_cause(error)
        return [received[0] if len(received) == 1 else b"".join(received) for received in parts]

    def _ask(
        self,
        wanted: Sequence[int],
        rest: list[Range],
        parts: list[list[bytes | memoryview]],
        *,
        ahead: bool,
    ) -> None:
        """Ask once for what is missing of some ranges, and note what came of each."""
        asked = [rest[number] for number in wanted]
        if not ahead:
            self.count(requested_bytes=sum(length for _, length in asked))
        if self._limit is None:
            found = self._passed(asked)
        else:
            with self._limit.slot():
                found = self._passed(asked)
        came = sum(map(len, found))
        if not ahead:
            self.count(read_bytes=came)
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

    def _passed(self, ranges: Sequence[Range]) -> Sequence[bytes | memoryview]:
        found = self.transport.read(ranges)
        if self._link is not None:
            self._link.take(sum(map(len, found)))
        return found

    def _renew(self) -> None:
        try:
            self.transport.renew()
        except FileChangedError as error:
            raise self._error(error) from told_cause(error)
        except Exception as error:
            if not is_transient(error):
                raise self._error(error) from told_cause(error)

    def _error(self, error: BaseException) -> OriginError:
        return OriginError(self.path, origins_words(error))

    def count(self, requested_bytes: int = 0, read_bytes: int = 0) -> None:
        """Count bytes that were asked for, and that came."""
        with self._counts:
            self.requested_bytes += requested_bytes
            self.read_bytes += read_bytes

    def take_uses(self) -> dict[str, PlaceUse]:
        """Return nothing: there is one place alone."""
        return {}

    def close(self) -> None:
        """Close the file."""
        self.transport.close()


def origins_words(error: BaseException) -> str:
    """Return the origin's words for an error."""
    if isinstance(error, FileChangedError):
        return f"the file was replaced while it was being analysed ({error}); run again"
    # fsspec says "not found" of every failure and keeps the reason as the cause.
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return f"{error_text(error)} ({error_text(error.__cause__)})"
    return error_text(error)
