"""A copy of a store in an object store, and a store made of it.

A backup is a manifest and the parts that it lists. The parts of a new backup get names of
their own, or are those of the last one where nothing has changed. The manifest is put last, in
one step, and only if it is still the one that the backup began with: whatever kills a backup,
the one before it stays whole, and of two at once one is told that it came second.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from hepcache.errors import ConfigurationError, ObjectStoreError, StoreError
from hepcache.eventstore.connect import connect
from hepcache.eventstore.shard.parts import Part, unpacked, upload
from hepcache.eventstore.shard.shard import LocalShard
from hepcache.eventstore.store import Store
from hepcache.io.atomic import make_directories, sync
from hepcache.objectstore import Store as ObjectStore
from hepcache.objectstore import is_store_uri, open_store

_FORMAT = 1
_WHAT = "hepcache event store backup"
_MANIFEST = "manifest"
_PARTS = "parts/"
_AT_ONCE = 4

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Backup:
    """The size of a backup, and of its new parts.

    Attributes
    ----------
    uri
        The address of the backup.
    shards
        Shards of the store.
    items
        Keys with their values.
    nbytes
        Bytes of all its parts.
    new_bytes
        Bytes of the parts that were sent; the others belong to the previous backup too.
    """

    uri: str
    shards: int
    items: int
    nbytes: int
    new_bytes: int


def back_up(store: Store, uri: str, *, progress: Progress | None = None) -> Backup:
    """Copy a store into an object store, while it is in use.

    Each shard is copied as it is at one moment. Parts that have not changed since the last
    backup at this place are not sent again. The servers of a served store send their shards
    themselves, so they need access to the object store.

    Parameters
    ----------
    store
        A store of any kind.
    uri
        A directory, ``s3://bucket/path``, ``rados://pool/path`` or any address for
        :func:`hepcache.objectstore.open_store`. For a served store, a directory must not be
        local to this machine.
    progress
        Called with the number of copied shards, and the total.

    Returns
    -------
    Backup
        Its sizes.

    Raises
    ------
    StoreError
        Another backup was made here meanwhile, or the place has other content, which is not
        changed.
    ObjectStoreError
        The object store can't be written to; the last backup stays.
    """
    place = _store_uri(uri)
    objects = open_store(place)
    try:
        before = objects.content(_MANIFEST)
        last = [] if before is None else _read_manifest(before, uri)
        known = {part.digest: part.name for parts in last for part in parts}
        # Of backups that were killed, too.
        old = {name for name, _ in objects.list(_PARTS)}
        directory = f"{_PARTS}{uuid.uuid4().hex}"
        found: list[list[Part]] = [[] for _ in store.shards]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            waiting = {
                pool.submit(shard.query, upload, place, directory, known): number
                for number, shard in enumerate(store.shards)
            }
            for done, future in enumerate(as_completed(waiting), start=1):
                found[waiting[future]] = future.result()
                if progress is not None:
                    progress(done, len(waiting))
        if not objects.put_anchor_if(_MANIFEST, _manifest(found), before):
            raise StoreError(uri, "another backup was made here meanwhile; this one has no effect")
        kept = {part.name for parts in found for part in parts}
        # The backup is made: what is left of others only takes space.
        with suppress(ObjectStoreError):
            objects.delete(sorted(old - kept))
    finally:
        objects.close()
    parts = [part for parts in found for part in parts]
    return Backup(
        uri,
        len(found),
        sum(part.items for part in parts),
        sum(part.nbytes for part in parts),
        sum(part.nbytes for part in parts if part.name.startswith(directory)),
    )


def restore(uri: str, directory: str | Path, *, progress: Progress | None = None) -> Backup:
    """Restore a backup into a new store, in a directory of a local volume.

    The directory appears when everything is restored and its checksums are right.

    Parameters
    ----------
    uri
        As for :func:`back_up`.
    directory
        Directory of the new store; it must be missing or empty.
    progress
        Called with the number of restored shards, and the total.

    Returns
    -------
    Backup
        Its sizes; ``new_bytes`` is 0.

    Raises
    ------
    StoreError
        There is no backup, a part of it is damaged, or the directory is in use.
    ObjectStoreError
        The object store can't be read.
    """
    target = Path(directory).expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(str(target), "a store is restored to a new or an empty directory")
    objects = open_store(_store_uri(uri))
    made = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        manifest = objects.content(_MANIFEST)
        if manifest is None:
            raise StoreError(uri, "there is no backup here")
        shards = _read_manifest(manifest, uri)
        make_directories(made)
        with connect(f"{made.as_uri()}?shards={len(shards)}") as store:
            for number, (shard, parts) in enumerate(zip(store.shards, shards, strict=True), 1):
                assert isinstance(shard, LocalShard)
                for items in _downloaded(objects, parts, uri):
                    with shard.engine.write() as view:
                        for key, value in items:
                            view.put(key, value)
                if progress is not None:
                    progress(number, len(shards))
            store.verify()
        sync(made)
        os.rename(made, target)  # noqa: PTH104 - over an empty directory
        sync(target.parent)
    finally:
        objects.close()
        shutil.rmtree(made, ignore_errors=True)
    whole = [part for parts in shards for part in parts]
    sizes = sum(part.items for part in whole), sum(part.nbytes for part in whole)
    return Backup(uri, len(shards), *sizes, 0)


def _downloaded(
    objects: ObjectStore, parts: Sequence[Part], uri: str
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the items of parts, each checked; the next part comes while one is written."""

    def content(part: Part) -> bytes:
        data = objects.content(part.name)
        if data is None or sha256(data).hexdigest() != part.digest:
            problem = "is missing" if data is None else "is damaged: its SHA-256 is another one"
            raise StoreError(uri, f"the part {part.name} {problem}")
        return data

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(content, parts[0]) if parts else None
        for number in range(len(parts)):
            assert coming is not None
            data = coming.result()
            if number + 1 < len(parts):
                coming = pool.submit(content, parts[number + 1])
            yield unpacked(data)


def _store_uri(uri: str) -> str:
    """Return the URI of an object store for a directory or a place that users write shorter."""
    if is_store_uri(uri):
        return uri
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme == "file":
        path = Path(rest if separator else uri).expanduser().absolute()
        return f"ntpl+file://{path}"
    if scheme in ("s3", "s3+http", "s3+https", "gs", "az"):
        return f"ntpl+{uri}"
    raise ConfigurationError("URI", "a directory, s3://, gs://, az://, rados:// or daos://", uri)


def _manifest(shards: Sequence[Sequence[Part]]) -> bytes:
    body = {"what": _WHAT, "format": _FORMAT, "shards": shards}
    digest = sha256(json.dumps(body).encode()).hexdigest()
    return json.dumps(body | {"sha256": digest}).encode()


def _read_manifest(data: bytes, uri: str) -> list[list[Part]]:
    try:
        body: dict[str, Any] = json.loads(data)
        digest = body.pop("sha256", "")
        if body.get("what") != _WHAT:
            raise StoreError(uri, f"{_MANIFEST} is of something else than a backup")
        if body.get("format") != _FORMAT:
            problem = f"format {body.get('format')!r}, this hepcache reads {_FORMAT}"
            raise StoreError(uri, problem)
        if sha256(json.dumps(body).encode()).hexdigest() != digest:
            raise StoreError(uri, f"{_MANIFEST} is damaged: its SHA-256 is another one")
        return [[Part(*part) for part in parts] for parts in body["shards"]]
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise StoreError(uri, f"{_MANIFEST} can't be read: {error}") from error
