"""Objects in a pool of Ceph's RADOS."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_uint64, c_void_p
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

import numpy as np

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.objectstore.librados import Completion, Reads, library
from hepcache.objectstore.store import Request, check_prefix, join_name

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

__all__ = ["RadosStore", "open_uri"]

_CONCURRENCY = 64


class RadosStore:
    """Objects of a pool, read asynchronously through librados.

    librados itself sends a request again when an OSD comes back or another
    takes over; what is raised is what stayed without an answer for
    ``timeout_seconds``. How often an object is replicated, or how it is
    erasure-coded, is the pool's.

    Parameters
    ----------
    uri
        ``rados://pool/path``.
    pool, base
        The pool, and the key of the URI in it.
    conf, user, cluster
        Ceph's configuration file (``None`` for its defaults) and client name.
    namespace
        RADOS namespace of all objects.
    locator_parts
        Objects whose names have this many first parts in common are kept
        together, by a common locator key: RADOS's distribution key. 0 spreads
        each by its own name. Who reads must say the same number.
    limit
        Bytes of the largest object; OSDs refuse more than osd_max_write_size.
    timeout_seconds
        How long to wait for monitors and OSDs.
    concurrency
        Requests that one vector read has under way at most.
    """

    def __init__(
        self,
        uri: str,
        pool: str,
        base: str,
        conf: str | None,
        user: str,
        namespace: str,
        locator_parts: int,
        limit: int,
        timeout_seconds: float,
        concurrency: int,
    ) -> None:
        self.uri, self.limit = uri, limit
        self._pool, self._base, self._namespace = pool, base, namespace
        self._parts, self._concurrency = locator_parts, concurrency
        self._rados = library()
        self._cluster = c_void_p()
        name = f"client.{user}".encode()
        self._ask("", self._rados.rados_create2(byref(self._cluster), b"ceph", name, 0))
        self._end = weakref.finalize(self, self._rados.rados_shutdown, self._cluster)
        path = os.fsencode(conf) if conf else None
        if (value := self._rados.rados_conf_read_file(self._cluster, path)) < 0:
            problem = "no ceph.conf can be read; name one with ?conf=/path or CEPH_CONF"
            raise ObjectStoreError(uri, "", f"{problem} ({os.strerror(-value)})")
        seconds = str(math.ceil(timeout_seconds)).encode()
        for option in (b"rados_osd_op_timeout", b"rados_mon_op_timeout", b"client_mount_timeout"):
            self._ask("", self._rados.rados_conf_set(self._cluster, option, seconds))
        self._ask("", self._rados.rados_connect(self._cluster))
        self._io = self._context("")
        self._end_io = weakref.finalize(self, self._rados.rados_ioctx_destroy, self._io)

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole: RADOS replaces it at once, on all replicas."""
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        if flat.nbytes > self.limit:
            problem = f"{flat.nbytes} bytes are more than an object may have ({self.limit})"
            raise ObjectStoreError(self.uri, name, problem)
        with self._place(name) as (io, key):
            self._ask(name, self._rados.rados_write_full(io, key, flat.ctypes.data, flat.nbytes))

    put_anchor = put

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        size = c_uint64()
        with self._place(name) as (io, key):
            # A read that asks for more than there is would be slow.
            self._ask(name, self._rados.rados_stat(io, key, byref(size), None))
            data = np.empty(size.value, np.uint8)
            got = self._rados.rados_read(io, key, data.ctypes.data, data.nbytes, 0)
        self._check(Request(name, 0, data.nbytes), got)
        return data.tobytes()

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object."""
        pairs = zip(starts, lengths, strict=True)
        return self.begin([Request(name, start, length) for start, length in pairs]).result()

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects."""
        return await asyncio.to_thread(lambda: self.begin(requests).result())

    def begin(self, requests: Sequence[Request], room: NDArray[np.uint8] | None = None) -> Reads:
        """Ask for ranges of many objects, and return what waits for them."""
        if room is None:
            room = np.empty(sum(request.length for request in requests), np.uint8)
        return Reads(requests, room, self._launch, self._check, self._rados, self._concurrency)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects; RADOS looks through the whole namespace for them."""
        check_prefix(prefix)
        beside = prefix.startswith(".")
        root = self._base if beside else f"{self._base}/"
        for key, locator in self._keys():
            if not prefix and key == self._base:
                name = ""
            elif key.startswith(root + prefix):
                name = key.removeprefix(root)
            else:
                continue
            if locator == self._locator(name) and (size := self._size(name)) is not None:
                yield name, size

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for name in names:
            with self._place(name) as (io, key):
                value = self._rados.rados_remove(io, key)
            if value != -errno.ENOENT:
                self._ask(name, value)

    def close(self) -> None:
        """Leave the cluster."""
        self._end_io()
        self._end()

    def _context(self, locator: str) -> c_void_p:
        io = c_void_p()
        value = self._rados.rados_ioctx_create(self._cluster, self._pool.encode(), byref(io))
        if value == -errno.ENOENT:
            problem = f"there is no pool {self._pool!r}; see 'ceph osd pool ls'"
            raise ObjectMissingError(self.uri, "", problem)
        self._ask("", value)
        self._rados.rados_ioctx_set_namespace(io, self._namespace.encode())
        if locator:
            self._rados.rados_ioctx_locator_set_key(io, locator.encode())
        return io

    def _launch(
        self, request: Request, into: NDArray[np.uint8], contexts: dict[str, c_void_p]
    ) -> Completion:
        key, locator = join_name(self._base, request.name).encode(), self._locator(request.name)
        if locator and locator not in contexts:
            contexts[locator] = self._context(locator)
        return Completion(contexts.get(locator, self._io), key, into, request.start)

    def _locator(self, name: str) -> str:
        """Return the locator key of an object, ``""`` for its own name."""
        first = name.split("/")[: self._parts] if name else []
        # An object that is alone under its key is placed by its name all the same.
        return join_name(self._base, "/".join(first)) if first and "/".join(first) != name else ""

    @contextmanager
    def _place(self, name: str) -> Iterator[tuple[c_void_p, bytes]]:
        key, locator = join_name(self._base, name).encode(), self._locator(name)
        if not locator:
            yield self._io, key
            return
        io = self._context(locator)
        try:
            yield io, key
        finally:
            self._rados.rados_ioctx_destroy(io)

    def _check(self, request: Request, value: int) -> None:
        name, start, length = request
        self._ask(name, value)
        if value != length:
            problem = f"it ends at byte {start + value}, before byte {start + length}"
            raise ObjectDamagedError(self.uri, name, problem)

    def _keys(self) -> Iterator[tuple[str, str]]:
        listing, entry, locator = c_void_p(), c_char_p(), c_char_p()
        self._ask("", self._rados.rados_nobjects_list_open(self._io, byref(listing)))
        try:
            while True:
                value = self._rados.rados_nobjects_list_next(
                    listing, byref(entry), byref(locator), None
                )
                if value == -errno.ENOENT:
                    return
                self._ask("", value)
                yield (
                    (entry.value or b"").decode(errors="replace"),
                    (locator.value or b"").decode(),
                )
        finally:
            self._rados.rados_nobjects_list_close(listing)

    def _size(self, name: str) -> int | None:
        size = c_uint64()
        with self._place(name) as (io, key):
            value = self._rados.rados_stat(io, key, byref(size), None)
        if value == -errno.ENOENT:
            return None
        self._ask(name, value)
        return size.value

    def _ask(self, name: str, value: int) -> None:
        """Raise what a negative answer means."""
        if value >= 0:
            return
        words = os.strerror(-value)
        if value == -errno.ENOENT:
            raise ObjectMissingError(self.uri, name, "there is no such object")
        if value in (-errno.EACCES, -errno.EPERM):
            hint = "see 'ceph auth get' and name another with ?user="
            raise ObjectAccessError(self.uri, name, f"this client may not do that; {hint}")
        if value in (-errno.ETIMEDOUT, -errno.ENOTCONN):
            problem = f"monitors or OSDs do not answer; see 'ceph -s' ({words})"
            raise ObjectStoreError(self.uri, name, problem)
        raise ObjectStoreError(self.uri, name, words)


def open_uri(
    uri: str,
    parts: SplitResult,
    conf: str | None = None,
    user: str = "admin",
    namespace: str = "",
    locator: int | str = 0,
    limit: int | str = 64 << 20,
    timeout_seconds: float | str = 60,
    concurrency: int | str = _CONCURRENCY,
) -> RadosStore:
    """Open ``rados://pool/path``; see :class:`RadosStore` for the options.

    Raises
    ------
    ConfigurationError
        The URI lacks a pool or a path.
    ObjectMissingError
        There is no such pool.
    """
    base = unquote(parts.path).strip("/")
    if not parts.netloc or not base:
        raise ConfigurationError("URI", "rados://, a pool and a path in it", uri)
    conf = conf or os.environ.get("CEPH_CONF")
    return RadosStore(
        uri, parts.netloc, base, conf, user, namespace, int(locator), int(limit),
        float(timeout_seconds), int(concurrency),
    )  # fmt: skip
