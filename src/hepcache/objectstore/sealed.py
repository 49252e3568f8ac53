"""Pages of an ntuple as they are stored, to be copied without decompression."""

from __future__ import annotations

from hepcache.errors import ObjectDamagedError
from hepcache.objectstore.background import run
from hepcache.objectstore.metadata import Metadata
from hepcache.objectstore.objects import SealedColumn, SealedPage
from hepcache.objectstore.pagelist import CHECKSUM_BYTES
from hepcache.objectstore.pages import payload
from hepcache.objectstore.plan import Wanted, coalesced
from hepcache.objectstore.reading import Options
from hepcache.objectstore.store import Request, Store

__all__ = ["sealed_cluster"]


def sealed_cluster(
    store: Store, metadata: Metadata, number: int, options: Options | None = None
) -> list[SealedColumn]:
    """Return the pages of all columns of a cluster; checksums are verified.

    Parameters
    ----------
    store, metadata
        The ntuple.
    number
        The cluster's place in ``metadata.clusters``.
    options
        How pages are fetched.

    Raises
    ------
    ObjectStoreError
        A page is missing or damaged, or the store fails.
    """
    how = options or Options()
    columns = metadata.clusters[number].columns
    wanted = [
        Wanted(int(one), int(offset), int(nbytes) + CHECKSUM_BYTES * bool(checksummed))
        for pages in columns
        for one, offset, nbytes, checksummed in zip(
            pages.objects, pages.offsets, pages.nbytes, pages.checksummed, strict=True
        )
    ]
    pieces = coalesced(wanted, how.gap_bytes, how.request_bytes)
    requests = [Request(metadata.name_of(one.object), one.start, one.length) for one in pieces]
    data = [memoryview(b"")] * len(wanted)
    for piece, found in zip(pieces, run(store.read(requests)), strict=True):
        view = memoryview(found).cast("B")
        for member in piece.members:
            begin = wanted[member].start - piece.start
            data[member] = view[begin : begin + wanted[member].length]
    parts = iter(zip(wanted, data, strict=True))
    return [
        SealedColumn(
            [
                _verified(store, metadata, *next(parts), int(elements), bool(checksummed))
                for elements, checksummed in zip(pages.elements, pages.checksummed, strict=True)
            ],
            pages.compression,
            pages.first_element,
        )
        for pages in columns
    ]


def _verified(
    store: Store,
    metadata: Metadata,
    wanted: Wanted,
    data: memoryview,
    elements: int,
    checksummed: bool,
) -> SealedPage:
    try:
        payload(data, len(data) - CHECKSUM_BYTES * checksummed, checksummed)
    except ValueError as error:
        name = metadata.name_of(wanted.object)
        raise ObjectDamagedError(
            store.uri, name, f"page at byte {wanted.start}: {error}"
        ) from error
    return SealedPage(elements, data, checksummed)
