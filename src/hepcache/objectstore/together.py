"""Many things at once, but a bounded number of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hepcache.objectstore.store import Request

__all__ = ["read_in_threads", "together"]

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
    groups: dict[str, list[int]] = {}
    for index, request in enumerate(requests):
        groups.setdefault(request.name, []).append(index)

    async def group(name: str) -> list[Buffer]:
        wanted = [requests[index] for index in groups[name]]
        starts, lengths = [one.start for one in wanted], [one.length for one in wanted]
        return await asyncio.to_thread(get_ranges, name, starts, lengths)

    found: list[Buffer] = [b""] * len(requests)
    answers = await together(group, list(groups), concurrency)
    for indexes, answer in zip(groups.values(), answers, strict=True):
        for index, data in zip(indexes, answer, strict=True):
            found[index] = data
    return found
