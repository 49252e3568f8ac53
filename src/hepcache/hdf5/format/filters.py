"""Filters that HDF5's library needs to decompress chunks: found, or named where missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from h5py import h5d, h5f, h5i, h5z

from hepcache.errors import HepcacheError, MissingFilterError
from hepcache.hdf5.model import display_path

# What hdf5plugin brings, by the numbers that the HDF Group registers.
_NAMES = {
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
    32033: "htj2k",
}


@contextmanager
def reading(*datasets: Any) -> Iterator[None]:
    """Have the filters of datasets at hand; where one is missing, an error of HDF5 says so."""
    missing = [found for found in map(_missing, datasets) if found is not None]
    try:
        yield
    except HepcacheError:
        raise
    except OSError as error:
        if missing:
            raise MissingFilterError(*missing[0]) from error
        raise


def _missing(dataset: Any) -> tuple[str, str, int, str] | None:
    """Return file, dataset, number and fix of a filter of a dataset that is not to be had."""
    creation = dataset.get_create_plist()
    if creation.get_layout() == h5d.VIRTUAL:
        _register()  # its sources may need any
    if not dataset.get_storage_size():
        return None
    for step in range(creation.get_nfilters()):
        number, _, _, name = creation.get_filter(step)
        if h5z.filter_avail(number) or (_register() and h5z.filter_avail(number)):
            continue
        known = _NAMES.get(number, "")
        fix = f"{known}, which is not installed: pip install hdf5plugin"
        if not known:
            called = f"{name.decode(errors='replace')!r}, " if name else ""
            fix = f"{called}which no package that hepcache knows has; see HDF5_PLUGIN_PATH"
        path = display_path(h5i.get_name(dataset).strip(b"/"))
        return os.fsdecode(h5f.get_name(dataset)), path, number, fix
    return None


def _register() -> bool:
    """Let HDF5 know the filters of hdf5plugin, if it is installed."""
    try:
        import hdf5plugin  # noqa: F401 - registers its filters
    except ImportError:
        return False
    return True
