"""Named bytes in memory, local directories, S3 and similar services, Ceph's RADOS, and DAOS.

A :class:`Store` is one place in such a service; :func:`open_store` opens the store that a
URI names. This package does not interpret the objects: :mod:`hepcache.rntuple` stores ntuples
in them, and has the functions for ntuples.
"""

from __future__ import annotations

from hepcache.objectstore.directory import DirectoryStore, FileStore
from hepcache.objectstore.memory import MemoryStore
from hepcache.objectstore.store import Pending, Request, Store, join_name
from hepcache.objectstore.uris import is_store_uri, open_store

__all__ = [
    "DirectoryStore",
    "FileStore",
    "MemoryStore",
    "Pending",
    "Request",
    "Store",
    "is_store_uri",
    "join_name",
    "open_store",
]
