"""The stand-in for libdaos, built and put in its place."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hepcache.objectstore.daos import library


@contextmanager
def standin(directory: Path) -> Iterator[ctypes.CDLL]:
    """Lead ``daos://`` to the stand-in, and give it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for libdaos needs cc")
    path, source = directory / "libdaos.so", Path(__file__).with_name("libdaos.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-pthread", "-o", path, source]
    subprocess.run(command, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEPCACHE_LIBDAOS", str(path))
        library.cache_clear()
        yield ctypes.CDLL(str(path))
    library.cache_clear()
