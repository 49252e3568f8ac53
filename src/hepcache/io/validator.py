"""Is a file still what it was? Asked by stat or HEAD, without opening it."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import fsspec

from hepcache.credentials import told_cause, without_credentials
from hepcache.errors import BadFileError
from hepcache.io.retry import error_text, retried
from hepcache.io.transport import (
    filesystem_options,
    is_url,
    is_xrootd,
    location,
    path_problem,
    require_listening,
)

# File servers keep times in steps of up to two seconds, so a file written in
# the same step as it was looked at could change again without showing it.
_STEP_NS = 2_000_000_000
# Options that uproot.open keeps for itself; it hands all others on to fsspec.
_OWN_OPTIONS = frozenset(
    {
        "array_cache",
        "begin_chunk_size",
        "custom_classes",
        "decompression_executor",
        "handler",
        "http_max_header_bytes",
        "interpretation_executor",
        "max_num_elements",
        "minimal_ttree_metadata",
        "num_fallback_workers",
        "num_workers",
        "object_cache",
        "timeout",
        "use_threads",
    }
)
_CHANGES = (
    "ETag",
    "etag",
    "Content-MD5",
    "mtime",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "updated",
    "modified",
)


@dataclass(frozen=True, slots=True)
class Freshness:
    """What a file's server says of it now.

    ``size``: size in bytes.
    ``validator``: changes whenever the file is written.
    ``settled``: whether an equal validator later proves that nothing has changed. It does not for
    a file written a moment ago, nor where the server tells nothing but the size.
    """

    size: int
    validator: str
    settled: bool


def freshness_of(
    path: str, options: Mapping[str, Any] | None = None, *, patience_s: float = math.inf
) -> Freshness:
    """Ask for a file's size and time of change.

    ``patience_s``: seconds of failures after which a server is not asked again.
    """
    check_path(path)
    return _look_remote(path, options or {}, patience_s) if is_url(path) else _look_local(path)


def check_path(path: str) -> None:
    """Refuse a path or URL that can't name anything."""
    problem = path_problem(path)
    if problem:
        kind = OSError if path.strip() else FileNotFoundError
        raise BadFileError({without_credentials(path) or "''": problem}, kind)


def storage_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``uproot.open``'s options that it hands on to fsspec.

    Those in ``storage_options`` are meant for it too, as other libraries have them.
    """
    nested: Mapping[str, Any] = options.get("storage_options") or {}
    own = {*_OWN_OPTIONS, "storage_options"}
    return {**{key: value for key, value in options.items() if key not in own}, **nested}


def _look_local(path: str) -> Freshness:
    place = Path(location(path))
    try:
        # Opened, because an NFS client asks its server anew only then; stat
        # alone may answer from a memory a minute old. A pipe must not block.
        file = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BadFileError({path: _missing(place)}, FileNotFoundError) from None
    except OSError as error:
        raise BadFileError({path: f"{error.strerror or error}"}, type(error)) from error
    try:
        found = os.fstat(file)
    finally:
        os.close(file)
    if not stat.S_ISREG(found.st_mode):
        directory = stat.S_ISDIR(found.st_mode)
        what = "a directory" if directory else "not a regular file"
        kind = IsADirectoryError if directory else OSError
        raise BadFileError({path: f"{what}; a ROOT file was expected"}, kind)
    settled = not _recent(found.st_mtime_ns)
    return Freshness(found.st_size, f"{found.st_size}-{found.st_mtime_ns}", settled)


def _recent(time_ns: int) -> bool:
    return abs(time.time_ns() - time_ns) <= _STEP_NS


def _missing(place: Path) -> str:
    parent = place.parent
    while not parent.exists():
        parent = parent.parent
    if parent == place.parent:
        return "no such file, though its directory exists"
    return f"no such file: there is nothing below {parent}; is the volume mounted?"


def _look_remote(path: str, options: Mapping[str, Any], patience_s: float) -> Freshness:
    public = without_credentials(path)

    def ask() -> Any:
        if is_xrootd(path):
            require_listening(path)
        filesystem, inner = fsspec.core.url_to_fs(path, **filesystem_options(path, options))
        filesystem.invalidate_cache(inner)
        return filesystem.info(inner)

    try:
        info = retried(ask, patience_s=patience_s)
    except ImportError as error:
        reason = f"{error}; say: pip install 'hepcache[remote]'"
        raise BadFileError({public: reason}, ImportError) from told_cause(error)
    except FileNotFoundError as error:
        raise BadFileError({public: _remote_reason(error)}, type(error)) from told_cause(error)
    except Exception as error:  # each protocol has its own tree of errors
        raise BadFileError({public: error_text(error)}, _kind(error)) from told_cause(error)
    size = info.get("size")
    if info.get("type", "file") != "file" or size is None:
        raise BadFileError({public: "the server gives no size; is it a file?"})
    marks = [f"{info[key]}" for key in _CHANGES if info.get(key) is not None]
    settled = bool(marks) and not any(map(_just_now, marks))
    return Freshness(int(size), "-".join([f"{size}", *marks]), settled)


def _just_now(mark: str) -> bool:
    """Return whether a mark is a date of HTTP, which counts seconds, and that of this moment."""
    try:
        return _recent(int(parsedate_to_datetime(mark).timestamp() * 1e9))
    except (ValueError, OverflowError, TypeError, IndexError):
        return False


def _kind(error: Exception) -> type[Exception]:
    # Whatever a protocol's library calls it, the server failed to give what it was asked for.
    return type(error) if isinstance(error, OSError) else OSError


def _remote_reason(error: FileNotFoundError) -> str:
    # fsspec says "not found" of every failure and keeps the reason as the cause.
    cause = error.__cause__
    if cause is None or getattr(cause, "status", None) == 404:
        return "no such file on the server"
    return error_text(cause)
