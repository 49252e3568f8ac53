"""Objects back to a ROOT file: pages as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uproot

from hepcache.errors import ConfigurationError
from hepcache.objectstore.compression import Compression, compressed
from hepcache.objectstore.footer import ClusterGroup, Footer, pack_footer
from hepcache.objectstore.locators import IN_FILE, Locator
from hepcache.objectstore.metadata import Metadata, load_metadata
from hepcache.objectstore.objects import SealedColumn
from hepcache.objectstore.pagelist import Cluster, ColumnPages, pack_page_list
from hepcache.objectstore.sealed import sealed_cluster
from hepcache.objectstore.store import Store

__all__ = ["get_file"]

_MOST_BYTES = 512 << 20
"""Bytes of a blob in the file; ROOT's keys take 1 GiB."""


def get_file(
    store: Store,
    path: Path,
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write an ntuple of objects to a ROOT file, without decompressing its pages.

    Parameters
    ----------
    store
        Where the ntuple is.
    path
        The file; it appears under its name when all of it is there.
    overwrite
        Whether a file of that name is replaced.
    progress
        Called with the entries that were done.

    Returns
    -------
    int
        Number of entries.

    Raises
    ------
    ConfigurationError
        There is a file of that name.
    ObjectStoreError
        The store fails, or an object is missing or damaged.
    """
    if path.exists() and not overwrite:
        raise ConfigurationError("output", "a new file, or --overwrite", str(path))
    metadata = load_metadata(store)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with uproot.recreate(part) as file:
            # uproot lays out the file; its own small header and footer stay behind, unused.
            ntuple = file.mkrntuple(metadata.schema.name, {"_": "int32"})
            _fill(ntuple._cascading, file.file.sink, store, metadata, progress)  # noqa: SLF001
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return metadata.entries


def _fill(
    target: Any,
    sink: Any,
    store: Store,
    metadata: Metadata,
    progress: Callable[[int], None] | None,
) -> None:
    """Put pages, envelopes and their places into uproot's ntuple."""

    def blob(data: bytes, length: int) -> int:
        key = target.add_rblob(sink, data, length)
        return int(key.location + key.num_bytes)

    clusters = []
    for number, cluster in enumerate(metadata.clusters):
        columns = sealed_cluster(store, metadata, number)
        clusters.append(_placed(cluster, columns, blob))
        if progress is not None:
            progress(cluster.entries)
    zstd = Compression("zstd", 3)
    header = compressed(metadata.header, zstd)
    checksum = metadata.footer.header_checksum
    groups = []
    if clusters:
        pages = pack_page_list(checksum, clusters)
        packed = compressed(pages, zstd)
        place = Locator(IN_FILE, blob(bytes(packed), len(pages)), len(packed))
        groups.append(ClusterGroup(0, metadata.entries, len(clusters), len(pages), place))
    footer = pack_footer(Footer(checksum, metadata.footer.extension, tuple(groups)))
    packed = compressed(footer, zstd)
    anchor = target._anchor  # noqa: SLF001 - uproot has no call for a finished ntuple
    (
        anchor.version_epoch, anchor.version_major, anchor.version_minor, anchor.version_patch,
    ) = metadata.anchor.version  # fmt: skip
    anchor.seek_header, anchor.nbytes_header, anchor.len_header = (
        blob(bytes(header), len(metadata.header)), len(header), len(metadata.header),
    )  # fmt: skip
    anchor.seek_footer, anchor.nbytes_footer, anchor.len_footer = (
        blob(bytes(packed), len(footer)), len(packed), len(footer),
    )  # fmt: skip
    target.sync(sink)
    sink.write(anchor.location, anchor.serialize())
    target.sync(sink)


def _placed(
    cluster: Cluster, columns: list[SealedColumn], blob: Callable[[bytes, int], int]
) -> Cluster:
    """Write a cluster's pages, each once, and return it with their places in the file."""
    waiting: dict[tuple[int, int], memoryview] = {}
    places: dict[tuple[int, int], int] = {}

    def flush() -> None:
        data = b"".join(waiting.values())
        place = blob(data, len(data)) if waiting else 0
        for key, page in waiting.items():
            places[key] = place
            place += len(page)
        waiting.clear()

    waiting_bytes = 0
    for pages, column in zip(cluster.columns, columns, strict=True):
        for key, page in zip(_keys(pages), column.pages, strict=True):
            view = memoryview(page.data)
            if key in places or key in waiting:
                continue
            if waiting_bytes + len(view) > _MOST_BYTES:
                flush()
                waiting_bytes = 0
            waiting[key] = view
            waiting_bytes += len(view)
    flush()
    found = [
        ColumnPages(
            pages.elements,
            np.full(len(pages.elements), IN_FILE, np.int64),
            np.array([places[key] for key in _keys(pages)], np.int64),
            pages.nbytes, pages.checksummed, pages.first_element, pages.compression,
        )
        for pages in cluster.columns
    ]  # fmt: skip
    return Cluster(cluster.first_entry, cluster.entries, tuple(found))


def _keys(pages: ColumnPages) -> list[tuple[int, int]]:
    return list(zip(pages.objects.tolist(), pages.offsets.tolist(), strict=True))
