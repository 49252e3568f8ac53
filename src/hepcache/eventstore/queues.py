"""Queues of a store: any process adds values, and one process takes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import monotonic, sleep
from typing import Any

from hepcache.errors import DuplicateItemError, MissingItemError, ProductTypeError
from hepcache.eventstore.keys import QUEUE, after, name_bytes
from hepcache.eventstore.schema import Schema, schema_of
from hepcache.eventstore.shard.operations import (
    CloseQueue,
    PushValues,
    PutItems,
    RemovePrefixes,
    TakeValue,
)
from hepcache.eventstore.shard.queues import QueueState, first_value, queue_state
from hepcache.eventstore.shard.shard import keys_between
from hepcache.eventstore.sharded_store import ShardedStore
from hepcache.eventstore.values import decode, encode

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


class Queue:
    """A queue of values of one type, shared by all processes that open its store.

    Values are taken in the order in which they were added, each once. A queue is true while it
    exists, and can be sent to other processes unless the store is ``mem://``. Several threads can
    use it. It survives restarts; a value that was taken is removed, even if the process that took
    it dies.

    Made by ``store.queues.create(name, like)``, opened by ``store.queues[name]``.

    Examples
    --------
    >>> from hepcache.eventstore import connect
    >>> store = connect("mem://")
    >>> queue = store.queues.create("files", "")
    >>> queue.extend(["a.root", "b.root"])
    >>> queue.close()
    >>> list(store.queues["files"])
    ['a.root', 'b.root']
    """

    def __init__(self, store: ShardedStore, name: str) -> None:
        self._store, self.name = store, name
        self._key = _key(name)

    def push(self, value: Any) -> None:
        """Add a value at the end.

        Raises
        ------
        ProductTypeError
            Its type differs from that of the queue's values.
        StoreError
            All producers have closed the queue.
        MissingItemError
            The queue does not exist any more.
        """
        self.extend([value])

    def extend(self, values: Iterable[Any]) -> None:
        """Add values at the end: all of them, or none after an error."""
        schema = self.schema
        encoded = []
        for value in values:
            found = schema_of(value)
            if found != schema:
                raise ProductTypeError(str(schema), str(found))
            encoded.append(encode(value, schema))
        self._store.apply(self._key, [PushValues(self._key, tuple(encoded))])

    def pop(self, wait_s: float | None = None) -> Any:
        """Take the first value; wait while there is none and a producer may still add one.

        Parameters
        ----------
        wait_s
            Maximum number of seconds to wait; None means no limit.

        Returns
        -------
        Any
            The value, or None if the queue is empty and all producers have closed it.

        Raises
        ------
        TimeoutError
            No value came in time.
        """
        until = None if wait_s is None else monotonic() + wait_s
        pause_s = _FIRST_PAUSE_S
        while True:
            state, key, value = self._store.shard(self._key).query(first_value, self._key)
            if state is None:
                raise _missing(self._store, self.name)
            if key:
                try:
                    self._store.apply(self._key, [TakeValue(key)])
                except MissingItemError:
                    continue  # another process was faster
                return decode(key, value, Schema.from_bytes(state.schema.encode()))
            if not state.producers:
                return None
            if until is not None and monotonic() >= until:
                raise TimeoutError(f"queue {self.name!r} stayed empty for {wait_s} s")
            sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def __iter__(self) -> Iterator[Any]:
        """Take values out until the queue is empty and all producers have closed it."""
        while (value := self.pop()) is not None:
            yield value

    def close(self) -> None:
        """Tell the queue that one producer adds no more values."""
        self._store.apply(self._key, [CloseQueue(self._key)])

    def __len__(self) -> int:
        low, high = self._key + b"\0", after(self._key)
        return len(self._store.shard(self._key).query(keys_between, low, high))

    @property
    def empty(self) -> bool:
        """Whether no value waits."""
        _, key, _ = self._store.shard(self._key).query(first_value, self._key)
        return not key

    @property
    def schema(self) -> Schema:
        """The type of its values."""
        return Schema.from_bytes(self._state().schema.encode())

    @property
    def producers(self) -> int:
        """How many producers have not closed it yet."""
        return self._state().producers

    def _state(self) -> QueueState:
        state = self._store.shard(self._key).query(queue_state, self._key)
        if state is None:
            raise _missing(self._store, self.name)
        return state

    def __bool__(self) -> bool:
        """Return whether it is in the store, empty or not."""
        return self._store.shard(self._key).query(queue_state, self._key) is not None

    def __repr__(self) -> str:
        return f"<queue {self.name} of {self._store.url}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Queue)
            and self.name == other.name
            and self._store.is_same(other._store)
        )

    def __hash__(self) -> int:
        return hash(self._key)


class Queues(Mapping[str, Queue]):
    """The queues of a store, by name."""

    def __init__(self, store: ShardedStore) -> None:
        self._store = store

    def create(self, name: str, like: Any, *, producers: int = 1) -> Queue:
        """Make a queue.

        Parameters
        ----------
        like
            The type of its values: a :class:`Schema`, or an example value.
        producers
            Number of calls of :meth:`Queue.close` after which consumers don't wait for
            further values.

        Raises
        ------
        DuplicateItemError
            A queue of this name exists already.
        """
        key = _key(name)
        schema = like if isinstance(like, Schema) else schema_of(like)
        state = QueueState(schema.to_bytes().decode(), producers)
        try:
            self._store.apply(key, [PutItems(((key, state.to_bytes()),))])
        except DuplicateItemError:
            raise DuplicateItemError(f"queue {name!r}", self._store.url) from None
        return Queue(self._store, name)

    def __getitem__(self, name: str) -> Queue:
        queue = Queue(self._store, name)
        if not queue:
            raise _missing(self._store, name)
        return queue

    def __delitem__(self, name: str) -> None:
        key = _key(self[name].name)
        self._store.apply(key, [RemovePrefixes((key,))])

    def __iter__(self) -> Iterator[str]:
        keys = [
            key
            for shard in self._store.shards
            for key in shard.query(keys_between, QUEUE, after(QUEUE))
            if key.endswith(b"\0") and key.count(b"\0") == 1
        ]
        return iter(sorted(key[1:-1].decode() for key in keys))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _missing(store: ShardedStore, name: str) -> MissingItemError:
    return MissingItemError(f"queue {name!r}", store.url, list(Queues(store))[:3])


def _key(name: str) -> bytes:
    return QUEUE + name_bytes(name, "queue") + b"\0"
