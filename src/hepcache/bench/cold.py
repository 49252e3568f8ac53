"""What a cold start needs: files that the kernel has forgotten, no file known, warm imports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dask.config

__all__ = ["drop_page_cache", "no_file_known"]


def drop_page_cache(paths: Iterable[str]) -> int:
    """Ask the kernel to forget the content of files, so that a cold cycle reads its disk.

    Parameters
    ----------
    paths
        Files; those that are not on this machine's file systems are left alone.

    Returns
    -------
    int
        Files that were asked for. The kernel may still keep pages that others use.
    """
    asked = 0
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            # Only clean pages are dropped.
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            asked += 1
        except OSError:
            continue
        finally:
            os.close(file)
    return asked


@contextmanager
def no_file_known(directory: Path) -> Iterator[None]:
    """Use a new catalogue in a directory, as if no file had ever been looked at."""
    with dask.config.set({"hepcache.catalogue": str(directory / "catalogue.sqlite")}):
        yield
