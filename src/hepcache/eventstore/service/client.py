"""The client's side: shards that are on servers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from threading import Lock
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, get_client
from distributed.core import CommClosedError
from distributed.protocol import to_serialize
from numpy.typing import NDArray

from hepcache.errors import StoreError
from hepcache.eventstore.operations import Operation
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.service.calls import HANDLER, MAP_HANDLER, Entry
from hepcache.eventstore.service.directory import StoreMap
from hepcache.eventstore.service.host import StoreHost
from hepcache.eventstore.store import Store
from hepcache.eventstore.survey import Survey
from hepcache.eventstore.table import Table

__all__ = ["RemoteShard", "Service", "connect_service", "drain", "serve", "shutdown"]

_PATIENCE_S = 60.0
_PAUSE_S = 0.05
_LOST = (OSError, CommClosedError, asyncio.TimeoutError)


class Service:
    """What a client knows of the servers; safe to use from several threads.

    Parameters
    ----------
    client
        Client of the cluster, whose TLS admits it.
    patience_s
        How long to wait for a server that is gone, before it is an error.
    """

    def __init__(self, client: Client, *, patience_s: float = _PATIENCE_S) -> None:
        self.client, self.patience_s = client, patience_s
        self.token = uuid4().bytes
        self.entries: dict[int, Entry] = {}
        self.addresses: dict[str, str] = {}
        self.number = 0

    def look(self) -> None:
        """Ask the scheduler for the map."""
        self._take(self.ask("map"))

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Ask the scheduler's map for something."""
        return self.client.sync(self._ask, operation, *arguments)

    def _take(self, found: dict[str, Any]) -> None:
        self.entries = {
            shard: Entry(epoch, tuple(servers)) for shard, epoch, servers in found["entries"]
        }
        self.addresses = dict(found["addresses"])
        self.number = found["shards"]

    async def _ask(self, operation: str, *arguments: Any) -> Any:
        answer = getattr(self.client.scheduler, MAP_HANDLER)
        return await answer(operation=operation, arguments=list(arguments))

    def call(self, shard: int, operation: str, *arguments: Any) -> Any:
        """Call the first server of a shard, and wait for another one when it is gone.

        Raises
        ------
        StoreError
            No server of the shard answered in time.
        """
        return self.client.sync(self._call, shard, operation, arguments)

    async def _call(self, shard: int, operation: str, arguments: Sequence[Any]) -> Any:
        until = time.monotonic() + self.patience_s
        while True:
            entry = self.entries.get(shard, Entry(0, ()))
            problem = "no server that holds it is there"
            address = self.addresses.get(entry.servers[0]) if entry.servers else None
            if address is not None:
                message = to_serialize((operation, shard, entry.epoch, arguments))
                try:
                    answer = await getattr(self.client.rpc(address), HANDLER)(data=message)
                except _LOST as error:
                    problem = f"server {entry.servers[0]} does not answer: {error}"
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


class RemoteShard:
    """A shard on servers; it has the methods of a local one."""

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

    def _read(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self._service.call(self._shard, "read", method, arguments, options)

    def get(self, key: bytes) -> bytes | None:
        """Return a plain value."""
        found: bytes | None = self._read("get", key)
        return found

    def keys(
        self, low: bytes, high: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> list[bytes]:
        """Return plain keys with ``low <= key < high``."""
        found: list[bytes] = self._read("keys", low, high, limit=limit, reverse=reverse)
        return found

    def events(
        self,
        subrun: bytes,
        low: int = 0,
        high: int | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> NDArray[np.uint64]:
        """Return event numbers of a subrun."""
        found: NDArray[np.uint64] = self._read(
            "events", subrun, low, high, limit=limit, reverse=reverse
        )
        return found

    def has_event(self, subrun: bytes, number: int) -> bool:
        """Return whether a subrun has an event."""
        return bool(self._read("has_event", subrun, number))

    def types(self, subrun: bytes) -> list[tuple[str, Schema]]:
        """Return labels and types of the products of a subrun's events."""
        found: list[tuple[str, Schema]] = self._read("types", subrun)
        return found

    def has(self, subrun: bytes, label: str, schema: Schema, number: int) -> bool:
        """Return whether an event has a product."""
        return bool(self._read("has", subrun, label, schema, number))

    def load(
        self, subrun: bytes, label: str, schema: Schema, number: int
    ) -> dict[str, Any] | None:
        """Return the columns of one event's product, or None."""
        found: dict[str, Any] | None = self._read("load", subrun, label, schema, number)
        return found

    def read(
        self,
        subrun: bytes,
        label: str,
        schema: Schema,
        columns: Sequence[str],
        low: int = 0,
        high: int | None = None,
    ) -> Table:
        """Return columns of the products of ``low <= number < high``."""
        found: Table = self._read("read", subrun, label, schema, tuple(columns), low, high)
        return found

    def survey(self, dataset: bytes) -> Survey:
        """Return what the shard has of a dataset."""
        found: Survey = self._read("survey", dataset)
        return found

    def stamp(self, dataset: bytes) -> bytes:
        """Return what changes with every write to the events or products of a dataset."""
        return bytes(self._read("stamp", dataset))

    def info(self) -> dict[str, Any]:
        """Return the engine's figures, and the servers."""
        entry = self._service.entries.get(self._shard, Entry(0, ()))
        return {**self._read("info"), "servers": list(entry.servers)}

    def verify(self) -> int:
        """Let the server read everything and compare checksums; return how many."""
        return int(self._read("verify"))

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
        The scheduler's address, or a client. TLS comes from Dask's configuration, or
        from the client that the process has already.
    cache_bytes
        Capacity of the product cache.
    patience_s
        How long to wait for servers that are gone.

    Raises
    ------
    StoreError
        The cluster serves no store.
    """
    client = _client(url) if isinstance(url, str) else url
    service = Service(client, patience_s=patience_s)
    address = client.scheduler.address
    try:
        service.look()
    except Exception as error:
        raise StoreError(
            address, "the cluster serves no store; 'hepcache store serve' starts it"
        ) from error
    shards = [RemoteShard(service, one) for one in range(service.number)]
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
        Directory on the SSD of every worker; what is there is served again.
    shards
        Number of shards of a new store: at least the number of servers it may grow to.
    replicas
        Servers that hold each shard. With 2 a server may be killed without a pause.
    sync
        Flush every write to the disk before it is acknowledged. Without, it survives
        ``kill -9`` of servers, but not a power failure.

    Returns
    -------
    dict
        ``shards``, ``replicas``, ``entries`` and ``addresses``.
    """
    client.register_plugin(StoreHost(directory, sync=sync))
    client.register_plugin(StoreMap(shards, replicas))
    found: dict[str, Any] = Service(client).ask("begin")
    return found


def drain(client: Client, servers: Sequence[str]) -> dict[str, Any]:
    """Move everything away from some servers while in use; they can then be stopped."""
    found: dict[str, Any] = Service(client).ask("drain", list(servers))
    return found


def shutdown(client: Client) -> None:
    """Stop serving; what was written stays in the directories."""
    Service(client).ask("stop")
    client.unregister_worker_plugin(StoreHost.name)
    client.unregister_scheduler_plugin(StoreMap.name)
