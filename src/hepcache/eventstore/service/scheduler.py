"""The scheduler's side of the service: which servers have which shard."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

from distributed import SchedulerPlugin
from distributed.protocol import to_serialize

from hepcache.errors import StoreError
from hepcache.eventstore.service.server import HANDLER, MAP_HANDLER, ShardLocation, wanted_servers
from hepcache.upstream.distributed import unpacked

logger = logging.getLogger(__name__)

_PAUSE_S = 0.05


class ShardMap(SchedulerPlugin):
    """Knows the servers of every shard by name, and keeps as many copies as wanted."""

    name = "hepcache-eventstore-map"

    def __init__(self, shards: int, replicas: int) -> None:
        self.shards, self.replicas = shards, replicas
        self.uuid = uuid4().hex
        self.locations: dict[int, ShardLocation] = {}
        self.leaving: set[str] = set()
        self.begun = False

    async def start(self, scheduler: Any) -> None:
        """Begin to answer."""
        self.scheduler = scheduler
        self.healing = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()
        scheduler.handlers[MAP_HANDLER] = self.handle

    async def close(self) -> None:
        """Stop answering."""
        self.do_stop()

    def do_stop(self) -> None:
        """Stop answering; Dask does not close a plugin that is only unregistered."""
        self.begun = False
        self.scheduler.handlers.pop(MAP_HANDLER, None)
        for task in self.tasks:
            task.cancel()

    # -- operations for clients and servers

    async def handle(self, operation: str, arguments: Any = ()) -> Any:
        """Answer one call."""
        answer = getattr(self, f"do_{operation}")(*arguments)
        return await answer if asyncio.iscoroutine(answer) else answer

    def do_addresses(self) -> dict[str, str]:
        """Return the addresses of the servers that are there."""
        workers = self.scheduler.workers
        return {str(worker.name): address for address, worker in workers.items()}

    def do_map(self) -> dict[str, Any]:
        """Return everything a client needs."""
        return {
            "shards": self.shards,
            "replicas": self.replicas,
            "entries": [
                [shard, location.epoch, list(location.servers)]
                for shard, location in sorted(self.locations.items())
            ],
            "addresses": self.do_addresses(),
        }

    def do_entry(self, shard: int) -> dict[str, Any]:
        """Return the location of a shard."""
        location = self.locations.get(shard, ShardLocation(0, ()))
        return {"epoch": location.epoch, "servers": list(location.servers)}

    def do_drop(self, shard: int, server: str) -> dict[str, Any]:
        """Note that a server isn't in step any more; the last one always is."""
        location = self.locations[shard]
        if server in location.servers and len(location.servers) > 1:
            kept = tuple(other for other in location.servers if other != server)
            self.locations[shard] = ShardLocation(location.epoch + 1, kept)
        return self.do_entry(shard)

    def do_commit(self, shard: int, epoch: int, servers: list[str]) -> dict[str, Any]:
        """Name the servers of a shard, unless something changed since an epoch."""
        if self.locations[shard].epoch == epoch:
            self.locations[shard] = ShardLocation(epoch + 1, tuple(servers))
        return self.do_entry(shard)

    async def do_begin(self) -> dict[str, Any]:
        """Take up the servers' shards, make missing ones, and copy each to where it should be."""
        if not self.begun:
            for server in sorted(self.do_addresses()):
                await self._adopt(server)
            known = bool(self.locations)
            servers = sorted(self.do_addresses())
            for shard in range(self.shards):
                if not known:
                    self.locations[shard] = ShardLocation(
                        1, wanted_servers(shard, servers, self.replicas)
                    )
                self.locations.setdefault(shard, ShardLocation(0, ()))
            for server in servers:
                await self._call(server, "begin", 0, 0, self.shards, self.uuid)
            for shard, location in self.locations.items():
                for server in location.servers:
                    if server in servers:
                        await self._call(server, "know", shard, location.epoch, location.servers)
            self.begun = True
        await self._heal()
        return self.do_map()

    async def do_drain(self, servers: list[str]) -> dict[str, Any]:
        """Move everything away from servers, which can then be stopped."""
        self.leaving |= set(servers)
        await self._heal()
        return self.do_map()

    # -- changes of the cluster

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Use a server that came, or came back."""
        if self.begun:
            self._later(self._welcome(str(scheduler.workers[worker].name)))

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:  # noqa: ARG002
        """Do without a server where there are other copies."""
        if not self.begun:
            return
        present = set(self.do_addresses())
        for shard, location in list(self.locations.items()):
            for server in location.servers:
                if server not in present:
                    self.do_drop(shard, server)
        self._later(self._heal())

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _welcome(self, server: str) -> None:
        try:
            while True:
                try:
                    await self._adopt(server)
                    break
                except _NotServingError:
                    # Dask announces a worker before it has set up the worker's plugins.
                    await asyncio.sleep(_PAUSE_S)
            await self._call(server, "begin", 0, 0, self.shards, self.uuid)
        except Exception as error:
            logger.warning("event store: server %s can't be used: %s", server, error)
            return
        await self._heal()

    async def _adopt(self, server: str) -> None:
        """Take up the shards of a server, where no later state is known."""
        report = await self._call(server, "report", 0, 0)
        if "uuid" not in report:
            return
        if self.locations and report["uuid"] != self.uuid:
            raise StoreError(server, "its directory holds the shards of another store")
        self.uuid, self.shards = report["uuid"], report["shards"]
        for shard, (epoch, servers) in report["entries"].items():
            known = self.locations.get(shard, ShardLocation(0, ()))
            if epoch > known.epoch:
                self.locations[shard] = ShardLocation(epoch, tuple(servers))

    async def _heal(self) -> None:
        """Copy and move shards until each is where it should be."""
        async with self.healing:
            for shard in sorted(self.locations):
                try:
                    await self._heal_one(shard)
                except Exception as error:
                    logger.warning("event store: shard %s not moved: %s", shard, error)

    async def _heal_one(self, shard: int) -> None:
        present = set(self.do_addresses())
        location = self.locations[shard]
        for server in location.servers:
            if server not in present:
                self.do_drop(shard, server)
        location = self.locations[shard]
        wanted = wanted_servers(shard, sorted(present - self.leaving), self.replicas)
        if not wanted or not location.servers or location.servers[0] not in present:
            return
        if set(wanted) != set(location.servers):
            await self._call(location.servers[0], "move", shard, location.epoch, list(wanted))

    async def _call(self, server: str, operation: str, shard: int, epoch: int, *args: Any) -> Any:
        addresses = self.do_addresses()
        if server not in addresses:
            raise StoreError(server, "its worker is gone")
        message = to_serialize((operation, shard, epoch, args))
        answer = await getattr(self.scheduler.rpc(addresses[server]), HANDLER)(data=message)
        if answer is None:  # so a worker answers what it has no handler for
            raise _NotServingError(server, "its worker serves no store yet")
        if answer.get("stale"):
            raise StoreError(server, "its map is older or newer than the scheduler's")
        for name in ("error", "value"):
            if name in answer:
                answer[name] = unpacked(answer[name])
        if "error" in answer:
            raise answer["error"]
        return answer["value"]


class _NotServingError(StoreError):
    """A worker has not set up its plugin, or not yet."""
