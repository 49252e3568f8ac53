"""Pages of some clusters: decoded to columns, or sealed as they are stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hepcache.errors import ObjectDamagedError
from hepcache.io.memory import page_pool
from hepcache.io.ranges import MergedRange, ObjectRange, coalesced
from hepcache.objectstore import Request, Store
from hepcache.objectstore.fetch import Fetch
from hepcache.rntuple.metadata import Metadata
from hepcache.rntuple.pagelist import CHECKSUM_BYTES, Cluster, ColumnPages
from hepcache.rntuple.pages import (
    SealedColumn,
    SealedPage,
    decode,
    payload,
    rebase_offsets,
    rebase_switches,
)
from hepcache.rntuple.schema import ColumnInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer

_Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How pages are fetched.

    Attributes
    ----------
    gap_bytes
        Unwanted bytes between two pages that cost less than a request.
    request_bytes
        Bytes of one request.
    group_bytes
        Bytes that are decoded together: as many as fit into a processor's cache, in
        memory that the next group reuses.
    groups_ahead, requests_ahead
        Groups and requests under way beyond the group that is decoded.
    """

    gap_bytes: int = 64 << 10
    request_bytes: int = 4 << 20
    group_bytes: int = 512 << 10
    groups_ahead: int = 32
    requests_ahead: int = 128


@dataclass(frozen=True, slots=True)
class _Page:
    """One page: where it is, and where its elements go."""

    place: ObjectRange
    checksummed: bool
    column: ColumnInfo
    out: _Values


class Columns:
    """Columns of the clusters ``low`` to ``high``, which are under way when this returns.

    Columns are given by number, in memory of columns that were dropped.
    """

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        numbers: Iterable[int],
        low: int,
        high: int,
        options: ReadOptions,
    ) -> None:
        clusters = metadata.clusters[low:high]
        pages: list[_Page] = []
        self._found: dict[int, tuple[_Values, list[int]]] = {}
        try:
            for number in numbers:
                column = metadata.schema.columns[number]
                values, starts = _allocated(metadata, column, clusters)
                self._found[number] = values, starts
                for cluster, start in zip(clusters, starts, strict=True):
                    pages += _pages(metadata, column, cluster, values, start)
            places = [page.place for page in pages]
            use = partial(_decode_page, pages)
            self._fetch = _begin(store, metadata, places, use, options)
        except ValueError as error:
            raise ObjectDamagedError(store.uri, "", str(error)) from error
        self._lock = threading.Lock()
        columns = [metadata.schema.columns[number] for number in self._found]
        self._relative = {
            column.number: rebase_offsets if column.index else rebase_switches
            for column in columns
            if column.index or column.kind == "switch"
        }

    def result(self) -> dict[int, _Values]:
        """Return the columns by number when they are there.

        They have shape ``(n_elements,)``. Offsets, and places in the alternatives of a variant,
        count from the first cluster's begin; offsets have a 0 before the first. Raises
        ObjectStoreError where a page is missing or damaged, or the store fails.
        """
        self._fetch.result()
        with self._lock:
            for number, rebase in self._relative.items():
                rebase(*self._found[number])
            self._relative = {}
        return {number: values for number, (values, _) in self._found.items()}

    def wait(self) -> None:
        """Return when the columns are there, or can't be had."""
        self._fetch.wait()

    def cancel(self) -> None:
        """Fetch no more."""
        self._fetch.cancel()


def _allocated(
    metadata: Metadata, column: ColumnInfo, clusters: Sequence[Cluster]
) -> tuple[_Values, list[int]]:
    """Return memory for a column, 0 where nothing was written, and where each cluster begins."""
    first = clusters[0].first_entry if clusters else 0
    place = max(column.first_element - first, 0) + column.index
    starts = []
    for cluster in clusters:
        starts.append(place)
        _, pages = _primary(metadata, column, cluster)
        place += pages.count if pages is not None else 0
    values = page_pool().empty(place, column.result)
    values[: starts[0] if starts else place] = 0
    return values, starts


