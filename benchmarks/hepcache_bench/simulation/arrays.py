"""What the engine works on: arrays by role, in tuples that compiled code understands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Caches", "Hosts", "Queues", "Record", "Running", "Work"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Hosts(NamedTuple):
    """Hosts.

    Shape ``(n_hosts,)`` each: bytes/s of link and disk, relative speed, bytes of cache, slots;
    and ``first``, shape ``(n_hosts + 1,)``: where each host's slots begin.
    """

    links: Floats
    disks: Floats
    speeds: Floats
    capacities: Floats
    slots: Integers
    first: Integers


class Work(NamedTuple):
    """Chunks.

    Shape ``(n_chunks,)`` each: bytes to read, seconds to process on a host of speed one, seconds
    expected, and the host that would own the chunk next.
    """

    sizes: Floats
    seconds: Floats
    expected: Floats
    next_owner: Integers


class Queues(NamedTuple):
    """What waits.

    Chunks in the order of their turns, all queues in one array; where each queue begins and
    ends, the expected seconds in it, and the queue that every slot serves.
    """

    chunks: Integers
    heads: Integers
    tails: Integers
    left: Floats
    of_slot: Integers


class Caches(NamedTuple):
    """What hosts hold.

    The cycle in which each host last used each chunk, 0 where it does not hold it, shape
    ``(n_chunks, n_hosts)``; bytes that each host holds; hosts that hold each chunk.
    """

    held: NDArray[np.uint16]
    used: Floats
    copies: NDArray[np.int32]


class Running(NamedTuple):
    """What goes on.

    Of slots: what they do, until when (bytes served, or a time), with which chunk. Of hosts: how
    many slots read from the origin and from the disk, bytes that each of them was served until
    ``since``, the rate of each from the origin; when the disk or a processor is done next, and
    bytes served when the first reader from the origin is. ``level``, shape ``(1,)``: what a
    reader from the origin gets that no link limits.
    """

    state: NDArray[np.int8]
    target: Floats
    chunk: Integers
    readers: Integers
    disk_readers: Integers
    served: Floats
    disk_served: Floats
    since: Floats
    rates: Floats
    soonest: Floats
    net_first: Floats
    level: Floats


class Record(NamedTuple):
    """What happened to each chunk: where, from when to when, whether the host held it."""

    host: Integers
    begin: Floats
    end: Floats
    hit: NDArray[np.bool_]
