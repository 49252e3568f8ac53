"""The price of a chunk away from its columns, as part of Dask's own cost of moving a task.

Dask asks ``Scheduler.get_comm_cost`` both when it chooses a worker and when
an idle worker would steal. With the seconds that a host would need to read
again what another host holds added there, stealing happens only when waiting
costs more than reading again; there is no second rule beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["install_price", "remove_price"]


def install_price(scheduler: Any, price: Callable[[Any, Any], float]) -> None:
    """Add a price to the scheduler's cost of running a task on a worker.

    Parameters
    ----------
    scheduler
        A distributed Scheduler.
    price
        ``price(task_state, worker_state)`` returns seconds.
    """
    # The stealing extension asks the same object, so one override serves both.
    stock = type(scheduler).get_comm_cost.__get__(scheduler)

    def get_comm_cost(ts: Any, ws: Any) -> float:
        return float(stock(ts, ws)) + price(ts, ws)

    scheduler.get_comm_cost = get_comm_cost


def remove_price(scheduler: Any) -> None:
    """Give the scheduler its own cost back."""
    vars(scheduler).pop("get_comm_cost", None)
