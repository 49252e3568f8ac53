"""Writing an ntuple: pages laid in objects by one of four mappings; the anchor comes last.

The mappings are those of the published RNTuple-on-DAOS studies and ROOT's page sinks for
object stores: an object per page, per cluster, per column of a cluster, or one for all.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import awkward as ak
import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, ObjectConflictError, ObjectStoreError
from hepcache.io.root_blocks import ENVELOPES, compressed, parse_compression
from hepcache.objectstore import Store
from hepcache.objectstore.fetch import workers
from hepcache.rntuple.anchor import Anchor, Link, read_anchor
from hepcache.rntuple.arrays import ColumnSpec, flattened, header_of, packed, renamed_header
from hepcache.rntuple.envelopes import EMPTY_EXTENSION, ClusterGroup, Footer, Locator, pack_footer
from hepcache.rntuple.naming import (
    BESIDE,
    ROOT_KEYS,
    first_free,
    first_page,
    list_number,
    new_own_name,
    object_name,
    own_template,
    page_number,
    stored_pages,
)
from hepcache.rntuple.pagelist import CHECKSUM_BYTES, Cluster, ColumnPages, pack_page_list
from hepcache.rntuple.pages import SealedColumn, SealedPage, seal
from hepcache.rntuple.root_on_daos import ntuple_store, root_keys_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAPPINGS = ("cluster", "cluster_column", "page", "file")
"""Ways to lay pages in objects."""

_MOST_OFFSET = (1 << 32) - 1  # that ROOT's locator of type 3 can tell


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an ntuple is written.

    Attributes
    ----------
    mapping
        ``"cluster"``, ``"cluster_column"``, ``"page"`` or ``"file"``; ``""`` for
        ROOT's mapping in the store, else ``"cluster"``.
    compression
        ``"zstd"``, ``"lz4"``, ``"zlib"``, ``"lzma"``, with a level after a
        colon, or ``"none"``.
    page_bytes, cluster_bytes
        Bytes of a page and of a cluster before compression.
    checksums
        Whether pages have checksums.
    split
        Whether numbers are stored with all first bytes together, which
        compresses better; ``None``: if they are compressed.
    template
        How objects are named; see :mod:`hepcache.rntuple.naming`.
    object_bytes
        Bytes of the largest object; ``None`` for the store's limit.
    puts
        Number of objects that are written at a time.
    """

    mapping: str = ""
    compression: str = "zstd"
    page_bytes: int = 1 << 20
    cluster_bytes: int = 64 << 20
    checksums: bool = True
    split: bool | None = None
    template: str = BESIDE
    object_bytes: int | None = None
    puts: int = 8


