"""What hepcache changes in Dask's work stealing, and what it uses of it.

Dask steals by the average duration of all tasks of a kind and by the size of
their inputs; it knows nothing of columns on an SSD. Chunks are therefore
taken out of its hands, and moved by hepcache's own rule with Dask's own
protocol, in which the worker that has a task must confirm that it has not
begun it. All that is private of distributed is in this module, and
``tests/placement/test_stealing.py`` fails by name when an upgrade changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["in_flight", "install", "occupied_threads", "request_move", "uninstall"]


def install(
    scheduler: Any, *, is_ours: Callable[[Any], bool], price_s: Callable[[Any, Any], float]
) -> None:
    """Keep Dask from stealing our tasks, and let it know what a miss costs.

    Parameters
    ----------
    scheduler
        A distributed Scheduler.
    is_ours
        Whether a key is one of ours.
    price_s
        ``price_s(task_state, worker_state)`` returns the seconds in which a
        worker's host would read what it lacks: part of Dask's own cost of
        running a task on a worker, where Dask chooses one.
    """
    stock_cost = type(scheduler).get_comm_cost.__get__(scheduler)

    def get_comm_cost(ts: Any, ws: Any) -> float:
        return float(stock_cost(ts, ws)) + (price_s(ts, ws) if is_ours(ts.key) else 0.0)

    scheduler.get_comm_cost = get_comm_cost
    extension = scheduler.extensions.get("stealing")
    if extension is None:
        return
    stock_put = type(extension).put_key_in_stealable.__get__(extension)

    def put_key_in_stealable(ts: Any) -> None:
        if not is_ours(ts.key):
            stock_put(ts)

    extension.put_key_in_stealable = put_key_in_stealable


def uninstall(scheduler: Any) -> None:
    """Give the scheduler its own ways back."""
    vars(scheduler).pop("get_comm_cost", None)
    extension = scheduler.extensions.get("stealing")
    if extension is not None:
        vars(extension).pop("put_key_in_stealable", None)


def request_move(scheduler: Any, ts: Any, thief: Any) -> bool:
    """Ask the worker that has a task to give it up for another one.

    Parameters
    ----------
    scheduler, ts, thief
        The scheduler, a task that is processing, and the worker state to move it to.

    Returns
    -------
    bool
        Whether it was asked; its answer shows in ``ts.processing_on`` once
        the task is no longer :func:`in_flight`.
    """
    extension = scheduler.extensions.get("stealing")
    if extension is None or ts.processing_on is None or ts.processing_on is thief:
        return False
    answer: str = extension.move_task_request(ts, ts.processing_on, thief)
    return answer not in ("in-flight", "comm-closed")


def in_flight(scheduler: Any, ts: Any) -> bool:
    """Tell whether a worker has still to say whether it gives a task up."""
    extension = scheduler.extensions.get("stealing")
    return extension is not None and ts in extension.in_flight


def occupied_threads(ws: Any) -> int:
    """Return how many threads of a worker work on tasks that were cancelled meanwhile."""
    return int(ws.metrics.get("task_counts", {}).get("cancelled", 0))
