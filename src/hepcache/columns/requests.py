"""Requests for ranges of one file: limited, repeated where it helps, and never short."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence

from hepcache.columns.limit import Limit
from hepcache.columns.link import Link
from hepcache.columns.transport import Changed, Range, Transport
from hepcache.errors import OriginError
from hepcache.fileset.transient import is_transient, pause_s, words

__all__ = ["Requests", "told"]


class Requests:
    """Asks for ranges until they are whole, or it is certain that they won't come.

    Parameters
    ----------
    path
        A path or URL, for messages.
    transport
        Reads ranges.
    limit
        Slots that this host's processes share.
    link
        An emulated link that the bytes must pass.
    retries
        Attempts after a transient error.

    Attributes
    ----------
    requested_bytes, read_bytes
        Bytes that were asked for, each time they were, and that came.

    Notes
    -----
    Safe to use from several threads.
    """

    def __init__(
        self,
        path: str,
        transport: Transport,
        limit: Limit | None,
        link: Link | None,
        retries: int,
    ) -> None:
        self.path, self.requested_bytes, self.read_bytes = path, 0, 0
        self._transport, self._limit, self._link = transport, limit, link
        self._retries = retries
        self._counts = threading.Lock()

    def fetch(self, ranges: Sequence[Range], *, ahead: bool = False) -> list[bytes]:
        """Return ranges whole, after as many attempts as it takes and is allowed.

        Parameters
        ----------
        ranges
            Start and length of each.
        ahead
            Whether nobody waits for them yet: then nothing is counted.

        Raises
        ------
        OriginError
            The origin refused, or gave fewer bytes than the file has.
        """
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
        return OriginError(self.path, told(error))

    def count(self, requested_bytes: int = 0, read_bytes: int = 0) -> None:
        """Count bytes that were asked for, and that came."""
        with self._counts:
            self.requested_bytes += requested_bytes
            self.read_bytes += read_bytes


def told(error: BaseException) -> str:
    """Return the origin's words for an error."""
    if isinstance(error, Changed):
        return f"the file was replaced while it was being analysed ({error}); run again"
    # fsspec says "not found" of every failure and keeps the reason as the cause.
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return f"{words(error)} ({words(error.__cause__)})"
    return words(error)