class ObjectWriter:
    """Writes the objects of one ntuple, given its header's envelope.

    Belongs to one thread. Until :meth:`commit` returns, a reader finds what
    was at the URI before, or nothing; what a killed writer leaves is found by
    listing the objects that no anchor leads to. The objects are below a name
    of their own, so that an ntuple can be replaced while it is read, and two
    writers can't meet: who publishes first wins. Under ROOT's keys they have
    other numbers than those that are there already.

    Raises ObjectStoreError where the store fails, in any call, and
    ObjectConflictError where another writer has published meanwhile.
    """

    def __init__(self, store: Store, header: bytes, options: WriteOptions | None = None) -> None:
        options = options or WriteOptions()
        self._store = store
        self._header = header
        self._mapping, self._template = chosen_layout(store, options)
        most = options.object_bytes or store.limit
        self._object_bytes = min(most, store.limit, _MOST_OFFSET)
        self._pool = ThreadPoolExecutor(options.puts, thread_name_prefix="hepcache-put")
        self._slots = threading.Semaphore(2 * options.puts)
        self._puts: list[Future[None]] = []
        # What is there now is replaced, and nothing that another put may publish meanwhile.
        self._expected = store.content("")
        if self._template == ROOT_KEYS:
            self._number = first_free(store, self._template)
        else:
            own = getattr(store, "own_name", "") or new_own_name()
            self._template = own_template(self._template, own)
            self._number = 0
        self._first_elements: list[int] = []
        self._clusters: list[Cluster] = []
        self.entries = 0
        self._column = 0
        # The object that is being filled: its number, its pages, its bytes.
        self._open: tuple[int, list[Buffer], int] | None = None
        self.nbytes = 0
        self._put_header()

    def write_cluster(self, entries: int, columns: Sequence[SealedColumn]) -> None:
        """Store a cluster; ``columns`` has one for every column of the header, in order."""
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
        self._clusters.append(Cluster(self.entries, entries, tuple(found)))
        self.entries += entries

    def commit(self, extension: bytes = EMPTY_EXTENSION) -> Anchor:
        """Write page list, footer and, when everything else is stored, the anchor.

        ``extension`` is the frame of the schema extension.
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
        return ClusterGroup(0, self.entries, len(self._clusters), len(pages), locator)

    def _anchored(self, footer: bytes) -> Anchor:
        """Write the footer and, when everything else is stored, the anchor."""
        link = self._envelope(footer)
        self._wait()
        anchor = Anchor(self._header_link, link, self._template, self._mapping, str(uuid.uuid4()))
        self._publish(anchor.to_json())
        return anchor

    def _publish(self, data: bytes) -> None:
        """Store the anchor, unless somebody else has stored one since the beginning."""
        if not self._store.put_anchor_if("", data, self._expected):
            if self._template != ROOT_KEYS:
                names = [object_name(self._template, number) for number in range(self._number)]
                self._store.delete(names)
            raise conflict(self._store.uri)

    def _place(self, page: SealedPage, places: dict[tuple[int, int], Locator]) -> Locator:
        """Return where a page goes; equal ones of a cluster are stored once."""
        data = memoryview(page.data).cast("B")
        key = (xxhash.xxh3_128_intdigest(data), len(data))
        if key not in places:
            nbytes = len(data) - CHECKSUM_BYTES * page.checksummed
            if self._mapping == "page":
                self._flush()
            places[key] = self._appended(data)._replace(nbytes=nbytes)
        return places[key]

    def _appended(self, data: memoryview) -> Locator:
        if len(data) > self._object_bytes:
            problem = (
                f"a page of {len(data):,} bytes is larger than an object may be "
                f"({self._object_bytes:,} bytes); write smaller pages"
            )
            raise ObjectStoreError(self._store.uri, "", problem)
        if self._open is not None and self._open[2] + len(data) > self._object_bytes:
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
            elements=np.array([page.elements for page in pages], np.int64),
            objects=table[:, 0],
            offsets=table[:, 1],
            nbytes=table[:, 2],
            checksummed=np.array([page.checksummed for page in pages], np.bool_),
            first_element=first,
            compression=column.compression,
        )

    def _envelope(self, data: bytes) -> Link:
        stored = compressed(data, ENVELOPES)
        number = self._next()
        self._put(number, stored)
        return Link(number, 0, len(stored), len(data))

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
        self._slots.acquire()
        job = self._pool.submit(self._store.put, name, data)
        job.add_done_callback(lambda _: self._slots.release())
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


class _RootWriter(ObjectWriter):
    """Writes the pages of one ntuple as values under ROOT's keys."""

    def _put_header(self) -> None:
        keys = root_keys_of(self._store)
        assert keys is not None
        self._keys = keys
        # ROOT finds an ntuple by its name, and looks whether it is that of the header.
        self._header = renamed_header(self._header, keys.name)
        self._number = first_page(self._number)

    def _place(self, page: SealedPage, _: object) -> Locator:
        """Return where a page goes; ROOT can't read one value for two pages."""
        self._flush()
        data = memoryview(page.data).cast("B")
        return self._appended(data)._replace(nbytes=len(data) - CHECKSUM_BYTES * page.checksummed)

    def _object_number(self) -> int:
        try:
            return page_number(self._next(), len(self._clusters), self._column)
        except ValueError as error:
            problem = f"{error}; write larger pages and clusters, or another mapping"
            raise ObjectStoreError(self._store.uri, "", problem) from error

    def _group(self, checksum: int) -> ClusterGroup:
        pages = pack_page_list(checksum, stored_pages(self._clusters), whole=True)
        data, attribute = compressed(pages, ENVELOPES), self._next()
        self._put(list_number(attribute), data)
        locator = Locator(attribute, 0, len(data))
        return ClusterGroup(0, self.entries, len(self._clusters), len(pages), locator)

    def _anchored(self, footer: bytes) -> Anchor:
        self._wait()
        packed_header = bytes(compressed(self._header, ENVELOPES))
        packed_footer = bytes(compressed(footer, ENVELOPES))
        data = self._keys.pack_anchor(
            (packed_header, len(self._header)), (packed_footer, len(footer))
        )
        self.nbytes += len(packed_header) + len(packed_footer)
        self._publish(data)
        return read_anchor(data, self._store.uri)


