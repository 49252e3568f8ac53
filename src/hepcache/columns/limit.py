"""How many requests a host has under way at one origin, over all its processes.

A file server answers a few dozen clients well and thousands badly, so all
workers of a host share a number of slots for each origin. A slot is a lock on
a byte of one file, which the kernel gives back however its holder ends.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from hepcache.cache.disk.locks import ByteLocks

__all__ = ["Limit"]

_MOST = 1024


class Limit:
    """Slots for requests at one origin.

    Parameters
    ----------
    path
        The file of locks; made where its directory is. Where there is none,
        nothing is limited.
    origin
        Whose slots.
    slots
        How many.
    """

    def __init__(self, path: Path, origin: str, slots: int) -> None:
        self.path, self.slots = path, min(slots, _MOST)
        # 62 bits number a lock: 52 for the origin, and 10 for the slot.
        self._first = (xxhash.xxh3_64_intdigest(origin.encode()) >> 12) * _MOST
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot, waiting until one is free."""
        locks = ByteLocks(self.path)
        try:
            begin = random.randrange(self.slots)  # noqa: S311 - no secret
            numbers = [self._first + (begin + number) % self.slots for number in range(self.slots)]
            # Whoever waits for one slot may miss that another is free; among several
            # who wait for different ones that costs little, and none waits for ever.
            if not any(locks.try_lock(number) for number in numbers):
                locks.lock(numbers[0])
            yield
        finally:
            locks.close()
