"""What every object store can do, and how its objects are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, ObjectDamagedError, ObjectMissingError

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Request(NamedTuple):
    """One range of one object.

    Attributes
    ----------
    name
        The object's name in its store.
    start, length
        First byte and number of bytes.
    """

    name: str
    start: int
    length: int


class Pending(Protocol):
    """Ranges of objects that are on their way."""

    def result(self) -> Sequence[Buffer]:
        """Return the ranges in the order of the requests, when all are there; called once."""

    def cancel(self) -> object:
        """Cancel the reading; the result must not be requested any more."""


@runtime_checkable
class Store(Protocol):
    """One place in an object store.

    Many threads may call all methods at once. They raise an
    :class:`~hepcache.errors.ObjectStoreError`: ``ObjectMissingError`` if
    an object or its bucket does not exist, ``ObjectDamagedError`` if an
    object ends before a range does, ``ObjectAccessError`` if credentials are
    refused. Transient failures are retried, with growing pauses, before
    an error is raised.

    A store is one place inside a service: a prefix in a bucket, a pool or a
    directory. A name is relative to the URI: ``"12"`` is the object ``URI/12``,
    ``""`` the one at the URI itself, and ``".pages/12"``, with a dot first, is
    beside the URI: ``URI.pages/12``. S3 gateways that keep objects as files
    (versitygw, for one) can't hold both an object ``URI`` and objects below it,
    but can hold this.

    Attributes
    ----------
    uri
        The store's address without its options; it contains no secrets.
    limit
        Bytes of the largest object that it can store.
    """

    uri: str
    limit: int

    def put(self, name: str, data: Buffer) -> None:
        """Store a whole object, and replace one with the same name."""

    def put_anchor(self, name: str, data: Buffer) -> None:
        """Store a small object durably and atomically: a reader sees all of it or nothing.

        Objects that were put before are stored when this returns.
        """
        self.put(name, data)

    def put_anchor_if(self, name: str, data: Buffer, expected: bytes | None) -> bool:
        """Store an object as :meth:`put_anchor` does, if it still has the bytes expected.

        ``None`` stands for no object. If several callers, in any processes, expect the same bytes,
        one call returns True; the others change nothing. A store that can't do this in one step
        compares first.
        """
        if self.content(name) != expected:
            return False
        self.put_anchor(name, data)
        return True

    def content(self, name: str) -> bytes | None:
        """Return a whole object, or ``None`` if it is missing."""
        try:
            return self.get(name)
        except ObjectMissingError:
            return None

    def get(self, name: str) -> bytes:
        """Return a whole object."""

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object, each of exactly the requested length."""
        ranges = zip(starts, lengths, strict=True)
        return list(
            self.begin([Request(name, start, length) for start, length in ranges]).result()
        )

    def begin(
        self, requests: Sequence[Request], buffer: NDArray[np.uint8] | None = None, /
    ) -> Pending:
        """Begin to read ranges of many objects, without waiting for them.

        A bounded number of them is read at a time; the first failure ends the
        others. The store may put them in ``buffer``, shape ``(n_bytes,)``, which is at
        least as large as all of them. The thread that decodes the bytes also waits for
        them, so no other thread has to be woken in between.
        """

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects, in no order.

        ``""`` lists all objects at the URI or below it; ``"cluster/"`` those
        below that name, ``".pages/"`` those beside the URI.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; names without an object are ignored."""

    def close(self) -> None:
        """Close connections and handles; afterwards the store can't be used."""
        return


def join_name(base: str, name: str) -> str:
    """Return an object's key in its service.

    Parameters
    ----------
    base
        The key of the store's URI.
    name
        The object's name in the store.

    Raises
    ------
    ConfigurationError
        The name is absolute, has empty parts, or would leave its place.

    Examples
    --------
    >>> join_name("run3/zee", "12"), join_name("run3/zee", ".pages/12"), join_name("run3/zee", "")
    ('run3/zee/12', 'run3/zee.pages/12', 'run3/zee')
    """
    # A name may come from an anchor that somebody else wrote.
    parts = name.split("/")
    if (name and not all(part and part.strip(".") for part in parts)) or "\0" in name:
        raise ConfigurationError("object name", "parts between single slashes, none of dots", name)
    if not name or name.startswith(".") or not base:
        return base + name
    return f"{base}/{name}"


def check_prefix(prefix: str) -> None:
    """Raise ConfigurationError if a listing's prefix neither is empty nor ends with a slash."""
    if prefix:
        join_name("", prefix.removesuffix("/"))
        if not prefix.endswith("/") or prefix == "/":
            raise ConfigurationError("prefix of object names", "'' or one that ends in /", prefix)


def listed_name(base: str, key: str, prefix: str) -> str | None:
    """Return the name of the object at a key, if it belongs to the listing of ``prefix``.

    >>> listed_name("run3/zee", "run3/zee/12", ""), listed_name("run3/zee", "run3/zeta", "")
    ('12', None)
    """
    if not prefix and key == base:
        return ""
    root = base if prefix.startswith(".") else f"{base}/"
    return key.removeprefix(root) if key.startswith(root + prefix) else None


def check_whole(uri: str, request: Request, nbytes: int) -> None:
    """Raise ObjectDamagedError if not all bytes of a range came because the object ends."""
    name, start, length = request
    if nbytes != length:
        problem = f"it ends at byte {start + nbytes}, before byte {start + length}"
        raise ObjectDamagedError(uri, name, problem)