def conflict(uri: str) -> ObjectConflictError:
    """Return the error of a writer that came too late."""
    problem = (
        "another put has published here meanwhile; that ntuple is whole, and nothing is left of "
        "this put. Put again to replace it"
    )
    return ObjectConflictError(uri, "", problem)


def chosen_layout(store: Store, options: WriteOptions) -> tuple[str, str]:
    """Return mapping and template of an ntuple that is written to a store.

    The mapping ``""`` stands for ROOT's own where it has one, else ``"cluster"``.
    The template is not used under ROOT's keys. Raises ConfigurationError where
    the mapping is unknown.
    """
    keyed = root_keys_of(store) is not None
    mapping = options.mapping or ("cluster_column" if keyed else "cluster")
    if mapping not in MAPPINGS:
        raise ConfigurationError("mapping", f"one of {', '.join(MAPPINGS)}", mapping)
    return mapping, ROOT_KEYS if keyed and mapping == "cluster_column" else options.template


def open_writer(store: Store, header: bytes, options: WriteOptions) -> ObjectWriter:
    """Return the writer for a store and a mapping; see :func:`chosen_layout`."""
    _, template = chosen_layout(store, options)
    kind = _RootWriter if template == ROOT_KEYS else ObjectWriter
    return kind(store, header, options)


