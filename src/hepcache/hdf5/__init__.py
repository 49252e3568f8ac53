"""Join, check and split files of tables in HDF5, and read them by events."""

from __future__ import annotations

from importlib import import_module

try:
    for _name in ("deflate", "h5py", "isal.isal_zlib", "zlib_ng.zlib_ng"):
        import_module(_name)
except ImportError as error:
    raise ImportError(
        f"{error}; HDF5 files need more packages: pip install 'hepcache[hdf5]'"
    ) from error

from hepcache.hdf5.append import add_index, add_key, append, recover_output
from hepcache.hdf5.concat import concatenate
from hepcache.hdf5.inspect import FileInfo, GroupInfo, KeyCheck, check_keys, describe, verify
from hepcache.hdf5.model import Concatenated, Progress, TableOptions
from hepcache.hdf5.reader import EventBatch, EventRange, EventTables, event_batches
from hepcache.hdf5.rewrite import link, rechunk, split

__all__ = [
    "Concatenated",
    "EventBatch",
    "EventRange",
    "EventTables",
    "FileInfo",
    "GroupInfo",
    "KeyCheck",
    "Progress",
    "TableOptions",
    "add_index",
    "add_key",
    "append",
    "check_keys",
    "concatenate",
    "describe",
    "event_batches",
    "link",
    "rechunk",
    "recover_output",
    "split",
    "verify",
]
