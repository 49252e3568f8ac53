"""What a client asks the scheduler's plugin: plans of runs, for ``Client.run_on_scheduler``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hepcache.placement.keys import ChunkKey
from hepcache.placement.queues import Queued

__all__ = ["DUPLICATES", "NAME", "announce", "forget_run", "plan_run"]

NAME = "hepcache-placement"
"""Name of the scheduler's plugin."""

DUPLICATES = "hepcache-duplicates"
"""Begin of the topic, a run's id is its end, under which the scheduler says which task
should be tried by an idle host too, by its key."""


def plan_run(
    run: str,
    chunks: Sequence[ChunkKey],
    seconds: Sequence[float] | None,
    columns: Sequence[str],
    speeds: Mapping[str, float],
    duplicates: float | None = None,
    dask_scheduler: Any = None,
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Choose a host for every chunk of a run.

    Parameters
    ----------
    run
        The run's id.
    chunks
        Keys of its chunks.
    seconds
        Expected duration of each where its columns are; ``None`` for its entries.
    columns
        Columns that it will read, where that is known.
    speeds
        Measured speeds of hosts; 1 where none was measured.
    duplicates
        How many times longer than expected a task may take before an idle
        host tries it too; ``None`` for ever.
    dask_scheduler
        The scheduler, which Dask passes.

    Returns
    -------
    hosts
        The host of each chunk; ``""`` where there is no plugin or no worker.
    threads
        Threads of every host.
    """
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        return ("",) * len(chunks), {}
    plan = plugin.run(run)
    plan.residency, plan.duplicates = plugin.residency.of(columns), duplicates
    owners = plugin.owners(chunks, seconds, dict(speeds), plan.residency)
    return owners, plugin.roster.threads()


def announce(run: str, tasks: Sequence[Queued], dask_scheduler: Any = None) -> None:
    """Say which chunks the tasks carry that are about to arrive, and where they belong.

    Parameters
    ----------
    run
        The run's id.
    tasks
        The tasks.
    dask_scheduler
        The scheduler, which Dask passes.
    """
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is not None:
        plugin.run(run).tasks.update({task.key: task for task in tasks})


def forget_run(run: str, dask_scheduler: Any = None) -> None:
    """Forget a run that has ended.

    Parameters
    ----------
    run
        The run's id.
    dask_scheduler
        The scheduler, which Dask passes.
    """
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is not None:
        # Chunks that are tried again carry the run's id and the number of the attempt.
        for known in [one for one in plugin.runs if one.startswith(run)]:
            del plugin.runs[known]
