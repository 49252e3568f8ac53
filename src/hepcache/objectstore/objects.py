"""Sealed pages to objects, by one of four mappings; the anchor comes last.

The mappings are those of the published RNTuple-on-DAOS studies and ROOT's
page sinks for object stores: an object per page, per cluster, per column of a
cluster, or one object for all.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from hepcache.errors import ConfigurationError, ObjectStoreError
from hepcache.objectstore.anchor import BESIDE, Anchor, Link, first_free, object_name
from hepcache.objectstore.compression import Compression, compressed
from hepcache.objectstore.footer import EMPTY_EXTENSION, ClusterGroup, Footer, pack_footer
from hepcache.objectstore.locators import Locator
from hepcache.objectstore.pagelist import Cluster, ColumnPages, pack_page_list
from hepcache.objectstore.store import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ENVELOPES", "MAPPINGS", "ObjectWriter", "SealedColumn", "SealedPage"]

MAPPINGS = ("cluster", "cluster_column", "page", "file")
"""Ways to lay pages in objects."""

_MOST_OFFSET = (1 << 32) - 1  # that ROOT's locator of type 3 can tell
ENVELOPES = Compression("zstd", 3)
"""How envelopes are compressed."""


@dataclass(frozen=True, slots=True)
class SealedPage:
    """A page as it is stored.

    Attributes
    ----------
    elements
        Number of elements.
    data
        The page, with its checksum behind it if it has one.
    checksummed
        Whether it has.
    """

    elements: int
    data: Buffer
    checksummed: bool


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """The pages of a column in a cluster.

    Attributes
    ----------
    pages
        In order.
    compression
        ROOT's settings; ``None`` for a suppressed column.
    first_element
        Elements before the cluster; ``None`` where all were written here.
    """

    pages: Sequence[SealedPage]
    compression: int | None
    first_element: int | None = None


class ObjectWriter:
    """Writes the objects of one ntuple.

    Parameters
    ----------
    store
        Where to.
    header
        The header's envelope.
    mapping
        One of :data:`MAPPINGS`.
    template
        How numbers make names; see :mod:`hepcache.objectstore.anchor`.
    object_bytes
        Bytes of the largest object; the store's limit if that is smaller.
    puts
        Objects on their way at a time.

    Raises
    ------
    ConfigurationError
        The mapping is unknown.
    ObjectStoreError
        The store fails, now or in any later call.

    Notes
    -----
    Belongs to one thread. Until :meth:`commit` returns, a reader finds what
    was at the URI before, or nothing; what a killed writer leaves is found by
    listing the objects that no anchor leads to. New objects have other
    numbers than those that are there already, so that an ntuple can be
    replaced while it is read.
    """

    def __init__(
        self,
        store: Store,
        header: bytes,
        *,
        mapping: str = "cluster",
        template: str = BESIDE,
        object_bytes: int | None = None,
        puts: int = 8,
    ) -> None:
        if mapping not in MAPPINGS:
            raise ConfigurationError("mapping", f"one of {', '.join(MAPPINGS)}", mapping)
        self._store, self._header, self._mapping, self._template = store, header, mapping, template
        self._most = min(object_bytes or store.limit, store.limit, _MOST_OFFSET)
        self._pool = ThreadPoolExecutor(puts, thread_name_prefix="hepcache-put")
        self._room = threading.Semaphore(2 * puts)
        self._puts: list[Future[None]] = []
        self._number = first_free(store, template)
        self._first_elements: list[int] = []
        self._clusters: list[Cluster] = []
        self._entries = self._column = 0
        # The object that is being filled: its number, its pages, its bytes.
        self._open: tuple[int, list[Buffer], int] | None = None
        self.nbytes = 0
        self._put_header()

    @property
    def entries(self) -> int:
        """Entries in the clusters that were written."""
        return self._entries

    def write_cluster(self, entries: int, columns: Sequence[SealedColumn]) -> None:
        """Store a cluster.

        Parameters
        ----------
        entries
            Its entries.
        columns
            One for every column of the header, in its order.
        """
        self._raise_failures()
        places: dict[tuple[int, int], Locator] = {}
        found = []
        self._first_elements += [0] * (len(columns) - len(self._first_elements))
        for number, column in enumerate(columns):
            self._column = number
            if self._mapping == "cluster_column":
                self._flush()
                places.clear()
            locators = [self._place(page, places) for page in column.pages]
            if column.first_element is not None:
                self._first_elements[number] = column.first_element
            found.append(self._described(column, locators, self._first_elements[number]))
            self._first_elements[number] += found[-1].count
        if self._mapping != "file":
            self._flush()
        self._clusters.append(Cluster(self._entries, entries, tuple(found)))
        self._entries += entries

    def commit(self, extension: bytes = EMPTY_EXTENSION) -> Anchor:
        """Write page list, footer and, when everything else is stored, the anchor.

        Parameters
        ----------
        extension
            The frame of the schema extension.
        """
        try:
            self._flush()
            checksum = int.from_bytes(self._header[-8:], "little")
            groups = (self._group(checksum),) if self._clusters else ()
            return self._anchored(pack_footer(Footer(checksum, extension, groups)))
        finally:
            self._pool.shutdown(cancel_futures=True)

    def abort(self) -> None:
        """Stop; no anchor is written, so that nothing is seen of what was put."""
        self._pool.shutdown(cancel_futures=True)

    def _put_header(self) -> None:
        self._header_link = self._envelope(self._header)

    def _group(self, checksum: int) -> ClusterGroup:
        """Write the page list."""
        pages = pack_page_list(checksum, self._clusters, whole=self._mapping == "page")
        link = self._envelope(pages)
        locator = Locator(link.object, 0, link.nbytes)
        return ClusterGroup(0, self._entries, len(self._clusters), len(pages), locator)

    def _anchored(self, footer: bytes) -> Anchor:
        """Write the footer and, when everything else is stored, the anchor."""
        link = self._envelope(footer)
        self._wait()
        anchor = Anchor(self._header_link, link, self._template, self._mapping, str(uuid.uuid4()))
        self._store.put_anchor("", anchor.to_json())
        return anchor

    def _place(self, page: SealedPage, places: dict[tuple[int, int], Locator]) -> Locator:
        """Return where a page goes; equal ones of a cluster are stored once."""
        data = memoryview(page.data).cast("B")
        key = (xxhash.xxh3_128_intdigest(data), len(data))
        if key not in places:
            nbytes = len(data) - 8 * page.checksummed
            if self._mapping == "page":
                self._flush()
            places[key] = self._appended(data)._replace(nbytes=nbytes)
        return places[key]

    def _appended(self, data: memoryview) -> Locator:
        if len(data) > self._most:
            raise ObjectStoreError(
                self._store.uri, "",
                f"a page of {len(data):,} bytes is larger than an object may be "
                f"({self._most:,} bytes); write smaller pages",
            )  # fmt: skip
        if self._open is not None and self._open[2] + len(data) > self._most:
            self._flush()
        number, parts, size = self._open or (self._object_number(), [], 0)
        parts.append(data)
        self._open = number, parts, size + len(data)
        return Locator(number, size, len(data))

    def _flush(self) -> None:
        if self._open is not None:
            number, parts, _ = self._open
            self._open = None
            self._put(number, parts[0] if len(parts) == 1 else b"".join(parts))

    def _described(
        self, column: SealedColumn, locators: Sequence[Locator], first: int
    ) -> ColumnPages:
        pages = column.pages
        table = np.array(locators, np.int64).reshape(-1, 3)
        return ColumnPages(
            np.array([page.elements for page in pages], np.int64),
            table[:, 0], table[:, 1], table[:, 2],
            np.array([page.checksummed for page in pages], np.bool_), first, column.compression,
        )  # fmt: skip

    def _envelope(self, data: bytes) -> Link:
        packed = compressed(data, ENVELOPES)
        number = self._next()
        self._put(number, packed)
        return Link(number, 0, len(packed), len(data))

    def _object_number(self) -> int:
        """Return the number of the next object that has pages."""
        return self._next()

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def _put(self, number: int, data: Buffer) -> None:
        self._raise_failures()
        self.nbytes += len(memoryview(data).cast("B"))
        name = object_name(self._template, number)
        self._room.acquire()
        job = self._pool.submit(self._store.put, name, data)
        job.add_done_callback(lambda _: self._room.release())
        self._puts.append(job)

    def _wait(self) -> None:
        for put in self._puts:
            put.result()

    def _raise_failures(self) -> None:
        under_way = []
        for put in self._puts:
            if put.done():
                put.result()
            else:
                under_way.append(put)
        self._puts = under_way
