"""What a client asks of the scheduler: plans of runs, and answers of workers in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distributed import Client
from distributed.protocol.pickle import dumps

from hepcache.scheduling.queues import Queued
from hepcache.scheduling.task_keys import ChunkKey, belongs_to
from hepcache.upstream.distributed import unpacked

_SCHEDULER_S = 4.0

NAME = "hepcache-placement"
"""Name of the scheduler's plugin."""


def topic_of(client: str) -> str:
    """Return the topic under which a client hears of its runs, by the client's id.

    There is one for all of them: Dask forgets no topic and no handler of one.
    """
    return f"hepcache-{client}"


def plan_run(
    run: str,
    chunks: Sequence[ChunkKey],
    seconds: Sequence[float] | None,
    columns: Sequence[str],
    speeds: Mapping[str, float],
    duplicates: float | None = None,
    topic: str = "",
    user: str = "",
    dask_scheduler: Any = None,
) -> tuple[tuple[str, ...], dict[str, int] | None]:
    """Choose a host for every chunk of a run.

    ``seconds``: expected duration of each where its columns are; ``None`` for its entries.
    ``speeds``: measured speeds of hosts; 1 where none was measured.
    ``duplicates``: how many times longer than expected a task may take before an idle host tries
    it too; ``None`` for ever.
    ``user``: whose run it is; users take turns.
    It returns the host of each chunk, ``""`` where there is no worker, and the threads of every
    host; ``None`` where the scheduler has no plugin.
    """
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        return ("",) * len(chunks), None
    plan = plugin.run(run)
    plan.residency, plan.duplicates = plugin.residency.of(columns), duplicates
    plan.topic, plan.user = topic, user
    owners = plugin.owners(chunks, seconds, dict(speeds), plan.residency)
    return owners, plugin.workers.threads()


def announce(run: str, tasks: Sequence[Queued], dask_scheduler: Any = None) -> None:
    """Say which chunks the tasks carry that are about to arrive, and where they belong."""
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is not None:
        plugin.run(run).tasks.update({task.key: task for task in tasks})


def places_of(
    keys: Sequence[Any], dask_scheduler: Any = None
) -> tuple[dict[Any, tuple[str, int]], int]:
    """Return the machine on which each result lies, and its size.

    It returns the smallest memory of a thread of these workers too; 0 where none is limited.
    """
    places = {}
    limits = set[int]()
    for key in keys:
        task = dask_scheduler.tasks.get(key)
        worker = next(iter(task.who_has or ()), None) if task is not None else None
        places[key] = (
            "" if worker is None else worker.host,
            0 if task is None else max(task.nbytes, 0),
        )
        if worker is not None and worker.memory_limit and worker.nthreads:
            limits.add(worker.memory_limit // worker.nthreads)
    return places, min(limits, default=0)


def forget_run(run: str, dask_scheduler: Any = None, *, client: str = "") -> None:
    """Forget a run that has ended, and release what a client holds of it.

    The client's own releases travel another way, and may come later than what it asks next.
    """
    if client in dask_scheduler.clients:
        wanted = dask_scheduler.clients[client].wants_what
        keys = [task.key for task in wanted if belongs_to(task.key, run)]
        dask_scheduler.client_releases_keys(keys=keys, client=client)
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is not None:
        # Chunks that are tried again carry the run's id and the number of the attempt.
        for known in [name for name in plugin.runs if name.startswith(run)]:
            del plugin.runs[known]


def ask_workers(
    client: Client, function: Callable[..., Any], *, within_s: float, **arguments: Any
) -> tuple[dict[str, Any], int]:
    """Call a function on all workers, and wait so long for what they return.

    ``Client.run`` waits for the last of them, and one that hangs never answers.

    ``function``: what ``Client.run`` takes. A worker that waits in it hears nobody, so what may
    take long is a coroutine function. The scheduler need not be able to import it.
    Raises ``TimeoutError``: the scheduler said nothing either.
    """
    message = {"op": "run", "function": dumps(function), "kwargs": dumps(arguments)}
    asked: tuple[dict[str, Any], int] = client.run_on_scheduler(
        _answers, message=message, within_s=within_s, callback_timeout=within_s + _SCHEDULER_S
    )
    return asked


def ask_hosts(
    client: Client, function: Callable[..., Any], *, within_s: float, **arguments: Any
) -> dict[str, tuple[list[str], int, Any]]:
    """Call a function on one worker of every host, and wait so long for what they return.

    ``function``: as for :func:`ask_workers`.
    It returns by host its workers' addresses, their threads, and the answer; of those that
    answered.
    """
    message = {"op": "run", "function": dumps(function), "kwargs": dumps(arguments)}
    asked: dict[str, tuple[list[str], int, Any]] = client.run_on_scheduler(
        _answers_of_hosts,
        message=message,
        within_s=within_s,
        callback_timeout=within_s + _SCHEDULER_S,
    )
    return asked


def tell_hosts(
    client: Client, function: Callable[..., Any], *, within_s: float, **arguments: Any
) -> None:
    """Call a function on one worker of every host, and wait for none of them.

    ``function``: as for :func:`ask_workers`.
    """
    message = {"op": "run", "function": dumps(function), "kwargs": dumps(arguments)}
    client.run_on_scheduler(
        _tell_hosts, message=message, within_s=within_s, callback_timeout=_SCHEDULER_S
    )


def _tell_hosts(message: Mapping[str, Any], within_s: float, dask_scheduler: Any = None) -> None:
    dask_scheduler.loop.add_callback(_answers_of_hosts, message, within_s, dask_scheduler)


async def _answers_of_hosts(
    message: Mapping[str, Any], within_s: float, dask_scheduler: Any = None
) -> dict[str, tuple[list[str], int, Any]]:
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        return {}
    threads = plugin.workers.threads()
    workers = {host: plugin.workers.of_host(host) for host in threads}
    chosen = {addresses[0]: host for host, addresses in workers.items() if addresses}
    found, _ = await answers(dask_scheduler, message, list(chosen), within_s=within_s)
    return {
        host: (workers[host], threads[host], found[address])
        for address, host in chosen.items()
        if address in found
    }


async def _answers(
    message: Mapping[str, Any], within_s: float, dask_scheduler: Any = None
) -> tuple[dict[str, Any], int]:
    return await answers(dask_scheduler, message, list(dask_scheduler.workers), within_s=within_s)


async def answers(
    scheduler: Any,
    message: Mapping[str, Any],
    workers: Sequence[str],
    *,
    within_s: float,
    nanny: bool = False,
) -> tuple[dict[str, Any], int]:
    """Send workers a message, and wait so long for what they answer.

    ``message``: as ``Scheduler.broadcast`` takes it.
    """
    asked = {
        worker: asyncio.ensure_future(
            scheduler.broadcast(
                msg=dict(message), workers=[worker], nanny=nanny, on_error="ignore"
            )
        )
        for worker in workers
    }
    late = set[asyncio.Future[Any]]()
    if asked:
        _, late = await asyncio.wait(asked.values(), timeout=within_s)
    for task in late:
        task.cancel()
    replies = {worker: task.result() for worker, task in asked.items() if task not in late}
    return {
        worker: unpacked(reply[worker]["result"])
        for worker, reply in replies.items()
        if worker in reply and reply[worker]["status"] == "OK"
    }, len(asked)
