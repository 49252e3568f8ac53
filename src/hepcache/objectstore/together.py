"""Many things at once, but a bounded number of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hepcache.objectstore.store import Request

__all__ = ["Deferred", "read_in_threads", "together"]

T = TypeVar("T")
R = TypeVar("R")


async def together(
    work: Callable[[T], Awaitable[R]], items: Sequence[T], concurrency: int
) -> list[R]:
    """Return what ``work`` makes of each item, at most ``concurrency`` at a time.

    The first failure cancels what is under way, and is raised.
    """
    found: list[R | None] = [None] * len(items)
    left = iter(range(len(items)))

    async def hand() -> None:
        for index in left:
            found[index] = await work(items[index])

    hands = [asyncio.ensure_future(hand()) for _ in range(min(concurrency, len(items)))]
    try:
        await asyncio.gather(*hands)
    except BaseException:
        for one in hands:
            one.cancel()
        await asyncio.gather(*hands, return_exceptions=True)
        raise
    return found  # type: ignore[return-value]  # every place is filled


async def read_in_threads(
    get_ranges: Callable[[str, Sequence[int], Sequence[int]], list[Buffer]],
    requests: Sequence[Request],
    concurrency: int,
) -> list[Buffer]:
    """Answer a vector read with calls that block: one per object, each in a thread.

    Parameters
    ----------
    get_ranges
        As in :class:`~hepcache.objectstore.store.Store`.
    requests
        What is wanted.
    concurrency
        Threads at a time.
    """
    groups = _by_object(requests)

    async def group(name: str) -> list[Buffer]:
        return await asyncio.to_thread(get_ranges, name, *_extents(requests, groups[name]))

    answers = await together(group, list(groups), concurrency)
    return _in_order(len(requests), groups, answers)


class Deferred:
    """A vector read that is done with calls that block, by the thread that asks for its result.

    Parameters
    ----------
    get_ranges
        As in :class:`~hepcache.objectstore.store.Store`.
    requests
        What is wanted.
    """

    def __init__(
        self,
        get_ranges: Callable[[str, Sequence[int], Sequence[int]], list[Buffer]],
        requests: Sequence[Request],
    ) -> None:
        self._get_ranges, self._requests = get_ranges, requests

    def result(self) -> list[Buffer]:
        """Read."""
        requests, groups = self._requests, _by_object(self._requests)
        answers = [
            self._get_ranges(name, *_extents(requests, some)) for name, some in groups.items()
        ]
        return _in_order(len(requests), groups, answers)

    def cancel(self) -> None:
        """Do nothing: it has not begun."""


def _by_object(requests: Sequence[Request]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for index, request in enumerate(requests):
        groups.setdefault(request.name, []).append(index)
    return groups


def _extents(requests: Sequence[Request], indexes: Sequence[int]) -> tuple[list[int], list[int]]:
    some = [requests[index] for index in indexes]
    return [one.start for one in some], [one.length for one in some]


def _in_order(
    count: int, groups: dict[str, list[int]], answers: Sequence[Sequence[Buffer]]
) -> list[Buffer]:
    found: list[Buffer] = [b""] * count
    for indexes, answer in zip(groups.values(), answers, strict=True):
        for index, data in zip(indexes, answer, strict=True):
            found[index] = data
    return found
