"""Named bytes in memory, local directories, S3 and its like, Ceph's RADOS, and DAOS.

A :class:`Store` is one place in such a service; :func:`open_store` opens the one that a
URI names. What the objects mean is not known here: :mod:`hepcache.rntuple` keeps ntuples
in them, and has the verbs for these.
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
