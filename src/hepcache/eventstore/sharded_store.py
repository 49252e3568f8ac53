"""The shards of a store, and what every handle on the store shares.

Reads and writes of all containers go through :class:`ShardedStore`, which finds the shard of a
key; a :class:`Batch` groups writes by shard; the :class:`ProductCache` keeps products that were
read ahead; :class:`Statistics` counts.
"""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import BoundedSemaphore, Lock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np

from hepcache.errors import (
    DuplicateItemError,
    HepcacheError,
    MissingItemError,
    StoreBatchError,
    StoreError,
)
from hepcache.eventstore.engines.engine import Reader
from hepcache.eventstore.keys import ROOT, SCHEMA, Address, describe_key, shard_of
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.shard.operations import AddEvents, Operation, PutItems, WriteTable
from hepcache.eventstore.shard.shard import Shard, datasets
from hepcache.eventstore.shard.survey import product_types
from hepcache.eventstore.table import Table, join

_MOST_CONTAINERS = 65_536  # of which the shard is remembered
_UUID = re.compile(r"\b[0-9a-f]{32}\b")
P = ParamSpec("P")
T = TypeVar("T")


class ShardedStore:
    """The shards of a store, by the containers on them; see :class:`Store`."""

    def __init__(self, url: str, shards: Sequence[Shard], *, cache_bytes: int = 256 << 20) -> None:
        self.url = url
        self.shards = list(shards)
        self._named = [_NamedShard(shard, self) for shard in self.shards]
        self._paths: dict[bytes, str] = {}
        self.cache = ProductCache(cache_bytes)
        self.statistics = Statistics()
        self.known_datasets: dict[str, bytes] = {}
        self._schemas: dict[tuple[bytes, str], list[Schema]] = {}
        self._stored: dict[tuple[int, bytes], Schema] = {}
        self._shard_of: dict[bytes, Shard] = {}

    def number_of_shard(self, container: bytes) -> int:
        """Return the number of the shard of what a container lists."""
        return shard_of(container, len(self.shards))

    def shard(self, container: bytes) -> Shard:
        """Return the shard of what a container lists, and of its products."""
        found = self._shard_of.get(container)
        if found is None:
            if len(self._shard_of) >= _MOST_CONTAINERS:
                self._shard_of.clear()
            found = self._shard_of[container] = self._named[self.number_of_shard(container)]
        return found

    def is_same(self, other: ShardedStore) -> bool:
        """Return whether two stores are one, whichever of them was opened where."""
        if self.url.startswith("mem:"):
            return self.shards == other.shards
        return self.url == other.url

    def note_path(self, dataset: bytes, path: str) -> None:
        """Remember the path of a dataset that was found."""
        self._paths[dataset] = path

    def path(self, container: bytes) -> str:
        """Return a container's path, with the UUID of a dataset that is not there any more."""
        address = Address.from_key(container)
        numbers = str(address)[len(address.dataset) :]
        return self._dataset_path(container[:16]) + numbers

    def _dataset_path(self, dataset: bytes) -> str:
        if dataset not in self._paths:
            found = [item for shard in self.shards for item in shard.query(datasets)]
            parents = {uuid: (parent, name) for parent, name, uuid in found}
            names, above = [], dataset
            while above in parents and above != ROOT:
                above, name = parents[above]
                names.append(name)
            if above != ROOT or not names:
                return dataset.hex()
            self._paths[dataset] = "/".join(reversed(names))
        return self._paths[dataset]

    def _with_paths(self, text: str) -> str:
        """Return a text with the paths of datasets in place of their UUIDs."""

        def path(found: re.Match[str]) -> str:
            with suppress(HepcacheError, OSError):  # one error is enough
                return self._dataset_path(bytes.fromhex(found[0]))
            return found[0]

        return _UUID.sub(path, text)

    def named(self, error: HepcacheError) -> HepcacheError:
        """Return an error of a shard with the paths of datasets in place of their UUIDs."""
        named: HepcacheError
        if type(error) is StoreError:
            named = StoreError(self._with_paths(error.where), self._with_paths(error.problem))
        elif type(error) is DuplicateItemError:
            named = DuplicateItemError(
                self._with_paths(error.item), self._with_paths(error.parent)
            )
        elif type(error) is MissingItemError:
            named = MissingItemError(
                self._with_paths(error.item), self._with_paths(error.parent), error.near
            )
        else:
            return error
        return error if str(named) == str(error) else named

    def schemas(self, subrun: bytes, label: str, *, anew: bool = False) -> list[Schema]:
        """Return the types stored under a label for events of a subrun."""
        known = self._schemas.get((subrun, label))
        if known is None or anew:
            found: dict[str, list[Schema]] = {label: []}
            for name, schema in self.shard(subrun).query(product_types, subrun):
                found.setdefault(name, []).append(schema)
            self._schemas.pop((subrun, label), None)
            for name, schemas in found.items():
                if schemas:
                    self._schemas[subrun, name] = schemas
            known = found[label]
        return known

    def stored_schema(self, container: bytes, schema: Schema) -> Schema:
        """Return a type with the column order of its description, written where missing.

        Values of containers have their columns in this order. A description never changes.
        """
        where = self.number_of_shard(container), schema.identity
        if where not in self._stored:
            key = SCHEMA + schema.identity
            shard = self._named[where[0]]
            description = shard.get(key)
            if description is None:
                item = PutItems(((key, schema.to_bytes()),), lenient=True)
                self.apply(container, [item])
                description = shard.get(key)
                assert description is not None
            self._stored[where] = Schema.from_bytes(description)
        return self._stored[where]

    def apply(self, container: bytes, operations: Sequence[Operation]) -> None:
        """Write to the shard of a container, now and as one."""
        if operations:
            self._send(self.number_of_shard(container), operations)

    def _send(self, shard: int, operations: Sequence[Operation]) -> None:
        self._named[shard].apply(operations)
        self.statistics.count(operations)
        if len(self.cache):
            for operation in operations:
                self.cache.forget(getattr(operation, "subrun", b"\xff"))

    def batch(self, size: int = 16384, *, size_bytes: int = 64 << 20, under_way: int = 2) -> Batch:
        """Return a batch: writes grouped by shard, sent in the background.

        ``size``: maximum number of events and products of a group.
        ``under_way``: maximum number of groups that wait or are being written; memory is bounded
        by ``(under_way + 1) * size_bytes`` for each shard.

        >>> from hepcache.eventstore import connect
        >>> import numpy as np
        >>> store = connect("mem://")
        >>> subrun = store.create("nova").create(1).create(0)
        >>> with store.batch(size=1000) as batch:
        ...     for number in range(3):
        ...         event = subrun.create(number, batch=batch)
        ...         event.store("energy", np.float32([number]), batch=batch)
        >>> subrun.read("energy").array().tolist()
        [[0.0], [1.0], [2.0]]
        """
        return Batch(
            self._send, self._with_paths, size=size, size_bytes=size_bytes, under_way=under_way
        )

    def forget(self, prefix: bytes, path: str | None = None) -> None:
        """Forget a container and all below it."""
        self.cache.forget(prefix)
        for key in [key for key in self._schemas if key[0].startswith(prefix)]:
            self._schemas.pop(key, None)
        if path is not None:
            below = f"{path}/"
            for known in [known for known in self.known_datasets if f"{known}/".startswith(below)]:
                self.known_datasets.pop(known, None)


