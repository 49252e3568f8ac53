"""The client's side of the service: it starts servers, and reads and writes their shards."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from distributed import Client, get_client
from distributed.core import CommClosedError
from distributed.protocol import to_serialize

from hepcache.errors import StoreError
from hepcache.eventstore.engines.engine import Reader
from hepcache.eventstore.service.scheduler import ShardMap
from hepcache.eventstore.service.server import HANDLER, MAP_HANDLER, ShardLocation, StoreServer
from hepcache.eventstore.shard.operations import Operation
from hepcache.eventstore.shard.shard import QUERIES, Shard
from hepcache.eventstore.store import Store

P = ParamSpec("P")
T = TypeVar("T")
_NAMES = {function: name for name, function in QUERIES.items()}

_PATIENCE_S = 60.0
_PAUSE_S = 0.05
_LOST = (OSError, CommClosedError, asyncio.TimeoutError)


class Service:
    """The calls of a client to the servers; safe to use from several threads."""

    def __init__(self, client: Client, *, patience_s: float = _PATIENCE_S) -> None:
        self.client, self.patience_s = client, patience_s
        self.token = uuid4().bytes
        self.locations: dict[int, ShardLocation] = {}
        self.addresses: dict[str, str] = {}
        self.number = 0

    def refresh(self) -> None:
        """Ask the scheduler for the map."""
        self._take(self.ask("map"))

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Call an operation of the scheduler's map."""
        return self.client.sync(self._ask, operation, *arguments)

    def _take(self, found: dict[str, Any]) -> None:
        self.locations = {
            shard: ShardLocation(epoch, tuple(servers))
            for shard, epoch, servers in found["entries"]
        }
        self.addresses = dict(found["addresses"])
        self.number = found["shards"]

    async def _ask(self, operation: str, *arguments: Any) -> Any:
        answer = getattr(self.client.scheduler, MAP_HANDLER)
        return await answer(operation=operation, arguments=list(arguments))

    def call(self, shard: int, operation: str, *arguments: Any) -> Any:
        """Call the first server of a shard, and wait for another one when it is gone."""
        return self.client.sync(self._call, shard, operation, arguments)

    async def _call(self, shard: int, operation: str, arguments: Sequence[Any]) -> Any:
        until = time.monotonic() + self.patience_s
        while True:
            location = self.locations.get(shard, ShardLocation(0, ()))
            problem = "no server that holds it is there"
            address = self.addresses.get(location.servers[0]) if location.servers else None
            if address is not None:
                message = to_serialize((operation, shard, location.epoch, arguments))
                try:
                    answer = await getattr(self.client.rpc(address), HANDLER)(data=message)
                except _LOST as error:
                    problem = f"server {location.servers[0]} does not answer: {error}"
                else:
                    if "error" in answer:
                        raise answer["error"]
                    if "value" in answer:
                        return answer["value"]
                    problem = "the map changes"
            if time.monotonic() > until:
                raise StoreError(f"shard {shard}", f"{problem}; start its worker again")
            await asyncio.sleep(_PAUSE_S)
            try:
                self._take(await self._ask("map"))
            except _LOST as error:
                raise StoreError("scheduler", f"it does not answer: {error}") from error


class RemoteShard(Shard):
    """A shard on servers."""

    def __init__(self, service: Service, shard: int) -> None:
        self._service, self._shard = service, shard
        self._counter = itertools.count(1)
        self._lock = Lock()

    def apply(self, operations: Sequence[Operation]) -> None:
        """Write all operations, or after an error none.

        A call that is repeated because an answer was lost is carried out once.
        """
        with self._lock:
            token = (self._service.token, next(self._counter))
            self._service.call(self._shard, "apply", list(operations), token)

    def query(
        self,
        function: Callable[Concatenate[Reader, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Let a server call a function with a view of its shard."""
        found: T = self._service.call(self._shard, "read", _NAMES[function], arguments, options)
        return found

    def info(self) -> dict[str, Any]:
        """Return the engine's figures, and the servers."""
        location = self._service.locations.get(self._shard, ShardLocation(0, ()))
        return {**self._service.call(self._shard, "info"), "servers": list(location.servers)}

    def close(self) -> None:
        """Do nothing: the servers go on."""


def _client(url: str) -> Client:
    try:
        client = get_client()
    except ValueError:
        return Client(url, set_as_default=False)
    return client if client.scheduler.address == url else Client(url, set_as_default=False)


def connect_service(
    url: str | Client, *, cache_bytes: int = 256 << 20, patience_s: float = _PATIENCE_S
) -> Store:
    """Open the store that a Dask cluster serves.

    Parameters
    ----------
    url
        The scheduler's address, or a client. TLS is configured by Dask's configuration, or
        by the process's existing client.
    cache_bytes
        Capacity of the product cache.
    patience_s
        How long to wait for missing servers.

    Raises
    ------
    StoreError
        The cluster serves no store.
    """
    client = _client(url) if isinstance(url, str) else url
    service = Service(client, patience_s=patience_s)
    address = client.scheduler.address
    try:
        service.refresh()
    except Exception as error:
        raise StoreError(
            address, "the cluster serves no store; 'hepcache store serve' starts it"
        ) from error
    shards = [RemoteShard(service, shard) for shard in range(service.number)]
    return Store(address, shards, cache_bytes=cache_bytes)


def serve(
    client: Client, directory: str, *, shards: int = 16, replicas: int = 1, sync: bool = True
) -> dict[str, Any]:
    """Serve an event store from the workers of a cluster.

    Parameters
    ----------
    client
        Client of the cluster. Worker names must stay the same over restarts, as those of
        nannies and of ``LocalCluster`` do.
    directory
        Directory on the SSD of every worker; shards in it are served again.
    shards
        Number of shards of a new store: at least the number of servers it may grow to.
    replicas
        Number of servers for each shard. With 2, killing a server causes no pause.
    sync
        Flush every write to the disk before it is acknowledged. Without it, writes survive
        ``kill -9`` of servers, but not a power failure.

    Returns
    -------
    dict
        ``shards``, ``replicas``, ``entries`` and ``addresses``.
    """
    client.register_plugin(StoreServer(directory, sync=sync))
    client.register_plugin(ShardMap(shards, replicas))
    found: dict[str, Any] = Service(client).ask("begin")
    return found


def drain(client: Client, servers: Sequence[str]) -> dict[str, Any]:
    """Move all shards away from some servers, during use; the servers can then be stopped."""
    found: dict[str, Any] = Service(client).ask("drain", list(servers))
    return found


def shutdown(client: Client) -> None:
    """Stop serving; written data stays in the directories."""
    Service(client).ask("stop")
    client.unregister_worker_plugin(StoreServer.name)
    client.unregister_scheduler_plugin(ShardMap.name)
