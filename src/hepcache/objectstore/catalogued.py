"""What the catalogue asks of an ntuple in an object store, as it asks of a file.

``hepcache.fileset`` finds this module by its name, because it is a room below.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, TypeVar

import xxhash

from hepcache.errors import BadFileError, ConfigurationError, ObjectStoreError
from hepcache.fileset.describe import describe_rntuple
from hepcache.fileset.freshness import Freshness
from hepcache.fileset.model import FileRecord
from hepcache.fileset.paths import without_credentials
from hepcache.objectstore.background import run
from hepcache.objectstore.metadata import Metadata, load_metadata, read_anchor
from hepcache.objectstore.pagelist import CHECKSUM_BYTES
from hepcache.objectstore.store import Request, Store, open_store

__all__ = ["examine", "look", "validator_of"]

_T = TypeVar("_T")


def look(path: str, options: Mapping[str, Any]) -> Freshness:
    """Ask for the anchor; see :func:`hepcache.fileset.freshness.look`."""

    def ask(store: Store) -> Freshness:
        data = store.get("")
        return Freshness(len(data), validator_of(store, data), settled=True)

    return _asked(path, options, ask)


def examine(
    path: str, tree: str | None, options: Mapping[str, Any]
) -> tuple[FileRecord, Freshness]:
    """Describe an ntuple; see :func:`hepcache.fileset.probe.examine`."""

    def ask(store: Store) -> tuple[FileRecord, Freshness]:
        data = store.get("")
        metadata = load_metadata(store, data)
        fresh = Freshness(len(data), validator_of(store, data, metadata), settled=True)
        name = metadata.schema.name
        if tree is not None and tree.strip("/").partition(";")[0] != name:
            problem = f"no tree {tree!r} in it; the tree there is: {name}"
            raise BadFileError({without_credentials(path): problem})
        return _record(path, metadata, fresh), fresh

    return _asked(path, options, ask)


def validator_of(store: Store, anchor: bytes, metadata: Metadata | None = None) -> str:
    """Return a text that changes whenever an ntuple is written anew.

    The anchors that we write carry a UUID. Others tell only lengths, so that
    the envelopes, and the checksums of some pages, are looked at as well.

    Parameters
    ----------
    store
        Where the ntuple is.
    anchor
        The anchor as it is stored.
    metadata
        The envelopes, if they have been read.
    """
    parsed = read_anchor(anchor, store.uri)
    digest = xxhash.xxh3_128(anchor)
    if not parsed.uuid:
        metadata = metadata or load_metadata(store, anchor)
        digest.update(metadata.digest)
        for stamp in run(store.read(_stamps(metadata))):
            digest.update(stamp)
    return digest.hexdigest()


def _stamps(metadata: Metadata) -> list[Request]:
    """Return where the checksums of the first pages of the first and last cluster are."""
    ends = metadata.clusters[:1] + metadata.clusters[1:][-1:]
    return [
        Request(
            metadata.name_of(int(pages.objects[0])),
            int(pages.offsets[0] + pages.nbytes[0]),
            CHECKSUM_BYTES,
        )
        for cluster in ends
        for pages in cluster.columns
        if len(pages.elements) and pages.checksummed[0]
    ]


def _record(path: str, metadata: Metadata, fresh: Freshness) -> FileRecord:
    described = describe_rntuple(metadata.schema.model)
    size = sum(
        int(pages.nbytes.sum()) for cluster in metadata.clusters for pages in cluster.columns
    )
    facts = struct.pack("<QQ", metadata.entries, size) + metadata.digest
    return FileRecord(
        path=path,
        tree=metadata.schema.name,
        uuid=metadata.uuid,
        entries=metadata.entries,
        clusters=metadata.boundaries,
        size=size,
        validator=fresh.validator,
        tag=xxhash.xxh3_64_hexdigest(facts + described.layout),
        fingerprint=described.fingerprint,
    )


def _asked(path: str, options: Mapping[str, Any], ask: Callable[[Store], _T]) -> _T:
    public = without_credentials(path)
    try:
        with closing(open_store(path, **options)) as store:
            return ask(store)
    except (ObjectStoreError, ConfigurationError, ImportError) as error:
        raise BadFileError({public: str(error)}) from error
