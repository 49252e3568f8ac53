"""Tasks of chunks: short chunks several to a task, the last long ones in parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

TARGET_S = 1.0
"""A task of this length costs the scheduler a thousandth of its own time."""

# The scheduler's and the client's time for one task. No task is shorter than the time in which
# they see to one of every thread, or threads would wait for them.
_TASK_S = 1e-3
_FEWEST = 2  # tasks of each thread all the same, so that something can be taken over
_FINER = 4  # what is left is given away in this many rounds, each shorter than the last
_TRAIL = 0.05
_LEAST_PART_S = 0.1
_MOST_SPLITS = 256


def batched(
    owners: Sequence[str], seconds: Sequence[float], threads: Mapping[str, int]
) -> list[list[int]]:
    """Group the chunks of each host into tasks.

    It returns numbers of the chunks of every task, the longest first. A task lasts about
    :data:`TARGET_S` at most, unless one chunk does, and less towards the end, so that threads of a
    host end together; but not so little that the scheduler of many threads falls behind.

    >>> batched(["a"] * 6, [2.0, 0.4, 0.4, 0.3, 0.3, 0.2], {"a": 1})
    [[0], [1], [2], [3], [4], [5]]
    >>> [len(group) for group in batched(["a"] * 100, [0.1] * 100, {"a": 1})][:3]
    [10, 10, 10]
    """
    by_host = _by_host(owners)
    made: list[list[int]] = []
    cluster_s = _TASK_S * sum(threads.values())
    for owner, numbers in sorted(by_host.items()):
        workers = max(threads.get(owner, 1), 1)
        rounds = _FINER * workers
        left = sum(seconds[number] for number in numbers)
        least_s = min(cluster_s, left / workers / _FEWEST)
        batch: list[int] = []
        filled = 0.0
        for number in sorted(numbers, key=lambda chunk: (-seconds[chunk], chunk)):
            limit = max(min(TARGET_S, left / rounds), least_s) + 1e-9
            if batch and filled + seconds[number] > limit:
                made.append(batch)
                left -= filled
                batch = []
                filled = 0.0
            batch.append(number)
            filled += seconds[number]
        made.append(batch)
    return made


def parts(
    owners: Sequence[str], seconds: Sequence[float], threads: Mapping[str, int]
) -> list[int]:
    """Return into how many parts to cut each chunk, so that no thread trails at the end.

    Threads take the longest chunk that is left. Where the last of them would
    end more than a twentieth after the others would on average, the chunk
    that it takes last is halved, and so on.

    ``owners``, ``seconds``, ``threads``: as for :func:`batched`.

    >>> parts(["a"] * 5, [1.0] * 5, {"a": 4})
    [1, 1, 1, 1, 4]
    """
    cut = [1] * len(owners)
    by_host = _by_host(owners)
    total = sum(seconds)
    everyone = sum(max(threads.get(owner, 1), 1) for owner in by_host)
    for owner, numbers in by_host.items():
        workers = max(threads.get(owner, 1), 1)
        fair = max(sum(seconds[number] for number in numbers) / workers, total / everyone)
        # Only few long chunks can trail by so much.
        if max(seconds[number] for number in numbers) <= _TRAIL * fair:
            continue
        for _ in range(_MOST_SPLITS):
            end, last = _schedule(numbers, seconds, cut, workers)
            if end <= (1 + _TRAIL) * fair or seconds[last] / cut[last] < 2 * _LEAST_PART_S:
                break
            cut[last] *= 2
    return cut


def _by_host(owners: Sequence[str]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, owner in enumerate(owners):
        found[owner].append(number)
    return found


def _schedule(
    numbers: Sequence[int], seconds: Sequence[float], cut: Sequence[int], workers: int
) -> tuple[float, int]:
    """Return when the last thread ends, and the chunk that it takes last."""
    pieces = sorted(
        (
            (seconds[number] / cut[number], number)
            for number in numbers
            for _ in range(cut[number])
        ),
        key=lambda piece: (-piece[0], piece[1]),
    )
    ends = [(0.0, -1)] * workers
    heapify(ends)
    for length, number in pieces:
        heapreplace(ends, (ends[0][0] + length, number))
    return max(ends)
