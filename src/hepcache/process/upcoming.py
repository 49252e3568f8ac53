"""The chunks that a worker will process next, for whoever wants to fetch ahead.

What of distributed is used here without its promise to keep it is tested by
``tests/process/test_upcoming.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from distributed import get_worker

from hepcache.placement.keys import is_chunk
from hepcache.process.upstream import WorkItem

__all__ = ["following", "upcoming"]

_here = threading.local()


@contextmanager
def following(items: Sequence[WorkItem]) -> Iterator[None]:
    """Note which chunks the running task will process after this one."""
    _here.items = tuple(items)
    try:
        yield
    finally:
        _here.items = ()


def upcoming(most: int = 8) -> list[WorkItem]:
    """Return the chunks that this worker will process next, as far as it knows.

    Parameters
    ----------
    most
        How many to return at most.

    Returns
    -------
    list of WorkItem
        First those of the running task, then those of tasks that wait, in
        the order in which the worker takes them. Outside a task there are none.

    Notes
    -----
    An idle worker may take over any of them before they are begun, so what
    is fetched ahead may turn out to have been fetched for nothing.
    """
    found = list(getattr(_here, "items", ()))
    try:
        waiting = sorted(get_worker().state.ready, key=_priority)
    except (RuntimeError, ValueError):
        # The event loop changed it meanwhile, and hints may be missed; or there is no worker.
        return found[:most]
    for task in waiting:
        if len(found) >= most:
            break
        if is_chunk(task.key):
            for argument in getattr(task.run_spec, "args", ()):
                found += getattr(argument, "items", ())
    return found[:most]


def _priority(task: Any) -> Any:
    return task.priority
