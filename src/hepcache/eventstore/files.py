"""Small files that say what a directory holds."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["write_once"]


def write_once(path: Path, data: bytes) -> None:
    """Write a file that appears whole, unless another process has made it first."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as temporary:
        temporary.write(data)
        temporary.flush()
        os.fsync(temporary.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary.name, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
