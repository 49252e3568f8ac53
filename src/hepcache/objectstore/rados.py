"""Objects in a pool of Ceph's RADOS, through librados."""

from __future__ import annotations

import ctypes
import errno
import itertools
import math
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from ctypes.util import find_library
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.io.retry import pause_s
from hepcache.objectstore.store import (
    Request,
    Store,
    check_prefix,
    check_whole,
    join_name,
    listed_name,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CALLS: dict[str, list[Any]] = {
    "rados_create2": [POINTER(c_void_p), c_char_p, c_char_p, c_uint64],
    "rados_conf_read_file": [c_void_p, c_char_p],
    "rados_conf_set": [c_void_p, c_char_p, c_char_p],
    "rados_connect": [c_void_p],
    "rados_ioctx_create": [c_void_p, c_char_p, POINTER(c_void_p)],
    "rados_write_full": [c_void_p, c_char_p, c_void_p, c_size_t],
    "rados_read": [c_void_p, c_char_p, c_void_p, c_size_t, c_uint64],
    "rados_stat": [c_void_p, c_char_p, POINTER(c_uint64), c_void_p],
    "rados_remove": [c_void_p, c_char_p],
    "rados_write_op_operate": [c_void_p, c_void_p, c_char_p, c_void_p, c_int],
    "rados_aio_create_completion2": [c_void_p, c_void_p, POINTER(c_void_p)],
    "rados_aio_read": [c_void_p, c_char_p, c_void_p, c_void_p, c_size_t, c_uint64],
    "rados_aio_wait_for_complete": [c_void_p],
    "rados_aio_get_return_value": [c_void_p],
    "rados_nobjects_list_open": [c_void_p, POINTER(c_void_p)],
    "rados_nobjects_list_next": [
        c_void_p,
        POINTER(c_char_p),
        POINTER(c_char_p),
        POINTER(c_char_p),
    ],
}

_EXCLUSIVE = 1  # LIBRADOS_CREATE_EXCLUSIVE

_VOID: dict[str, list[Any]] = {
    "rados_release_write_op": [c_void_p],
    "rados_write_op_create": [c_void_p, c_int, c_char_p],
    "rados_write_op_assert_version": [c_void_p, c_uint64],
    "rados_write_op_write_full": [c_void_p, c_void_p, c_size_t],
    "rados_shutdown": [c_void_p],
    "rados_ioctx_destroy": [c_void_p],
    "rados_ioctx_set_namespace": [c_void_p, c_char_p],
    "rados_ioctx_locator_set_key": [c_void_p, c_char_p],
    "rados_aio_release": [c_void_p],
    "rados_nobjects_list_close": [c_void_p],
}


@cache
def _library() -> ctypes.CDLL:
    """Load librados; raise ImportError if it is not installed."""
    try:
        found = ctypes.CDLL(find_library("rados") or "librados.so.2")
    except OSError as error:
        raise ImportError(
            "objects in RADOS need librados: install librados2 (Debian, Fedora, conda-forge)"
        ) from error
    for name, arguments in _CALLS.items():
        call = getattr(found, name)
        call.argtypes, call.restype = arguments, c_int
    found.rados_create_write_op.argtypes = []
    found.rados_create_write_op.restype = c_void_p
    found.rados_get_last_version.argtypes = [c_void_p]
    found.rados_get_last_version.restype = c_uint64
    for name, arguments in _VOID.items():
        call = getattr(found, name)
        call.argtypes, call.restype = arguments, None
    return found


_PASSING = (-errno.EAGAIN, -errno.EBUSY, -errno.EINTR)


def passing_retried(call: Callable[[], int], timeout_s: float) -> int:
    """Return an answer of librados; one that passes by itself is asked for again for a while."""
    end = time.monotonic() + timeout_s
    for attempt in itertools.count():
        value = call()
        pause = pause_s(attempt)
        if value not in _PASSING or time.monotonic() + pause > end:
            return value
        time.sleep(pause)
    raise AssertionError


class _PendingRead:
    """One asynchronous read of as many bytes as ``target`` takes."""

    def __init__(self, io: c_void_p, key: bytes, target: NDArray[np.uint8], start: int) -> None:
        rados = _library()
        self._handle = c_void_p()
        # librados writes into it until the read has ended.
        self._target = target
        rados.rados_aio_create_completion2(None, None, byref(self._handle))
        address = target.ctypes.data
        self._failed = rados.rados_aio_read(io, key, self._handle, address, target.nbytes, start)

    def wait(self) -> int:
        """Return the bytes that came, or a negative error number; once."""
        rados, value = _library(), self._failed
        if value >= 0:
            rados.rados_aio_wait_for_complete(self._handle)
            value = rados.rados_aio_get_return_value(self._handle)
        rados.rados_aio_release(self._handle)
        return int(value)


class _VectorRead:
    """Ranges that librados reads into ``buffer``, a bounded number at a time.

    ``launch`` begins with one, in the I/O context of its locator key; ``check``
    raises what an answer means.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        buffer: NDArray[np.uint8],
        launch: Callable[[Request, NDArray[np.uint8], dict[str, c_void_p]], _PendingRead],
        check: Callable[[Request, int], None],
        concurrency: int,
        timeout_s: float,
    ) -> None:
        self._timeout_s = timeout_s
        self._launch = launch
        self._check = check
        self._contexts: dict[str, c_void_p] = {}
        self._under_way: deque[tuple[Request, NDArray[np.uint8], _PendingRead]] = deque()
        self._found: list[NDArray[np.uint8]] = []
        self._left = iter(requests)
        self._buffer = buffer
        self._rados = _library()
        try:
            for _ in range(concurrency):
                self._next()
        except BaseException:
            self.cancel()
            raise

    def result(self) -> list[Buffer]:
        """Return the ranges when all are there."""
        try:
            while self._under_way:
                request, target, read = self._under_way.popleft()
                value = read.wait()
                if value in _PASSING:
                    value = passing_retried(partial(self._once, request, target), self._timeout_s)
                self._check(request, value)
                self._next()
        finally:
            self.cancel()
        return [values.data for values in self._found]

    def cancel(self) -> None:
        """Wait for what is under way: librados still writes into its memory."""
        while self._under_way:
            self._under_way.popleft()[2].wait()
        while self._contexts:
            self._rados.rados_ioctx_destroy(self._contexts.popitem()[1])

    __del__ = cancel

    def _next(self) -> None:
        for request in self._left:
            target = self._buffer[: request.length]
            self._buffer = self._buffer[request.length :]
            self._found.append(target)
            if request.length:
                read = self._launch(request, target, self._contexts)
                self._under_way.append((request, target, read))
                return

    def _once(self, request: Request, target: NDArray[np.uint8]) -> int:
        return self._launch(request, target, self._contexts).wait()


def _conditional_write(
    io: c_void_p, key: bytes, data: NDArray[np.uint8], version: int | None
) -> int:
    """Write an object of a version, or a new one; return librados's answer."""
    rados = _library()
    operation = c_void_p(rados.rados_create_write_op())
    try:
        if version is None:
            rados.rados_write_op_create(operation, _EXCLUSIVE, None)
        else:
            rados.rados_write_op_assert_version(operation, version)
        rados.rados_write_op_write_full(operation, data.ctypes.data, data.nbytes)
        return int(rados.rados_write_op_operate(operation, io, key, None, 0))
    finally:
        rados.rados_release_write_op(operation)


class RadosStore(Store):
    """Objects of a pool, read asynchronously through librados.

    librados itself repeats a request if an OSD comes back or another takes over. If an OSD
    can't answer at the moment, hepcache repeats the request, and raises the error after
    ``timeout_seconds``. The pool defines the replication or erasure coding of objects.

    Parameters
    ----------
    uri, parts
        ``rados://pool/path``, plain and in its parts.
    conf, user
        Ceph's configuration file (``CEPH_CONF``, or Ceph's defaults) and client name.
    locator
        Objects whose names have this many first parts in common are stored
        together, by a common locator key: RADOS's distribution key. 0 distributes
        each by its own name. Readers must give the same number.
    concurrency
        Requests that one vector read has under way at most.

    Raises
    ------
    ConfigurationError
        The URI lacks a pool or a path.
    ObjectMissingError
        The pool does not exist.
    """

    def __init__(
        self,
        uri: str,
        parts: SplitResult,
        conf: str | None = None,
        user: str = "admin",
        namespace: str = "",
        locator: int | str = 0,
        limit: int | str = 64 << 20,
        timeout_seconds: float | str = 60,
        concurrency: int | str = 64,
    ) -> None:
        self.uri = uri
        self.limit = int(limit)
        self._pool = parts.netloc
        self._base = unquote(parts.path).strip("/")
        if not self._pool or not self._base:
            raise ConfigurationError("URI", "rados://, a pool and a path in it", uri)
        self._namespace = namespace
        self._locator_parts = int(locator)
        self._concurrency = int(concurrency)
        self._timeout_s = float(timeout_seconds)
        self._rados = _library()
        self._cluster = c_void_p()
        name = f"client.{user}".encode()
        self._raise_for("", self._rados.rados_create2(byref(self._cluster), b"ceph", name, 0))
        self._end = weakref.finalize(self, self._rados.rados_shutdown, self._cluster)
        conf = conf or os.environ.get("CEPH_CONF")
        path = os.fsencode(conf) if conf else None
        if (value := self._rados.rados_conf_read_file(self._cluster, path)) < 0:
            problem = "no ceph.conf can be read; name one with ?conf=/path or CEPH_CONF"
            raise ObjectStoreError(uri, "", f"{problem} ({os.strerror(-value)})")
        seconds = str(math.ceil(float(timeout_seconds))).encode()
        for option in (b"rados_osd_op_timeout", b"rados_mon_op_timeout", b"client_mount_timeout"):
            self._raise_for("", self._rados.rados_conf_set(self._cluster, option, seconds))
        self._raise_for("", self._rados.rados_connect(self._cluster))
        self._io = self._context("")
        self._end_io = weakref.finalize(self, self._rados.rados_ioctx_destroy, self._io)

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole: RADOS replaces it at once, on all replicas."""
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        self._check_limit(name, flat.nbytes)
        with self._place(name) as (io, key):
            self._raise_for(
                name,
                self._again(self._rados.rados_write_full, io, key, flat.ctypes.data, flat.nbytes),
            )

    def put_anchor_if(self, name: str, data: Buffer, expected: bytes | None) -> bool:
        """Store an object if it still has the bytes expected.

        The write names the version that was read, and RADOS refuses it for any other.
        """
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        self._check_limit(name, flat.nbytes)
        key = join_name(self._base, name).encode()
        # A context of its own, since the version is that of its last answer.
        io = self._context(self._locator(name))
        rados = self._rados
        try:
            found = self._content(io, name, key)
            if found != expected:
                return False
            version = None if found is None else rados.rados_get_last_version(io)
            value = self._again(_conditional_write, io, key, flat, version)
            if value in (-errno.EEXIST, -errno.ERANGE, -errno.EOVERFLOW, -errno.ENOENT):
                return False
            self._raise_for(name, value)
            return True
        finally:
            rados.rados_ioctx_destroy(io)

    def _content(self, io: c_void_p, name: str, key: bytes) -> bytes | None:
        """Return an object whole by one read, so that its version is that of the read."""
        size = c_uint64()
        value = self._again(self._rados.rados_stat, io, key, byref(size), None)
        while value >= 0:
            # One more byte than there was tells that it has not grown.
            buffer = np.empty(size.value + 1, np.uint8)
            address = buffer.ctypes.data
            value = self._again(self._rados.rados_read, io, key, address, buffer.nbytes, 0)
            if 0 <= value < buffer.nbytes:
                return buffer[:value].tobytes()
            size.value = 2 * buffer.nbytes
        if value == -errno.ENOENT:
            return None
        self._raise_for(name, value)
        return None

    def _check_limit(self, name: str, nbytes: int) -> None:
        if nbytes > self.limit:
            problem = f"{nbytes} bytes are more than an object may have ({self.limit})"
            raise ObjectStoreError(self.uri, name, problem)

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        # A read that asks for more than there is would be slow.
        size = self._size(name)
        if size is None:
            raise ObjectMissingError(self.uri, name, "there is no such object")
        return bytes(self.begin([Request(name, 0, size)]).result()[0])

    def begin(
        self, requests: Sequence[Request], buffer: NDArray[np.uint8] | None = None
    ) -> _VectorRead:
        """Ask for ranges of many objects, and return what waits for them."""
        if buffer is None:
            buffer = np.empty(sum(request.length for request in requests), np.uint8)
        return _VectorRead(
            requests, buffer, self._launch, self._check, self._concurrency, self._timeout_s
        )

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects; RADOS looks through the whole namespace for them."""
        check_prefix(prefix)
        for key, locator in self._keys():
            name = listed_name(self._base, key, prefix)
            if name is None or locator != self._locator(name):
                continue
            size = self._size(name)
            if size is not None:
                yield name, size

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for name in names:
            with self._place(name) as (io, key):
                value = self._again(self._rados.rados_remove, io, key)
            if value != -errno.ENOENT:
                self._raise_for(name, value)

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
        self._raise_for("", value)
        self._rados.rados_ioctx_set_namespace(io, self._namespace.encode())
        if locator:
            self._rados.rados_ioctx_locator_set_key(io, locator.encode())
        return io

    def _launch(
        self, request: Request, target: NDArray[np.uint8], contexts: dict[str, c_void_p]
    ) -> _PendingRead:
        key = join_name(self._base, request.name).encode()
        locator = self._locator(request.name)
        if locator and locator not in contexts:
            contexts[locator] = self._context(locator)
        return _PendingRead(contexts.get(locator, self._io), key, target, request.start)

    def _locator(self, name: str) -> str:
        """Return the locator key of an object, ``""`` for its own name."""
        first = "/".join(name.split("/")[: self._locator_parts])
        # An object that is alone under its key is placed by its name all the same.
        return join_name(self._base, first) if first and first != name else ""

    @contextmanager
    def _place(self, name: str) -> Iterator[tuple[c_void_p, bytes]]:
        key = join_name(self._base, name).encode()
        locator = self._locator(name)
        if not locator:
            yield self._io, key
            return
        io = self._context(locator)
        try:
            yield io, key
        finally:
            self._rados.rados_ioctx_destroy(io)

    def _check(self, request: Request, value: int) -> None:
        self._raise_for(request.name, value)
        check_whole(self.uri, request, value)

    def _keys(self) -> Iterator[tuple[str, str]]:
        listing, entry, locator = c_void_p(), c_char_p(), c_char_p()
        self._raise_for("", self._rados.rados_nobjects_list_open(self._io, byref(listing)))
        try:
            while True:
                value = self._again(
                    self._rados.rados_nobjects_list_next,
                    listing,
                    byref(entry),
                    byref(locator),
                    None,
                )
                if value == -errno.ENOENT:
                    return
                self._raise_for("", value)
                yield (
                    (entry.value or b"").decode(errors="replace"),
                    (locator.value or b"").decode(),
                )
        finally:
            self._rados.rados_nobjects_list_close(listing)

    def _size(self, name: str) -> int | None:
        size = c_uint64()
        with self._place(name) as (io, key):
            value = self._again(self._rados.rados_stat, io, key, byref(size), None)
        if value == -errno.ENOENT:
            return None
        self._raise_for(name, value)
        return size.value

    def _again(self, call: Callable[..., int], *arguments: Any) -> int:
        return passing_retried(partial(call, *arguments), self._timeout_s)

    def _raise_for(self, name: str, value: int) -> None:
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
