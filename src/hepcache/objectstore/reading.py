"""Columns of some clusters: planned, fetched, decompressed and decoded at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ObjectDamagedError
from hepcache.objectstore.fetch import Fetch
from hepcache.objectstore.metadata import Metadata
from hepcache.objectstore.pagelist import CHECKSUM_BYTES, Cluster, ColumnPages
from hepcache.objectstore.pages import decode, payload, rebase
from hepcache.objectstore.plan import Piece, Wanted, batches, coalesced
from hepcache.objectstore.schema import ColumnInfo
from hepcache.objectstore.store import Request, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Columns", "Options", "read_raw"]

_Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How pages are fetched.

    Attributes
    ----------
    gap_bytes
        Unwanted bytes between two pages that cost less than a request.
    request_bytes
        Bytes of one request.
    group_bytes
        Bytes that are decoded together: what a processor's own cache holds,
        and memory that the next group gets again.
    ahead, requests_ahead
        Groups and requests under way behind the group that is decoded.
    """

    gap_bytes: int = 64 << 10
    request_bytes: int = 4 << 20
    group_bytes: int = 512 << 10
    ahead: int = 32
    requests_ahead: int = 128


@dataclass(frozen=True, slots=True)
class _Job:
    """One page: where it is, and where its elements go."""

    wanted: Wanted
    nbytes: int
    checksummed: bool
    column: ColumnInfo
    out: _Values


class Columns:
    """Columns of the clusters ``low`` to ``high``, which are under way when this returns.

    The thread that asks gives the memory, for what it lets go of is there for
    the next time.

    Parameters
    ----------
    store
        Where the pages are.
    metadata
        The ntuple.
    numbers
        Numbers of columns.
    low, high
        Range of clusters.
    options
        How to fetch.

    Raises
    ------
    ObjectDamagedError
        The metadata is damaged.
    """

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        numbers: Iterable[int],
        low: int,
        high: int,
        options: Options,
    ) -> None:
        clusters = metadata.clusters[low:high]
        jobs: list[_Job] = []
        self._found: dict[int, tuple[_Values, list[int]]] = {}
        try:
            for number in numbers:
                column = metadata.schema.columns[number]
                values, starts = _room(metadata, column, clusters)
                self._found[number] = values, starts
                for cluster, start in zip(clusters, starts, strict=True):
                    jobs += _jobs(metadata, column, cluster, values, start)
            groups = _groups(jobs, options)
            use = partial(_decode_all, store, metadata, jobs, groups)
            self._fetch = _begun(store, metadata, groups, options, use)
        except ValueError as error:
            raise ObjectDamagedError(store.uri, "", str(error)) from error
        self._lock = threading.Lock()
        self._relative = [one for one in self._found if metadata.schema.columns[one].index]

    def result(self) -> dict[int, _Values]:
        """Return the columns when they are there.

        Returns
        -------
        dict
            Number to elements, shape ``(n_elements,)``. Offsets count from
            the first cluster's begin, with a 0 before the first.

        Raises
        ------
        ObjectStoreError
            A page is missing or damaged, or the store fails.
        """
        self._fetch.result()
        with self._lock:
            for number in self._relative:
                rebase(*self._found[number])
            self._relative = []
        return {number: values for number, (values, _) in self._found.items()}

    def wait(self) -> None:
        """Return when the columns are there, or can't be had."""
        self._fetch.wait()

    def cancel(self) -> None:
        """Fetch no more."""
        self._fetch.cancel()


def _room(
    metadata: Metadata, column: ColumnInfo, clusters: Sequence[Cluster]
) -> tuple[_Values, list[int]]:
    """Return space for a column, zero where nothing was written, and where each cluster begins."""
    first = clusters[0].first_entry if clusters else 0
    place = max(column.first_element - first, 0) + column.index
    starts = []
    for cluster in clusters:
        starts.append(place)
        _, pages = _primary(metadata, column, cluster)
        place += pages.count if pages is not None else 0
    values = np.empty(place, column.result)
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


def _jobs(
    metadata: Metadata, column: ColumnInfo, cluster: Cluster, values: _Values, place: int
) -> list[_Job]:
    stored, pages = _primary(metadata, column, cluster)
    if pages is None:
        return []
    jobs = []
    fields = zip(
        pages.elements.tolist(), pages.objects.tolist(), pages.offsets.tolist(),
        pages.nbytes.tolist(), pages.checksummed.tolist(), strict=True,
    )  # fmt: skip
    for count, number, offset, nbytes, checksummed in fields:
        wanted = Wanted(number, offset, nbytes + CHECKSUM_BYTES * checksummed)
        jobs.append(_Job(wanted, nbytes, checksummed, stored, values[place : place + count]))
        place += count
    return jobs


def read_raw(
    store: Store, metadata: Metadata, numbers: Iterable[int], low: int, high: int, options: Options
) -> int:
    """Fetch what :class:`Columns` would, in the same requests, and decode nothing.

    It is the limit that a store sets, for benchmarks.

    Returns
    -------
    int
        Bytes that came.
    """
    jobs: list[_Job] = []
    nothing = np.zeros(0)
    for number in numbers:
        column = metadata.schema.columns[number]
        for cluster in metadata.clusters[low:high]:
            jobs += _jobs(metadata, column, cluster, nothing, 0)
    sizes: list[int] = []

    def use(_: int, found: Sequence[Buffer]) -> None:
        sizes.append(sum(memoryview(data).nbytes for data in found))

    groups = _groups(jobs, options)
    _begun(store, metadata, groups, options, use).result()
    return sum(sizes)


def _groups(jobs: list[_Job], options: Options) -> list[list[Piece]]:
    pieces = coalesced([job.wanted for job in jobs], options.gap_bytes, options.request_bytes)
    return batches(pieces, options.group_bytes, options.requests_ahead)


def _begun(
    store: Store,
    metadata: Metadata,
    groups: list[list[Piece]],
    options: Options,
    use: Callable[[int, Sequence[Buffer]], None],
) -> Fetch:
    requests = [
        [Request(metadata.name_of(one.object), one.start, one.length) for one in group]
        for group in groups
    ]
    return Fetch(store, requests, use, options.ahead, options.requests_ahead)


def _decode_all(
    store: Store,
    metadata: Metadata,
    jobs: list[_Job],
    groups: list[list[Piece]],
    number: int,
    found: Sequence[Buffer],
) -> None:
    for piece, data in zip(groups[number], found, strict=True):
        view = memoryview(data).cast("B")
        if len(view) != piece.length:
            problem = f"{len(view)} bytes came of {piece.length}"
            raise ObjectDamagedError(store.uri, metadata.name_of(piece.object), problem)
        for member in piece.members:
            job = jobs[member]
            begin = job.wanted.start - piece.start
            try:
                page = payload(
                    view[begin : begin + job.wanted.length], job.nbytes, job.checksummed
                )
                decode(page, job.column, job.out)
            except ValueError as error:
                raise ObjectDamagedError(
                    store.uri,
                    metadata.name_of(piece.object),
                    f"page at byte {job.wanted.start}: {error}",
                ) from error
