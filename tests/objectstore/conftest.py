"""The stand-in for libdaos, once for all tests of this room."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hepcache.objectstore.libdaos import library


@pytest.fixture(scope="session")
def daos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    """Return the stand-in for libdaos, which ``daos://`` leads to."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for libdaos needs cc")
    path = tmp_path_factory.mktemp("daos") / "libdaos.so"
    source = Path(__file__).with_name("libdaos.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-pthread", "-o", path, source]
    subprocess.run(command, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEPCACHE_LIBDAOS", str(path))
        library.cache_clear()
        yield ctypes.CDLL(str(path))
    library.cache_clear()
