"""New files, opened by a cluster's workers: nine tenths of it is Python, on the client one core's.

A batch is opened by one worker. Where a batch kills its workers, each of its
files is tried alone, and the one that does is a bad file like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any
from uuid import uuid4

from distributed import Client, KilledWorker, as_completed

from hepcache.catalogue.catalogue import Opened, Target, open_all, open_batch
from hepcache.credentials import without_credentials
from hepcache.errors import BadFileError, ClusterError

__all__ = ["open_on_workers"]

_FEW = 16  # files that the client opens faster than it asks others to
_BATCH = 8  # files of a task: half a second's work


def open_on_workers(
    targets: Sequence[Target], options: Mapping[str, Any], *, client: Client, priority: int = 0
) -> Iterator[tuple[Target, Opened]]:
    """Open files on a cluster; a few of them, or without workers, here.

    Parameters
    ----------
    targets
        The files.
    options
        Options for ``uproot.open``.
    client
        Of the cluster, whose workers see the files under the same paths.
    priority
        Of the tasks, as for Dask.

    Yields
    ------
    target, opened
        As the files are opened: the file, and what it holds or why it can't
        be opened. One that killed all workers that opened it can't.

    Raises
    ------
    ClusterError
        The scheduler has gone.
    """
    threads = _threads_of(client) if len(targets) > _FEW else 0
    if not threads:
        yield from open_all(targets, options)
        return
    size = min(_BATCH, math.ceil(len(targets) / threads))
    batches = [targets[first : first + size] for first in range(0, len(targets), size)]
    suspects = list[Target]()
    for batch, results in _opened(client, batches, options, priority):
        if results is None:
            suspects += batch
        else:
            yield from zip(batch, results, strict=True)
    # One at a time: only what is alone on its worker is to blame for its death.
    for target in suspects:
        for _, results in _opened(client, [[target]], options, priority):
            yield target, _killer(target) if results is None else results[0]


def _opened(
    client: Client, batches: Iterable[Sequence[Target]], options: Mapping[str, Any], priority: int
) -> Iterator[tuple[Sequence[Target], Sequence[Opened] | None]]:
    """Yield batches with what came of them; ``None`` where that killed the workers."""
    name = f"hepcache-open-{uuid4().hex}"
    futures = {
        client.submit(open_batch, batch, options, key=(name, number), priority=priority): batch
        for number, batch in enumerate(batches)
    }
    try:
        for future in as_completed(list(futures), loop=client.loop):
            batch = futures.pop(future)
            try:
                yield batch, future.result()
            except KilledWorker:
                yield batch, None
            except (CancelledError, OSError) as error:
                if client.status == "running":
                    raise
                raise ClusterError(
                    "the connection to the scheduler was lost while files were opened; those "
                    "that were are known: connect to a scheduler that runs, and run again"
                ) from error
    finally:
        if client.status == "running":
            client.cancel(list(futures))


def _threads_of(client: Client) -> int:
    """Return how many threads there are; none where the scheduler has gone, which a run tells."""
    try:
        return sum(client.nthreads().values())
    except OSError:
        return 0


def _killer(target: Target) -> BadFileError:
    problem = (
        "each worker that opened it died; it is damaged in a way that its library does not "
        "survive, or needs more memory than a worker has"
    )
    return BadFileError({without_credentials(target.path): problem})