def _primary(
    metadata: Metadata, column: ColumnInfo, cluster: Cluster
) -> tuple[ColumnInfo, ColumnPages | None]:
    """Return the representation of a column that has a cluster's data."""
    for number in (column.number, *column.alternatives):
        # A column that was added later has no pages in earlier clusters.
        pages = cluster.columns[number] if number < len(cluster.columns) else None
        if pages is not None and not pages.suppressed:
            return metadata.schema.columns[number], pages
    return column, None


def _pages(
    metadata: Metadata, column: ColumnInfo, cluster: Cluster, values: _Values, start: int
) -> list[_Page]:
    """Return the pages of a column in a cluster, whose elements go to ``values[start:]``."""
    stored, pages = _primary(metadata, column, cluster)
    if pages is None:
        return []
    found = []
    for count, place, checksummed in zip(
        pages.elements.tolist(), _ranges(pages), pages.checksummed.tolist(), strict=True
    ):
        out = values[start : start + count]
        found.append(_Page(place, checksummed, stored, out))
        start += count
    return found


def _ranges(pages: ColumnPages) -> list[ObjectRange]:
    """Return where pages are, with the checksums behind them."""
    lengths = pages.nbytes + CHECKSUM_BYTES * pages.checksummed
    fields = zip(pages.objects.tolist(), pages.offsets.tolist(), lengths.tolist(), strict=True)
    return list(map(ObjectRange._make, fields))


def request_groups(ranges: Sequence[ObjectRange], options: ReadOptions) -> list[list[MergedRange]]:
    """Return the requests for some ranges, in groups that are fetched and decoded together."""
    groups: list[list[MergedRange]] = []
    nbytes = 0
    for merged in coalesced(ranges, options.gap_bytes, options.request_bytes):
        if (
            not groups
            or len(groups[-1]) == options.requests_ahead
            or nbytes + merged.length > options.group_bytes
        ):
            groups.append([])
            nbytes = 0
        groups[-1].append(merged)
        nbytes += merged.length
    return groups


def _begin(
    store: Store,
    metadata: Metadata,
    places: Sequence[ObjectRange],
    use: Callable[[int, memoryview], None],
    options: ReadOptions,
) -> Fetch:
    """Begin to fetch pages; ``use`` is called with the position and bytes of each."""
    groups = request_groups(places, options)

    def use_group(number: int, answers: Sequence[Buffer]) -> None:
        for merged, data in zip(groups[number], answers, strict=True):
            name, view = metadata.name_of(merged.object), memoryview(data).cast("B")
            if len(view) != merged.length:
                problem = f"{len(view)} bytes came of {merged.length}"
                raise ObjectDamagedError(store.uri, name, problem)
            for position in merged.members:
                place = places[position]
                begin = place.start - merged.start
                try:
                    use(position, view[begin : begin + place.length])
                except ValueError as error:
                    problem = f"page at byte {place.start}: {error}"
                    raise ObjectDamagedError(store.uri, name, problem) from error

    requests = [
        [Request(metadata.name_of(merged.object), merged.start, merged.length) for merged in group]
        for group in groups
    ]
    return Fetch(store, requests, use_group, options.groups_ahead, options.requests_ahead)


def _decode_page(pages: Sequence[_Page], position: int, data: memoryview) -> None:
    page = pages[position]
    decode(payload(data, page.checksummed), page.column, page.out)


def sealed_cluster(store: Store, metadata: Metadata, number: int) -> list[SealedColumn]:
    """Return the pages of all columns of a cluster, as stored; checksums are verified.

    Raises ObjectStoreError where a page is missing or damaged, or the store fails.
    """
    columns = metadata.clusters[number].columns
    places = [place for column in columns for place in _ranges(column)]
    checksummed = [flag for column in columns for flag in column.checksummed.tolist()]
    elements = [count for column in columns for count in column.elements.tolist()]
    pages: list[SealedPage] = [SealedPage(0, b"", checksummed=False)] * len(places)

    def take(position: int, data: memoryview) -> None:
        payload(data, checksummed[position])
        # The memory is used again for what comes next.
        pages[position] = SealedPage(elements[position], bytes(data), checksummed[position])

    _begin(store, metadata, places, take, ReadOptions()).result()
    rest = iter(pages)
    return [
        SealedColumn(
            list(islice(rest, len(column.elements))), column.compression, column.first_element
        )
        for column in columns
    ]
