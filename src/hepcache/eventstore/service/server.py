"""The worker's side of the service: it keeps shards on its SSD, and reads and writes them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash
from distributed import WorkerPlugin
from distributed.core import CommClosedError
from distributed.protocol import to_serialize

from hepcache.errors import StoreError
from hepcache.eventstore.engines.lmdb import LmdbEngine
from hepcache.eventstore.keys import LOCATION
from hepcache.eventstore.shard.shard import QUERIES, LocalShard
from hepcache.io.atomic import sync, write_atomically

logger = logging.getLogger(__name__)

HANDLER = "hepcache_eventstore"
"""Name of the handler on every worker that serves shards."""

MAP_HANDLER = "hepcache_eventstore_map"
"""Name of the handler on the scheduler that knows which servers have which shard."""

_COPY_BYTES = 8 << 20
_THREADS = 4
_LOST = (OSError, CommClosedError, asyncio.TimeoutError)


class _StaleError(Exception):
    """The caller's map is old."""


@dataclass(frozen=True, slots=True)
class ShardLocation:
    """The names of the servers that hold all of a shard.

    The first takes the writes and hands them on to the others. The epoch grows with every
    change; a request with an old one is refused.
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


class StoreServer(WorkerPlugin):
    """Serves shards from a directory of its own, under the Dask worker's name.

    A nanny starts a killed worker anew under the same name, and it finds its shards where it
    left them.
    """

    name = "hepcache-eventstore"

    def __init__(self, directory: str, *, sync: bool = True) -> None:
        self.directory, self.sync = directory, sync

    def setup(self, worker: Any) -> None:
        """Begin to answer."""
        self.worker = worker
        self.server = str(worker.name)
        self.home = Path(self.directory).expanduser() / re.sub(r"[^\w.-]", "_", self.server)
        self.shards: dict[int, LocalShard] = {}
        self.locations: dict[int, ShardLocation] = {}
        self.locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.pool = ThreadPoolExecutor(_THREADS, "hepcache-eventstore")
        worker.handlers[HANDLER] = self.handle

    def teardown(self, worker: Any) -> None:
        """Close every shard."""
        worker.handlers.pop(HANDLER, None)
        self.pool.shutdown()
        for shard in self.shards.values():
            shard.close()
        self.shards.clear()

    async def handle(self, data: Any) -> dict[str, Any]:
        """Answer one call: ``(operation, shard, epoch, arguments)``."""
        operation, shard, epoch, arguments = data
        try:
            value = await getattr(self, f"do_{operation}")(shard, epoch, *arguments)
        except _StaleError:
            return {"stale": True}
        except Exception as error:
            return {"error": to_serialize(error)}
        return {"value": to_serialize(value)}

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.pool, function, *arguments)

    def _shard(self, shard: int) -> LocalShard:
        if shard not in self.shards:
            path = self.home / "shards" / f"{shard:04d}"
            self.shards[shard] = LocalShard(LmdbEngine(path, sync=self.sync))
        return self.shards[shard]

    async def _location(self, shard: int, epoch: int) -> ShardLocation:
        """Return the shard's location, looked up again when a caller knows a newer one."""
        known = self.locations.get(shard)
        if known is None or known.epoch < epoch:
            found = await self._ask_map("entry", shard)
            known = ShardLocation(found["epoch"], tuple(found["servers"]))
            await self._know(shard, known)
        return known

    async def _know(self, shard: int, location: ShardLocation) -> None:
        """Keep a location, also on the disk, so that a restart finds who was in step."""
        if self.server in location.servers:
            await self._run(_put_location, self._shard(shard), location)
        self.locations[shard] = location

    async def _ask_map(self, operation: str, *arguments: Any) -> Any:
        scheduler = self.worker.rpc(self.worker.scheduler.address)
        return await getattr(scheduler, MAP_HANDLER)(operation=operation, arguments=arguments)

    async def _mine(self, shard: int, epoch: int, *, first: bool) -> ShardLocation:
        location = await self._location(shard, epoch)
        allowed = location.servers[:1] if first else location.servers
        if self.server not in allowed or location.epoch != epoch:
            raise _StaleError
        return location

    # -- operations for clients

    async def do_read(
        self, shard: int, epoch: int, query: str, arguments: Any, options: Any
    ) -> Any:
        """Answer a query of a shard."""
        if query not in QUERIES:
            raise StoreError(f"shard {shard}", f"no query {query!r}")
        await self._mine(shard, epoch, first=False)
        local = self._shard(shard)
        return await self._run(lambda: local.query(QUERIES[query], *arguments, **options))

    async def do_info(self, shard: int, epoch: int) -> dict[str, Any]:
        """Return the figures of a shard's engine."""
        await self._mine(shard, epoch, first=False)
        return await self._run(self._shard(shard).info)  # type: ignore[no-any-return]

    async def do_apply(self, shard: int, epoch: int, operations: Any, token: Any) -> None:
        """Write here and on every other server of the shard, in one order."""
        async with self.locks[shard]:
            location = await self._mine(shard, epoch, first=True)
            await self._run(self._shard(shard).apply, operations, token)
            waiting = list(location.servers[1:])
            while waiting:
                try:
                    await self._call(
                        waiting[0], "follow", shard, location.epoch, operations, token
                    )
                    waiting.pop(0)
                    continue
                except _StaleError:
                    found = await self._ask_map("entry", shard)
                except Exception as error:
                    # Acknowledged only once the map says so.
                    logger.warning("event store: shard %s without %s: %s", shard, waiting, error)
                    found = await self._ask_map("drop", shard, waiting[0])
                before, location = location, ShardLocation(found["epoch"], tuple(found["servers"]))
                await self._know(shard, location)
                if location.epoch == before.epoch or location.servers[:1] != (self.server,):
                    raise _StaleError
                waiting = list(location.servers[1:])

    async def do_follow(self, shard: int, epoch: int, operations: Any, token: Any) -> None:
        """Repeat a write of the first server of the shard."""
        await self._mine(shard, epoch, first=False)
        await self._run(self._shard(shard).apply, operations, token)

    # -- operations for the map and other servers

    async def do_begin(self, shard: int, epoch: int, number: int, uuid: str) -> None:  # noqa: ARG002
        """Keep the description of the whole store."""
        await self._run(_describe, self.home, {"shards": number, "uuid": uuid})

    async def do_know(self, shard: int, epoch: int, servers: Any) -> None:
        """Keep the location of a shard."""
        await self._know(shard, ShardLocation(epoch, tuple(servers)))

    async def do_report(self, shard: int, epoch: int) -> dict[str, Any]:  # noqa: ARG002
        """Return the description of the store, and the entries of all shards here."""
        return await self._run(self._report)  # type: ignore[no-any-return]

    def _report(self) -> dict[str, Any]:
        path = self.home / "store.json"
        described = json.loads(path.read_bytes()) if path.exists() else {}
        entries = {}
        for directory in sorted((self.home / "shards").glob("[0-9]*")):
            found = self._shard(int(directory.name)).get(LOCATION)
            if found is not None:
                entries[int(directory.name)] = json.loads(found)
        return {**described, "entries": entries}

    async def do_move(self, shard: int, epoch: int, servers: Any) -> None:
        """Copy a shard to servers that lack it, then let the map name the new ones."""
        async with self.locks[shard]:
            location = await self._mine(shard, epoch, first=True)
            for server in servers:
                if server not in location.servers:
                    await self._copy(shard, server)
            found = await self._ask_map("commit", shard, location.epoch, list(servers))
            self.locations[shard] = moved = ShardLocation(found["epoch"], tuple(found["servers"]))
            for server in moved.servers:
                with contextlib.suppress(*_LOST):
                    await self._call(server, "know", shard, moved.epoch, moved.servers)

    async def _copy(self, shard: int, server: str) -> None:
        pieces = _pieces(self._shard(shard))
        first = True
        while (items := await self._run(next, pieces, None)) is not None:
            await self._call(server, "fill", shard, 0, items, first)
            first = False

    async def do_fill(self, shard: int, epoch: int, items: Any, first: bool) -> None:  # noqa: ARG002
        """Take a piece of a copy; the first one replaces everything here."""
        self.locations.pop(shard, None)
        await self._run(_fill, self._shard(shard), items, first)

    async def _call(self, server: str, operation: str, shard: int, epoch: int, *args: Any) -> Any:
        if server == self.server:
            return await getattr(self, f"do_{operation}")(shard, epoch, *args)
        addresses = await self._ask_map("addresses")
        if server not in addresses:
            raise OSError(f"server {server} is gone")
        remote = self.worker.rpc(addresses[server])
        message = to_serialize((operation, shard, epoch, args))
        answer = await getattr(remote, HANDLER)(data=message)
        if answer.get("stale"):
            raise _StaleError
        if "error" in answer:
            raise answer["error"]
        return answer["value"]