class _NamedShard(Shard):
    """A shard whose errors name datasets by their paths."""

    def __init__(self, shard: Shard, store: ShardedStore) -> None:
        self._shard, self._store = shard, store

    def apply(self, operations: Sequence[Operation]) -> None:
        try:
            self._shard.apply(operations)
        except (StoreError, DuplicateItemError, MissingItemError) as error:
            raise self._store.named(error) from None

    def query(
        self,
        function: Callable[Concatenate[Reader, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        try:
            return self._shard.query(function, *arguments, **options)
        except (StoreError, DuplicateItemError, MissingItemError) as error:
            raise self._store.named(error) from None

    def info(self) -> dict[str, Any]:
        return self._shard.info()

    def close(self) -> None:
        self._shard.close()


class Batch:
    """Events and products that are written together.

    Each group of at most ``size`` items, all of one shard, is written atomically: after a
    crash it is complete or absent. A group is acknowledged, and on the disk
    of a store with synchronous writes, when :meth:`flush` returns or the block ends.

    :meth:`hepcache.eventstore.Store.batch` makes it; use it as a context manager, from one
    thread.
    """

    def __init__(
        self,
        send: Callable[[int, Sequence[Operation]], None],
        with_paths: Callable[[str], str],
        *,
        size: int,
        size_bytes: int,
        under_way: int,
    ) -> None:
        self._send, self._with_paths = send, with_paths
        self._size = size
        self._size_bytes = size_bytes
        self._pending: dict[int, list[Operation]] = defaultdict(list)
        self._counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._events: dict[tuple[int, bytes], set[int]] = defaultdict(set)
        self._products: dict[tuple[int, bytes, str, Schema, bool], list[Table]] = {}
        self._slots = BoundedSemaphore(under_way)
        self._pool = ThreadPoolExecutor(1, "hepcache-batch")
        self._futures: set[Future[None]] = set()
        self._failures: dict[str, str] = {}
        self._lock = Lock()
        self.acknowledged = 0

    def add_event(self, shard: int, subrun: bytes, number: int) -> None:
        """Add one event."""
        self._events[shard, subrun].add(number)
        self._count(shard, 1, 8)

    def add_product(
        self, shard: int, subrun: bytes, label: str, table: Table, *, overwrite: bool
    ) -> None:
        """Add the product of one event, as a table of one."""
        key = (shard, subrun, label, table.schema, overwrite)
        self._products.setdefault(key, []).append(table)
        self._count(shard, 1, table.nbytes)

    def add(self, shard: int, operation: Operation) -> None:
        """Add a prepared write."""
        self._pending[shard].append(operation)
        sizes = operation.sizes()
        self._count(shard, sizes.items, sizes.value_bytes)

    def flush(self) -> None:
        """Send pending writes and wait until all is written.

        Raises
        ------
        StoreBatchError
            Some writes failed, in this flush or since the last one.
        """
        for shard in sorted({*self._counts, *self._pending}):
            self._dispatch(shard)
        with self._lock:
            under_way = list(self._futures)
        wait(under_way)
        with self._lock:
            failures, self._failures = self._failures, {}
        if failures:
            raise StoreBatchError(failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._pool.shutdown()

    def _count(self, shard: int, items: int, nbytes: int) -> None:
        counts = self._counts[shard]
        counts[0] += items
        counts[1] += nbytes
        if counts[0] >= self._size or counts[1] >= self._size_bytes:
            self._dispatch(shard)

    def _dispatch(self, shard: int) -> None:
        """Send the group of a shard; wait while too many are under way."""
        operations = self._collected(shard)
        self._counts.pop(shard, None)
        if not operations:
            return
        self._slots.acquire()
        future = self._pool.submit(self._write, shard, operations)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._done)

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            self._futures.discard(future)
        self._slots.release()

    def _write(self, shard: int, operations: Sequence[Operation]) -> None:
        try:
            self._send(shard, operations)
        except (HepcacheError, OSError, MemoryError) as error:
            with self._lock:
                for operation in operations:
                    self._failures[self._with_paths(_described(operation))] = str(error)
        else:
            with self._lock:
                self.acknowledged += sum(operation.sizes().items for operation in operations)

    def _collected(self, shard: int) -> list[Operation]:
        operations = self._pending.pop(shard, [])
        for owner in [owner for owner in self._events if owner[0] == shard]:
            numbers = np.asarray(sorted(self._events.pop(owner)), np.uint64)
            operations.append(AddEvents(owner[1], numbers))
        for key in [key for key in self._products if key[0] == shard]:
            _, subrun, label, _, overwrite = key
            operations += [
                WriteTable(subrun, label, table, overwrite)
                for table in _without_repeats(self._products.pop(key))
            ]
        return operations


def _without_repeats(tables: list[Table]) -> list[Table]:
    """Join tables of one event each; products stored twice stay apart, in their order."""
    groups: list[dict[int, Table]] = [{}]
    for table in tables:
        number = int(table.events[0])
        if number in groups[-1]:
            groups.append({})
        groups[-1][number] = table
    return [join(list(group.values())) for group in groups if group]


def _described(operation: Any) -> str:
    subrun = getattr(operation, "subrun", None)
    if isinstance(operation, PutItems):
        return ", ".join(describe_key(key) for key, _ in operation.items)
    if subrun is None:
        return type(operation).__name__
    where = str(Address.from_key(subrun))
    if isinstance(operation, WriteTable):
        events = operation.table.events
        span = f"{events[0]}" if len(events) == 1 else f"{events[0]}..{events[-1]}"
        return f"product {operation.label!r} of {where}, events {span}"
    return f"events of {where}"


_Key = tuple[bytes, str, bytes]


class ProductCache:
    """The products of ranges of events, the least recently used dropped first.

    Writes through the same store drop the products of their subruns. Writes of other processes
    are not seen before a range is dropped or read ahead anew.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.nbytes = 0
        self._tables: OrderedDict[tuple[_Key, int], tuple[int | None, Table]] = OrderedDict()
        self._starts: dict[_Key, list[int]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._tables)

    def add(self, subrun: bytes, label: str, low: int, high: int | None, table: Table) -> None:
        """Keep the whole products of a range of events."""
        key = (subrun, label, table.schema.identity)
        with self._lock:
            self._drop(key, low)
            self._tables[key, low] = (high, table)
            self._starts.setdefault(key, []).append(low)
            self.nbytes += table.nbytes
            while self.nbytes > self.capacity_bytes and self._tables:
                (oldest, start), _ = next(iter(self._tables.items()))
                self._drop(oldest, start)

    def find(self, subrun: bytes, label: str, schema: Schema, event: int) -> Table | None:
        """Return the table whose range covers an event, or None."""
        key = (subrun, label, schema.identity)
        with self._lock:
            for start in self._starts.get(key, ()):
                high, table = self._tables[key, start]
                if start <= event and (high is None or event < high):
                    self._tables.move_to_end((key, start))
                    return table
        return None

    def forget(self, subrun: bytes) -> None:
        """Drop the products of a subrun, or of all below a prefix of its key."""
        with self._lock:
            for key in [key for key in self._starts if key[0].startswith(subrun)]:
                for start in list(self._starts[key]):
                    self._drop(key, start)

    def _drop(self, key: _Key, low: int) -> None:
        found = self._tables.pop((key, low), None)
        if found is not None:
            self.nbytes -= found[1].nbytes
            self._starts[key].remove(low)
            if not self._starts[key]:
                del self._starts[key]


@dataclass(slots=True)
class Tally:
    """Number, sum, least and greatest of some values."""

    count: int = 0
    total: float = 0
    least: float = float("inf")
    most: float = 0

    def add(self, value: float, count: int = 1) -> None:
        """Count a value, or several of the same mean."""
        self.count += count
        self.total += value
        self.least = min(self.least, value / max(1, count))
        self.most = max(self.most, value / max(1, count))

    @property
    def mean(self) -> float:
        """The mean, 0 for nothing."""
        return self.total / self.count if self.count else 0.0


@dataclass(slots=True)
class Statistics:
    """Counters of one :class:`~hepcache.eventstore.Store`.

    Attributes
    ----------
    batch_items, batch_bytes
        Items and bytes of each group of writes that was sent to a shard.
    key_bytes, value_bytes
        Bytes of the key, and of the value, of each item written.
    loads, reads
        Single products loaded, and calls that read columns of many events.
    read_bytes
        Bytes of the columns that these calls returned.
    cache_hits, cache_misses
        Single products that were in the product cache, or were not while it was not empty.
    """

    batch_items: Tally = field(default_factory=Tally)
    batch_bytes: Tally = field(default_factory=Tally)
    key_bytes: Tally = field(default_factory=Tally)
    value_bytes: Tally = field(default_factory=Tally)
    loads: int = 0
    reads: int = 0
    read_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    lock: Any = field(default_factory=Lock, repr=False, compare=False)

    def count(self, operations: Sequence[Operation]) -> None:
        """Count a group of writes that was sent to a shard."""
        sizes = [operation.sizes() for operation in operations]
        with self.lock:
            for items, key_bytes, value_bytes in sizes:
                if items:
                    self.key_bytes.add(key_bytes, items)
                    self.value_bytes.add(value_bytes, items)
            self.batch_items.add(sum(size.items for size in sizes))
            self.batch_bytes.add(sum(size.value_bytes for size in sizes))

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as JSON-ready values."""
        values: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Tally):
                least = value.least if value.count else 0
                values[name] = asdict(value) | {"least": least, "mean": value.mean}
            elif name != "lock":
                values[name] = value
        return values
