"""A coffea executor that sends chunks to the hosts that hold their columns."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coffea.processor import accumulate
from distributed import Client, get_client

from hepcache.errors import ClusterError
from hepcache.placement.calls import forget_run
from hepcache.placement.keys import RUN_DIGITS
from hepcache.process.dispatch import Dispatch
from hepcache.process.experience import Experience
from hepcache.process.progress import chunk_progress
from hepcache.process.tasks import Task
from hepcache.process.upstream import DaskExecutor, WorkItem, decompress
from hepcache.process.worker import settle

__all__ = ["Executor", "Journal", "current_client"]


@dataclass
class Journal:
    """What an executor did in its last run.

    Attributes
    ----------
    run
        The run's id, which its task keys carry.
    threads
        Threads of every host.
    stored
        Bytes written to SSDs, and what they decode to.
    experience
        What is known of the work before the run.
    divisible
        Whether chunks may be cut where that makes the run shorter.
    """

    run: str = ""
    threads: dict[str, int] = field(default_factory=dict)
    stored: tuple[int, int] = (0, 0)
    experience: Experience = field(default_factory=Experience)
    divisible: bool = False


@dataclass
class Executor(DaskExecutor):
    """coffea's Dask executor with hepcache's placement and merging.

    It takes what ``coffea.processor.DaskExecutor`` takes, and plugs into
    coffea's own Runner as well as into hepcache's. Chunks go to the host that
    holds their columns; partial results are merged as they complete, near
    where they were made.

    Parameters
    ----------
    client
        Client of a cluster that hepcache made or was attached to. ``None``:
        the current client.
    treereduction
        Results taken by one merge.
    journal
        Receives what was done; used by hepcache's Runner.
    """

    treereduction: int = 8
    journal: Journal = field(default_factory=Journal)

    def __call__(
        self,
        items: Sequence[Any],
        function: Callable[..., Any],
        accumulator: Any,
    ) -> tuple[Any, int]:
        """Map ``function`` over ``items`` and return ``(accumulator, 0)``."""
        items = list(items)
        if self.use_dataframes or not all(isinstance(item, WorkItem) for item in items):
            # Metadata and dataframes are not chunks: coffea's own way.
            result: tuple[Any, int] = super().__call__(items, function, accumulator)
            return result
        if not items:
            return accumulator, 0
        client = self.client or current_client()
        self.journal.run = run = uuids.uuid4().hex[:RUN_DIGITS]
        heavy = None
        if self.heavy_input is not None:
            heavy = client.submit(_same, self.heavy_input, key=f"hepcache-processor-{run}")
        dispatch = Dispatch(
            client,
            run,
            Task(function, self.compression, heavy is not None, f"hepcache-progress-{run}"),
            heavy,
            self.journal.experience,
            priority=self.priority,
            retries=self.retries,
            fan_in=self.treereduction,
            divisible=self.journal.divisible,
        )
        try:
            dispatch.send(items)
            chunks = [item for batch in dispatch.tasks.values() for item in batch]
            with chunk_progress(self.desc, chunks, shown=self.status) as progress:
                merged = dispatch.merged(progress)
            written = list(client.run(settle).values())
            self.journal.stored = sum(one for one, _ in written), sum(one for _, one in written)
            self.journal.threads = dispatch.threads
        finally:
            client.cancel(list(dispatch.tasks))
            client.run_on_scheduler(forget_run, run=run)
        return accumulate([decompress(merged), accumulator]), 0


def _same(value: Any) -> Any:
    return value


def current_client() -> Client:
    """Return the client that is in force here.

    Raises
    ------
    ClusterError
        There is none.
    """
    try:
        return get_client()
    except ValueError:
        raise ClusterError(
            "there is no Dask client: make one with hepcache.LocalCluster().client(), "
            "or pass client="
        ) from None
