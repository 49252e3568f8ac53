"""Which errors of an origin pass by themselves, and how they read in a message.

Every library has a tree of errors of its own: aiohttp's for http, botocore's
for s3, and plain text from XRootD. What a busy server or a flapping network
answers is asked again; anything else is final.
"""

from __future__ import annotations

import errno
import math
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from hepcache.credentials import without_credentials

_T = TypeVar("_T")

RETRIES = 6
"""How often an attempt is made again; the waits double from 0.1 s: about 6 s in all."""

_ERRNOS = frozenset(
    {
        errno.EIO,
        errno.EAGAIN,
        errno.EINTR,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EBUSY,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.EREMOTEIO,
        errno.EPIPE,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETRESET,
        errno.ENOTCONN,
    }
)
_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 509})
# Names in the trees of aiohttp and botocore, which need not be installed.
_NAMES = frozenset(
    {
        "ServerDisconnectedError",
        "ClientOSError",
        "ClientConnectorError",
        "ClientPayloadError",
        "ClientConnectionError",
        "ServerTimeoutError",
        "ConnectionClosedError",
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "HTTPClientError",
        "ResponseStreamingError",
        "IncompleteReadError",
        "SlowDown",
        "FSTimeoutError",
    }
)
# What comes of a wrong certificate or address does not pass.
_FINAL_NAMES = frozenset(
    {
        "ClientConnectorCertificateError",
        "ClientConnectorSSLError",
        "ClientSSLError",
        "ClientConnectorDNSError",
        "InvalidURL",
        "SSLError",
    }
)
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
# kXR_IOError, kXR_NoMemory, kXR_ServerError, kXR_NoSpace, kXR_inProgress,
# kXR_noserver, kXR_Overloaded and kXR_TimerExpired; see XProtocol.hh.
_XROOTD_CODES = frozenset({3007, 3008, 3012, 3009, 3020, 3023, 3024, 3035})
_XROOTD_CODE = re.compile(r"Server responded with an error: \[(\d+)\]")
_XROOTD = re.compile(r"\[(?:ERROR|FATAL)\]")
_XROOTD_FINAL = re.compile(r"(?i)Auth failed|Invalid (?:argument|address|redirect)|Unknown error")


def is_transient(error: BaseException) -> bool:
    """Tell whether to ask again.

    >>> is_transient(OSError(errno.ESTALE, "Stale file handle"))
    True
    >>> is_transient(FileNotFoundError("a.root"))
    False
    """
    for cause in causes(error):
        found = _judge(cause)
        if found is not None:
            return found
    return False


def error_text(error: BaseException) -> str:
    """Return an error's own words on one line, without credentials."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return without_credentials(f"{kind}: {text}" if text else kind)


def builtin_of(error: Exception) -> type[Exception]:
    """Return the builtin that an exception is an instance of, the nearest one."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what caused it, what caused that, and so on."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _judge(error: BaseException) -> bool | None:
    """Return what one error of a chain tells; ``None`` for nothing."""
    status = _status(error)
    if status is not None:
        return status in _STATUSES
    kind = type(error).__name__
    if isinstance(error, _FINAL) or kind in _FINAL_NAMES:
        # fsspec says "not found" of every failure and keeps the reason as the cause.
        return None if isinstance(error, FileNotFoundError) and error.__cause__ else False
    if isinstance(error, TimeoutError) or kind in _NAMES:
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _ERRNOS
    return _judge_xrootd(str(error))


def _judge_xrootd(text: str) -> bool | None:
    code = _XROOTD_CODE.search(text)
    if code is not None:
        return int(code[1]) in _XROOTD_CODES
    if _XROOTD.search(text):
        return _XROOTD_FINAL.search(text) is None
    return None


def _status(error: BaseException) -> int | None:
    """Return the status of HTTP that an error of aiohttp or botocore carries."""
    status = getattr(error, "status", None)
    if isinstance(status, int) and status >= 100:
        return status
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        code = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return code if isinstance(code, int) else None
    return None


def retried(
    attempt: Callable[[], _T],
    renew: Callable[[], None] = lambda: None,
    patience_s: float = math.inf,
) -> _T:
    """Return what an attempt returns, trying again after errors that may pass.

    ``patience_s``: seconds after which no attempt is made any more.
    """
    began = time.monotonic()
    for tried in range(RETRIES):
        try:
            return attempt()
        except Exception as error:
            if not is_transient(error) or time.monotonic() - began > patience_s:
                raise
        time.sleep(pause_s(tried))
        renew()
    return attempt()


def pause_s(tried: int) -> float:
    """Return how long to wait after so many attempts; different for all who wait."""
    spread: float = random.uniform(0.75, 1.25)  # noqa: S311 - no secret
    return min(0.1 * 2.0**tried, 5.0) * spread
