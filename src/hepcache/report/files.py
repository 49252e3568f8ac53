"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hepcache.errors import RecordError

__all__ = ["read_json", "write_atomically", "write_json"]


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file so that readers see the old content or the new, never a part.

    Parameters
    ----------
    path
        The file; missing directories are made.
    data
        Its content.

    Returns
    -------
    pathlib.Path
        The path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp is private; a report is as readable as any file its user makes.
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def write_json(path: str | os.PathLike[str], value: object) -> Path:
    """Write JSON atomically; compressed when the name ends in ``.gz``."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)
    data = (text + "\n").encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, compresslevel=6, mtime=0)
    return write_atomically(path, data)


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write_json` wrote.

    Raises
    ------
    RecordError
        The file holds no JSON object.
    OSError
        It can't be opened.
    """
    data = Path(path).read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        value = json.loads(data)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise RecordError(os.fspath(path), f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise RecordError(os.fspath(path), f"expected a JSON object, found {type(value).__name__}")
    return value


def _plain(value: Any) -> Any:
    """Return numpy's scalars as Python's; anything else has no place in a record."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} can't be written as JSON")