def _describe(home: Path, values: dict[str, Any]) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (home / "store.json").exists():
        text = json.dumps({"format": 1, **values}).encode()
        write_atomically(home / "store.json", text, mode=0o600, overwrite=False)
        sync(home)


def _put_location(shard: LocalShard, location: ShardLocation) -> None:
    with shard.engine.write() as view:
        view.put(LOCATION, json.dumps([location.epoch, location.servers]).encode())


def _pieces(shard: LocalShard) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield all items of a shard in pieces of about 8 MiB, at least one.

    Nothing is written meanwhile, so each piece is a view of its own: an engine's view
    belongs to one thread.
    """
    low = b""
    while True:
        piece: list[tuple[bytes, bytes]] = []
        size = 0
        with shard.engine.read() as view:
            for key, value in view.scan(low, None):
                if key != LOCATION:
                    piece.append((key, bytes(value)))
                    size += len(value)
                low = key + b"\0"
                if size >= _COPY_BYTES:
                    break
            else:
                yield piece
                return
        yield piece


def _fill(shard: LocalShard, items: list[tuple[bytes, bytes]], first: bool) -> None:
    with shard.engine.write() as view:
        if first:
            for key in [key for key, _ in view.scan(b"", None)]:
                view.delete(key)
        for key, value in items:
            view.put(key, value)
