"""What the parts of the service say to each other."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

__all__ = ["HANDLER", "MAP_HANDLER", "Entry", "wanted_servers"]

HANDLER = "hepcache_eventstore"
"""Name of the handler on every worker that serves shards."""

MAP_HANDLER = "hepcache_eventstore_map"
"""Name of the handler on the scheduler that knows which servers have which shard."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a shard is.

    Attributes
    ----------
    epoch
        Grows with every change; a request with an old one is refused.
    servers
        Names of the servers that hold all of it, never their addresses; the first takes
        the writes and hands them on to the others.
    """

    epoch: int
    servers: tuple[str, ...]


def wanted_servers(shard: int, servers: list[str], replicas: int) -> tuple[str, ...]:
    """Return the servers on which a shard should be, best first.

    By rendezvous hashing: one server more or less moves only the shards that it gains or
    loses, in whatever order they are listed.
    """
    ranked = sorted(
        servers,
        key=lambda name: (xxhash.xxh3_64_intdigest(f"{shard}/{name}".encode()), name),
        reverse=True,
    )
    return tuple(ranked[: max(1, replicas)])
