"""The worker's side: it keeps shards on its SSD and answers for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin
from distributed.core import CommClosedError
from distributed.protocol import to_serialize

from hepcache.errors import StoreError
from hepcache.eventstore.files import write_once
from hepcache.eventstore.keys import META
from hepcache.eventstore.lmdb import LmdbEngine
from hepcache.eventstore.localshard import LocalShard
from hepcache.eventstore.service.calls import HANDLER, MAP_HANDLER, Entry

__all__ = ["StoreHost"]

_ENTRY = META + b"entry"
_COPY_BYTES = 8 << 20
_THREADS = 4
_LOST = (OSError, CommClosedError, asyncio.TimeoutError)


class StoreHost(WorkerPlugin):
    """Serves shards from a directory of its own under a server name that never changes.

    The server's name is the Dask worker's: a nanny starts a killed worker anew
    under the same name, and it finds its shards where it left them.

    Parameters
    ----------
    directory
        A directory on the SSD of every worker; each makes one of its name in it.
    sync
        Whether writes are on the disk before they are acknowledged.
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
        self.entries: dict[int, Entry] = {}
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

    async def _entry(self, shard: int, epoch: int) -> Entry:
        """Return the shard's entry, looked up again when a caller knows a newer one."""
        known = self.entries.get(shard)
        if known is None or known.epoch < epoch:
            found = await self._ask_map("entry", shard)
            known = Entry(found["epoch"], tuple(found["servers"]))
            await self._know(shard, known)
        return known

    async def _know(self, shard: int, entry: Entry) -> None:
        """Keep an entry, also on the disk, so that a restart finds who was in step."""
        if self.server in entry.servers:
            await self._run(_put_entry, self._shard(shard), entry)
        self.entries[shard] = entry

    async def _ask_map(self, operation: str, *arguments: Any) -> Any:
        scheduler = self.worker.rpc(self.worker.scheduler.address)
        return await getattr(scheduler, MAP_HANDLER)(operation=operation, arguments=arguments)

    async def _mine(self, shard: int, epoch: int, *, first: bool) -> Entry:
        entry = await self._entry(shard, epoch)
        allowed = entry.servers[:1] if first else entry.servers
        if self.server not in allowed or entry.epoch != epoch:
            raise _StaleError
        return entry

    # -- what clients ask for

    async def do_read(
        self, shard: int, epoch: int, method: str, arguments: Any, options: Any
    ) -> Any:
        """Call a reading method of a shard."""
        if method not in READING:
            raise StoreError(f"shard {shard}", f"no operation {method!r}")
        await self._mine(shard, epoch, first=False)
        return await self._run(lambda: getattr(self._shard(shard), method)(*arguments, **options))

    async def do_apply(self, shard: int, epoch: int, operations: Any, token: Any) -> None:
        """Write here and on every other server of the shard, in one order."""
        async with self.locks[shard]:
            entry = await self._mine(shard, epoch, first=True)
            await self._run(self._shard(shard).apply, operations, token)
            waiting = list(entry.servers[1:])
            while waiting:
                try:
                    await self._call(waiting[0], "follow", shard, entry.epoch, operations, token)
                    waiting.pop(0)
                    continue
                except _StaleError:
                    found = await self._ask_map("entry", shard)
                except Exception as error:
                    # Acknowledged only once the map says so.
                    logger.warning("event store: shard %s without %s: %s", shard, waiting, error)
                    found = await self._ask_map("drop", shard, waiting[0])
                before, entry = entry, Entry(found["epoch"], tuple(found["servers"]))
                await self._know(shard, entry)
                if entry.epoch == before.epoch or entry.servers[:1] != (self.server,):
                    raise _StaleError
                waiting = list(entry.servers[1:])

    async def do_follow(self, shard: int, epoch: int, operations: Any, token: Any) -> None:
        """Write what the first server of the shard has written."""
        await self._mine(shard, epoch, first=False)
        await self._run(self._shard(shard).apply, operations, token)

    # -- what the map and other servers ask for

    async def do_begin(self, shard: int, epoch: int, number: int, uuid: str) -> None:  # noqa: ARG002
        """Keep what describes the whole store."""
        await self._run(_describe, self.home, {"shards": number, "uuid": uuid})

    async def do_know(self, shard: int, epoch: int, servers: Any) -> None:
        """Keep where a shard is."""
        await self._know(shard, Entry(epoch, tuple(servers)))

    async def do_report(self, shard: int, epoch: int) -> dict[str, Any]:  # noqa: ARG002
        """Return the description of the store, and the entries of all shards here."""
        return await self._run(self._report)  # type: ignore[no-any-return]

    def _report(self) -> dict[str, Any]:
        path = self.home / "store.json"
        described = json.loads(path.read_bytes()) if path.exists() else {}
        entries = {}
        for one in sorted((self.home / "shards").glob("[0-9]*")):
            found = self._shard(int(one.name)).get(_ENTRY)
            if found is not None:
                entries[int(one.name)] = json.loads(found)
        return {**described, "entries": entries}

    async def do_move(self, shard: int, epoch: int, servers: Any) -> None:
        """Copy a shard to servers that lack it, then let the map name the new ones."""
        async with self.locks[shard]:
            entry = await self._mine(shard, epoch, first=True)
            for server in servers:
                if server not in entry.servers:
                    await self._copy(shard, server)
            found = await self._ask_map("commit", shard, entry.epoch, list(servers))
            self.entries[shard] = moved = Entry(found["epoch"], tuple(found["servers"]))
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
        """Take a piece of a copy; the first one replaces what is here."""
        self.entries.pop(shard, None)
        await self._run(_fill, self._shard(shard), items, first)

    async def do_info(self, shard: int, epoch: int) -> Any:  # noqa: ARG002
        """Return the figures of all shards here."""
        return {one: shard.info() for one, shard in sorted(self.shards.items())}

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


logger = logging.getLogger(__name__)

READING = frozenset(
    (
        "events",
        "get",
        "has",
        "has_event",
        "info",
        "keys",
        "load",
        "read",
        "stamp",
        "survey",
        "types",
        "verify",
    )
)


class _StaleError(Exception):
    """The caller's map is old."""


def _describe(home: Path, values: dict[str, Any]) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (home / "store.json").exists():
        write_once(home / "store.json", json.dumps({"format": 1, **values}).encode())


def _put_entry(shard: LocalShard, entry: Entry) -> None:
    with shard.engine.write() as view:
        view.put(_ENTRY, json.dumps([entry.epoch, entry.servers]).encode())


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
                if key != _ENTRY:
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