class Sink:
    """Writes one ntuple.

    Parameters
    ----------
    store
        The target: a store or a URI.
    name
        The ntuple's name; the store's, if ROOT finds it by that (DAOS).
    options
        How it is written.
    description
        Text for the header.

    Raises
    ------
    ConfigurationError
        An option is invalid.
    ObjectStoreError
        The store fails, now or in any later call.

    Attributes
    ----------
    closed
        Whether it accepts no more entries.

    Notes
    -----
    Use it in one thread. The ntuple can be read only when :meth:`close` has
    returned; leaving the context with an error drops it.

    Examples
    --------
    >>> with Sink("ntpl+mem://doctest/sink", "Events") as sink:
    ...     sink.extend({"x": [1.5, 2.5], "y": [[1], [2, 3]]})
    """

    def __init__(
        self,
        store: Store | str,
        name: str,
        options: WriteOptions | None = None,
        *,
        description: str = "",
    ) -> None:
        self.options = options or WriteOptions()
        self._compression = parse_compression(self.options.compression)
        for size in ("page_bytes", "cluster_bytes"):
            if getattr(self.options, size) < 1024:
                raise ConfigurationError(size, "1024 or more", getattr(self.options, size))
        self._store = ntuple_store(store)
        self._owned = isinstance(store, str)
        self._name, self._description = name, description
        self._writer: ObjectWriter | None = None
        self._form: ak.forms.Form | None = None
        self._columns: list[ColumnSpec] = []
        self._waiting: list[ak.contents.Content] = []
        self._waiting_bytes = 0
        self.closed = False

    def extend(self, array: Any) -> None:
        """Add entries; the first call defines the fields.

        Parameters
        ----------
        array
            An array of records, or a dict of arrays.

        Raises
        ------
        ConfigurationError
            Its fields differ from those of the first call, or no ntuple can have them.
        """
        layout = packed(array)
        form = layout.form
        if self._form is None:
            self._begin(form)
        elif form != self._form or form.fields != self._form.fields:
            problem = "the fields of the first array, with their types"
            raise ConfigurationError("array", f"{problem} ({self._form.type})", str(form.type))
        for start, stop in self._parts(layout):
            part = layout[start:stop]
            self._waiting.append(part)
            self._waiting_bytes += _bytes(part, layout)
            if self._waiting_bytes >= self.options.cluster_bytes:
                self._flush()

    def close(self) -> Anchor:
        """Write waiting entries, and finally the anchor."""
        if self._writer is None:
            raise ConfigurationError("array", "an array, so that the fields are known", None)
        try:
            self._flush()
            return self._writer.commit()
        finally:
            self.abort()  # which leaves what was committed

    @property
    def nbytes(self) -> int:
        """Bytes of the objects that were put, without the anchor."""
        return 0 if self._writer is None else self._writer.nbytes

    def abort(self) -> None:
        """Stop; readers will see nothing of the written objects."""
        if self._writer is not None:
            self._writer.abort()
        self.closed = True
        if self._owned:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.closed:
            return
        if kind is None:
            self.close()
        else:
            self.abort()

    def _begin(self, form: ak.forms.Form) -> None:
        split = self.options.split
        spec = header_of(
            form, split=self.options.compression != "none" if split is None else split
        )
        self._form = form
        self._columns = spec.columns
        header = spec.pack(self._name, self._description)
        self._writer = open_writer(self._store, header, self.options)

    def _parts(self, layout: ak.contents.Content) -> Iterator[tuple[int, int]]:
        """Yield entry ranges of an array that fill up a cluster each."""
        length = layout.length
        per_entry = max(layout.nbytes / length, 1) if length else 1
        start = 0
        while start < length:
            missing_bytes = self.options.cluster_bytes - self._waiting_bytes
            stop = min(length, start + max(1, round(missing_bytes / per_entry)))
            yield start, stop
            start = stop

    def _flush(self) -> None:
        if not self._waiting or self._writer is None:
            return
        whole = self._waiting[0] if len(self._waiting) == 1 else ak.concatenate(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        layout = packed(whole)
        pages = [
            self._sealed(values, column)
            for values, column in zip(flattened(layout), self._columns, strict=True)
        ]
        settings = self._compression.settings
        self._writer.write_cluster(
            layout.length,
            [SealedColumn([page.result() for page in column], settings) for column in pages],
        )

    def _sealed(self, values: NDArray[Any], column: ColumnSpec) -> list[Future[SealedPage]]:
        per_page = max(1, self.options.page_bytes * 8 // column.bits)
        # Pages of bits begin on whole bytes.
        per_page = -(-per_page // 8) * 8
        checksum = self.options.checksums
        return [
            workers().submit(
                seal,
                values[start : start + per_page],
                column,
                self._compression,
                checksum=checksum,
            )
            for start in range(0, len(values), per_page)
        ]


def _bytes(part: ak.contents.Content, whole: ak.contents.Content) -> int:
    # A slice still holds all of its buffers.
    return int(whole.nbytes * part.length / np.maximum(whole.length, 1))


def write_array(
    store: Store | str, name: str, array: Any, options: WriteOptions | None = None
) -> Anchor:
    """Write an array of records as an ntuple.

    Parameters
    ----------
    store
        The target: a store or a URI.
    name
        The ntuple's name.
    array
        An array of records, or a dict of arrays.
    options
        How it is written.
    """
    with Sink(store, name, options) as sink:
        sink.extend(array)
        return sink.close()


def write_tree(
    store: Store | str,
    tree: Any,
    options: WriteOptions | None = None,
    *,
    name: str | None = None,
    fields: Sequence[str] | None = None,
    step_bytes: str = "64 MB",
    progress: Callable[[int], None] | None = None,
) -> Anchor:
    """Write a TTree or RNTuple that uproot has opened, a part at a time.

    Parameters
    ----------
    store
        The target: a store or a URI.
    tree
        uproot's tree.
    options
        How it is written.
    name
        The ntuple's name; by default the tree's.
    fields
        Its branches or top-level fields; all by default.
    step_bytes
        Size of the decoded data that is read at a time, as in uproot's ``iterate``.
    progress
        Called with the number of entries that were written.
    """
    known = [key for key in tree.keys(recursive=False) if fields is None or key in fields]
    missing = set(fields or ()).difference(known)
    if missing:
        raise ConfigurationError("fields", "fields of the tree", sorted(missing))
    with Sink(store, name or tree.name, options) as sink:
        if not tree.num_entries:
            sink.extend(tree.arrays(filter_name=known.__contains__))
        for array in tree.iterate(filter_name=known.__contains__, step_size=step_bytes):
            sink.extend(array[known])
            if progress is not None:
                progress(len(array))
        return sink.close()
