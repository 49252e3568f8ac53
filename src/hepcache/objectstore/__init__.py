"""RNTuple data as objects in distributed stores.

A :class:`~hepcache.objectstore.store.Store` keeps named byte strings: in
memory, in a directory, in S3 and the other services that obstore knows, in
Ceph's RADOS, or in DAOS. What the objects hold and how they are named is the
work of the mappings.
"""

from __future__ import annotations

from hepcache.objectstore.store import Request, Store, is_store_uri, join_name, open_store

__all__ = ["Request", "Store", "is_store_uri", "join_name", "open_store"]
