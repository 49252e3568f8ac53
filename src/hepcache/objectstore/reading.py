"""Columns of some clusters: planned, fetched, decompressed and decoded at once."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ObjectDamagedError
from hepcache.objectstore.background import workers
from hepcache.objectstore.metadata import Metadata
from hepcache.objectstore.pagelist import CHECKSUM_BYTES, Cluster, ColumnPages
from hepcache.objectstore.pages import decode, payload, rebase
from hepcache.objectstore.plan import Piece, Wanted, batches, coalesced
from hepcache.objectstore.schema import ColumnInfo
from hepcache.objectstore.store import Request, Store

__all__ = ["Options", "read_columns", "read_raw"]

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
    batch_bytes, batch_requests
        Bytes and requests that are decoded together when all are there.
    batches
        Batches under way at a time.
    """

    gap_bytes: int = 64 << 10
    request_bytes: int = 4 << 20
    batch_bytes: int = 8 << 20
    batch_requests: int = 32
    batches: int = 4


_HERE_BYTES = 1 << 20
"""Bytes that are decoded together where they are read from this machine: what a processor's
own cache holds, and memory that the next batch gets again."""
_LEAST_BYTES = 512 << 10
"""Bytes of a batch that are worth a turn of their own."""
_HERE_AHEAD = 16
"""Such batches that the kernel reads ahead."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One page: where it is, and where its elements go."""

    wanted: Wanted
    nbytes: int
    checksummed: bool
    column: ColumnInfo
    out: _Values


async def read_columns(
    store: Store, metadata: Metadata, numbers: Iterable[int], low: int, high: int, options: Options
) -> dict[int, _Values]:
    """Return columns of the clusters ``low`` to ``high``.

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

    Returns
    -------
    dict
        Number to elements, shape ``(n_elements,)``. Offsets count from the
        first cluster's begin, with a 0 before the first.

    Raises
    ------
    ObjectStoreError
        A page is missing or damaged, or the store fails.
    """
    clusters = metadata.clusters[low:high]
    jobs: list[_Job] = []
    found: dict[int, tuple[_Values, list[int]]] = {}
    try:
        for number in numbers:
            column = metadata.schema.columns[number]
            values, starts = _room(metadata, column, clusters)
            found[number] = values, starts
            for cluster, start in zip(clusters, starts, strict=True):
                jobs += _jobs(metadata, column, cluster, values, start)
    except ValueError as error:
        raise ObjectDamagedError(store.uri, "", str(error)) from error
    use = partial(_decode_all, store, metadata, jobs)
    await _fetch(store, metadata, jobs, options, use)
    for number, (values, starts) in found.items():
        if metadata.schema.columns[number].index:
            rebase(values, starts)
    return {number: values for number, (values, _) in found.items()}


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


async def read_raw(
    store: Store, metadata: Metadata, numbers: Iterable[int], low: int, high: int, options: Options
) -> int:
    """Fetch what :func:`read_columns` would, in the same requests, and decode nothing.

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

    def use(batch: list[Piece], _: Sequence[Any]) -> None:
        sizes.extend(piece.length for piece in batch)

    await _fetch(store, metadata, jobs, options, use)
    return sum(sizes)


async def _fetch(
    store: Store,
    metadata: Metadata,
    jobs: list[_Job],
    options: Options,
    use: Callable[[list[Piece], Sequence[Any]], None],
) -> None:
    pieces = coalesced([job.wanted for job in jobs], options.gap_bytes, options.request_bytes)
    if hasattr(store, "read_here"):
        await _read_here(store, metadata, pieces, use)
        return
    # While some batches are decoded, as many others arrive.
    arriving = asyncio.Semaphore(options.batches)
    there = asyncio.Semaphore(2 * options.batches)
    loop, pool = asyncio.get_running_loop(), workers()

    async def fetch(batch: list[Piece]) -> None:
        requests = [
            Request(metadata.name_of(piece.object), piece.start, piece.length) for piece in batch
        ]
        async with there:
            async with arriving:
                found = await store.read(requests)
            await loop.run_in_executor(pool, use, batch, found)

    # Little data is decoded in several threads, too, and while the rest arrives.
    least = min(_LEAST_BYTES, options.batch_bytes)
    share = sum(piece.length for piece in pieces) // (2 * options.batches)
    batch_bytes = min(options.batch_bytes, max(share, least))
    groups = batches(pieces, batch_bytes, options.batch_requests)
    tasks = [asyncio.ensure_future(fetch(batch)) for batch in groups]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _read_here(
    store: Any,
    metadata: Metadata,
    pieces: list[Piece],
    use: Callable[[list[Piece], Sequence[Any]], None],
) -> None:
    """Read and decode in the same threads, while the kernel reads ahead of them."""
    groups = batches(pieces, _HERE_BYTES, len(pieces))
    hint: Callable[[list[Request]], None] = getattr(store, "hint", lambda _: None)
    numbers, failed = itertools.count(), False

    def requests(group: list[Piece]) -> list[Request]:
        return [Request(metadata.name_of(one.object), one.start, one.length) for one in group]

    def work() -> None:
        for number in numbers:
            if number >= len(groups) or failed:
                return
            ahead = number + _HERE_AHEAD
            for group in groups[ahead if number else 1 : ahead + 1]:
                hint(requests(group))
            use(groups[number], store.read_here(requests(groups[number])))

    loop, pool = asyncio.get_running_loop(), workers()
    threads = min(len(os.sched_getaffinity(0)), len(groups))
    tasks = [loop.run_in_executor(pool, work) for _ in range(threads)]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        failed = True
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _decode_all(
    store: Store, metadata: Metadata, jobs: list[_Job], batch: list[Piece], found: Sequence[Any]
) -> None:
    for piece, data in zip(batch, found, strict=True):
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
