"""The scheduler's side: which servers have which shard."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import uuid4

from distributed import SchedulerPlugin
from distributed.protocol import to_serialize

from hepcache.errors import StoreError
from hepcache.eventstore.service.calls import HANDLER, MAP_HANDLER, Entry, wanted_servers

__all__ = ["StoreMap"]

logger = logging.getLogger(__name__)


class StoreMap(SchedulerPlugin):
    """Knows the servers of every shard by name, and keeps as many copies as wanted.

    Parameters
    ----------
    shards
        Number of shards of a store that is new.
    replicas
        On how many servers each shard is kept.
    """

    name = "hepcache-eventstore-map"

    def __init__(self, shards: int, replicas: int) -> None:
        self.shards, self.replicas = shards, replicas
        self.uuid = uuid4().hex
        self.entries: dict[int, Entry] = {}
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

    # -- what is asked

    async def handle(self, operation: str, arguments: Any = ()) -> Any:
        """Answer one call."""
        answer = getattr(self, f"do_{operation}")(*arguments)
        return await answer if asyncio.iscoroutine(answer) else answer

    def do_addresses(self) -> dict[str, str]:
        """Return the addresses of the servers that are there."""
        return {str(one.name): address for address, one in self.scheduler.workers.items()}

    def do_map(self) -> dict[str, Any]:
        """Return everything a client needs."""
        return {
            "shards": self.shards,
            "replicas": self.replicas,
            "entries": [
                [shard, entry.epoch, list(entry.servers)]
                for shard, entry in sorted(self.entries.items())
            ],
            "addresses": self.do_addresses(),
        }

    def do_entry(self, shard: int) -> dict[str, Any]:
        """Return where a shard is."""
        entry = self.entries.get(shard, Entry(0, ()))
        return {"epoch": entry.epoch, "servers": list(entry.servers)}

    def do_drop(self, shard: int, server: str) -> dict[str, Any]:
        """Note that a server isn't in step any more; the last one always is."""
        entry = self.entries[shard]
        if server in entry.servers and len(entry.servers) > 1:
            kept = tuple(one for one in entry.servers if one != server)
            self.entries[shard] = Entry(entry.epoch + 1, kept)
        return self.do_entry(shard)

    def do_commit(self, shard: int, epoch: int, servers: list[str]) -> dict[str, Any]:
        """Name the servers of a shard, unless something changed since an epoch."""
        if self.entries[shard].epoch == epoch:
            self.entries[shard] = Entry(epoch + 1, tuple(servers))
        return self.do_entry(shard)

    async def do_begin(self) -> dict[str, Any]:
        """Take up what the servers hold, make what is new, and put every copy in its place."""
        if not self.begun:
            for server in sorted(self.do_addresses()):
                await self._adopt(server)
            known = bool(self.entries)
            servers = sorted(self.do_addresses())
            for shard in range(self.shards):
                if not known:
                    self.entries[shard] = Entry(1, wanted_servers(shard, servers, self.replicas))
                self.entries.setdefault(shard, Entry(0, ()))
            for server in servers:
                await self._call(server, "begin", 0, 0, self.shards, self.uuid)
            for shard, entry in self.entries.items():
                for server in entry.servers:
                    if server in servers:
                        await self._call(server, "know", shard, entry.epoch, entry.servers)
            self.begun = True
        await self._heal()
        return self.do_map()

    async def do_drain(self, servers: list[str]) -> dict[str, Any]:
        """Move everything away from servers, which can then be stopped."""
        self.leaving |= set(servers)
        await self._heal()
        return self.do_map()

    # -- what happens

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Use a server that came, or came back."""
        if self.begun:
            self._later(self._welcome(str(scheduler.workers[worker].name)))

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:  # noqa: ARG002
        """Do without a server where there are other copies."""
        if not self.begun:
            return
        present = set(self.do_addresses())
        for shard, entry in list(self.entries.items()):
            for server in entry.servers:
                if server not in present:
                    self.do_drop(shard, server)
        self._later(self._heal())

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _welcome(self, server: str) -> None:
        try:
            await self._adopt(server)
            await self._call(server, "begin", 0, 0, self.shards, self.uuid)
        except Exception as error:
            logger.warning("event store: server %s can't be used: %s", server, error)
            return
        await self._heal()

    async def _adopt(self, server: str) -> None:
        """Take up the shards that a server holds, where nobody knows a later state."""
        report = await self._call(server, "report", 0, 0)
        if "uuid" not in report:
            return
        if self.entries and report["uuid"] != self.uuid:
            raise StoreError(server, "its directory holds the shards of another store")
        self.uuid, self.shards = report["uuid"], report["shards"]
        for shard, (epoch, servers) in report["entries"].items():
            known = self.entries.get(shard, Entry(0, ()))
            if epoch > known.epoch:
                self.entries[shard] = Entry(epoch, tuple(servers))

    async def _heal(self) -> None:
        """Copy and move shards until each is where it should be."""
        async with self.healing:
            for shard in sorted(self.entries):
                try:
                    await self._heal_one(shard)
                except Exception as error:
                    logger.warning("event store: shard %s not moved: %s", shard, error)

    async def _heal_one(self, shard: int) -> None:
        present = set(self.do_addresses())
        entry = self.entries[shard]
        for server in entry.servers:
            if server not in present:
                self.do_drop(shard, server)
        entry = self.entries[shard]
        wanted = wanted_servers(shard, sorted(present - self.leaving), self.replicas)
        if not wanted or not entry.servers or entry.servers[0] not in present:
            return
        if set(wanted) != set(entry.servers):
            await self._call(entry.servers[0], "move", shard, entry.epoch, list(wanted))

    async def _call(self, server: str, operation: str, shard: int, epoch: int, *args: Any) -> Any:
        remote = self.scheduler.rpc(self.do_addresses()[server])
        message = to_serialize((operation, shard, epoch, args))
        answer = await getattr(remote, HANDLER)(data=message)
        if answer.get("stale"):
            raise StoreError(server, "its map is older or newer than the scheduler's")
        for name in ("error", "value"):
            if name in answer:
                answer[name] = _opened(answer[name])
        if "error" in answer:
            raise answer["error"]
        return answer["value"]


def _opened(value: Any) -> Any:
    """Return what a worker sent; a scheduler leaves values packed."""
    from distributed.protocol import deserialize
    from distributed.protocol.serialize import Serialized

    return deserialize(value.header, value.frames) if isinstance(value, Serialized) else value
