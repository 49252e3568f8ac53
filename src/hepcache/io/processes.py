"""Worker processes for tasks that share nothing."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from hepcache.io.threads import usable_cores

_T = TypeVar("_T")


def in_processes(
    function: Callable[..., _T], tasks: Sequence[tuple[Any, ...]], jobs: int | None = None
) -> Iterator[_T]:
    """Yield what a function returns for the arguments of each task, in their order.

    ``jobs``: processes, as many as there are cores by default. With one task or one job this
    process does the work.
    """
    workers = min(jobs or usable_cores(), len(tasks))
    if workers <= 1:
        yield from itertools.starmap(function, tasks)
        return
    # A fork would copy locks that the caller's threads hold.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(function, *zip(*tasks, strict=True))
