"""The one place that knows which kind of path is described and read by which module.

There are five kinds: datasets of an event store (``events+...://``), ntuples in
an object store (``ntpl+...://``, ``rados://``, ``daos://``), files of HDF5
tables, parquet files, and ROOT files, which is what every other path is. Their modules are
imported when they are needed: each draws in libraries that take long to import,
or that need not be installed.
"""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hepcache.credentials import without_credentials
from hepcache.errors import BadFileError
from hepcache.fileset.model import FileRecord
from hepcache.io import validator
from hepcache.io.transport import is_url
from hepcache.io.validator import Freshness, check_path, storage_options
from hepcache.objectstore.uris import is_store_uri

if TYPE_CHECKING:
    from hepcache.formats.source import Source, TreeRef

_EVENTS = re.compile(r"events\+")
_TABLES = re.compile(r"(?i)\.(?:h5|hdf5)$")
_PARQUET = re.compile(r"(?i)\.(?:parquet|parq|pq)$")
# Trees stay open in the process from chunk to chunk; few, because what uproot
# makes of one of 2000 branches takes most of a second and tens of MB.
_KEEP_OPEN = 4
_open: OrderedDict[TreeRef, Source] = OrderedDict()
_lock = threading.Lock()


# The module of a kind of file has ``describe(path, tree, options, fresh)`` and
# ``open_source(ref)``; that of a kind of store has ``freshness_of(path, options)`` and
# ``examine(path, tree, options)`` in place of the first.
_EVENT_STORE = "hepcache.formats.events"
_OBJECT_STORE = "hepcache.formats.rntuple"
_HDF5_FILE = "hepcache.formats.hdf5"
_PARQUET_FILE = "hepcache.formats.parquet"
_ROOT_FILE = "hepcache.formats.root"
_STORES = frozenset({_EVENT_STORE, _OBJECT_STORE})


def _kind_of(path: str) -> str:
    if _EVENTS.match(path):
        return _EVENT_STORE
    if is_store_uri(path):
        return _OBJECT_STORE
    if is_parquet(path):
        return _PARQUET_FILE
    return _HDF5_FILE if _TABLES.search(path) else _ROOT_FILE


def is_parquet(path: str) -> bool:
    """Tell whether a path names a parquet file.

    >>> is_parquet("skim.parquet"), is_parquet("nano.root")
    (True, False)
    """
    place = urlsplit(path).path if is_url(path) else path
    return bool(_PARQUET.search(place))


def _module_for(path: str) -> Any:
    """Return the module that reads what a path names."""
    kind = _kind_of(path)
    if kind is not _HDF5_FILE:
        return import_module(kind)
    if is_url(path):
        problem = "HDF5 files are read from a file system; mount it, or copy the file"
        raise BadFileError({without_credentials(path): problem})
    try:
        return import_module(kind)
    except ImportError as error:
        raise BadFileError({path: str(error)}, ImportError) from error


def freshness_of(
    path: str, options: Mapping[str, Any] | None = None, *, patience_s: float = math.inf
) -> Freshness:
    """Ask for a file's, an ntuple's or a dataset's state, without opening a file.

    ``options``: options of the connection, as :func:`~hepcache.io.validator.storage_options`
    returns them.
    ``patience_s``: seconds of failures after which a file's server is not asked again.
    """
    if _kind_of(path) not in _STORES:
        return validator.freshness_of(path, options, patience_s=patience_s)
    check_path(path)
    fresh: Freshness = _module_for(path).freshness_of(path, options or {})
    return fresh


def examine(
    path: str, tree: str | None, options: Mapping[str, Any]
) -> tuple[FileRecord, Freshness]:
    """Do what :func:`probe` does; return also the file's state, the same before and after."""
    passed = storage_options(options)
    module = _module_for(path)
    if _kind_of(path) in _STORES:
        described: tuple[FileRecord, Freshness] = module.examine(path, tree, passed)
        return described
    for _ in range(2):
        before = freshness_of(path, passed)
        record: FileRecord = module.describe(path, tree, options, before)
        after = freshness_of(path, passed)
        if after.validator == before.validator:
            return record, after
    problem = "it is being written right now; try again when it is complete"
    raise BadFileError({without_credentials(path): problem})


def probe(
    path: str, tree: str | None = None, *, options: Mapping[str, Any] | None = None
) -> FileRecord:
    """Open a file and describe one of its trees.

    ``tree``: name of a TTree or RNTuple in it, with directories and perhaps a cycle number.
    ``None`` takes the only tree, or ``Events`` if there are several.
    ``options``: options for ``uproot.open``.
    Raises ``BadFileError``: the file is missing, truncated, no ROOT file, has no such tree, or
    can't be read; the reason says which and what to do.
    """
    return examine(path, tree, options or {})[0]


def _new_source(ref: TreeRef) -> Source:
    source: Source = _module_for(ref.path).open_source(ref)
    return source


def open_source(ref: TreeRef) -> Source:
    """Return the open source of a tree; recently used ones stay open."""
    with _lock:
        source = _open.pop(ref, None)
        if source is None:
            source = _new_source(ref)
        _open[ref] = source
        while len(_open) > _KEEP_OPEN:
            # A thread may still read from it; the last reference closes the file.
            _open.popitem(last=False)
        return source


def column_names(record: FileRecord) -> list[str]:
    """Return the names of a file's columns, in its own order."""
    from hepcache.formats.source import TreeRef

    boundaries = (0, record.entries)
    ref = TreeRef(
        record.path,
        record.tree,
        record.uuid,
        record.tag,
        record.validator,
        boundaries,
        places=record.places,
    )
    source = _new_source(ref)
    try:
        return [str(name) for name in source.tree.keys()]  # noqa: SIM118 - no dict
    finally:
        source.close()


def forget_sources() -> None:
    """Close every source that this process holds open."""
    with _lock:
        while _open:
            _open.popitem()[1].close()
