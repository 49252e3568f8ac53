"""Queues: values by ascending numbers, and a description, inside one transaction."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from hepcache.errors import MissingItemError, StoreError
from hepcache.eventstore.engines.engine import Reader, Writer
from hepcache.eventstore.keys import after, describe_key
from hepcache.eventstore.shard.operations import CloseQueue, PushValues, QueueOperation, TakeValue
from hepcache.eventstore.values import seal, unseal


@dataclass(frozen=True, slots=True)
class QueueState:
    """The description of a queue: its values' type, and how far it has come.

    ``pushed`` numbers the values and never falls, so that a number stands for one value for
    ever; ``producers`` of it have not closed it yet.
    """

    schema: str
    producers: int
    pushed: int = 0

    def to_bytes(self) -> bytes:
        """Return it as it is stored."""
        return seal([json.dumps(asdict(self)).encode()])


def queue_state(view: Reader, queue: bytes) -> QueueState | None:
    """Return the description of a queue, or None."""
    stored = view.get(queue)
    return None if stored is None else QueueState(**json.loads(bytes(unseal(queue, stored))))


def first_value(view: Reader, queue: bytes) -> tuple[QueueState | None, bytes, bytes]:
    """Return the description of a queue, and key and value of its first; empty without one."""
    state = queue_state(view, queue)
    for key, value in view.scan(queue + b"\0", after(queue)):
        return state, key, bytes(value)
    return state, b"", b""


def change(view: Writer, operation: QueueOperation) -> None:
    """Carry out an operation on a queue."""
    if isinstance(operation, TakeValue):
        if view.get(operation.key) is None:
            raise MissingItemError("value", describe_key(operation.key))
        view.delete(operation.key)
        return
    state = queue_state(view, operation.queue)
    if state is None:
        raise MissingItemError(describe_key(operation.queue), "the store")
    if isinstance(operation, CloseQueue):
        changed = QueueState(state.schema, max(0, state.producers - 1), state.pushed)
        view.put(operation.queue, changed.to_bytes())
        return
    assert isinstance(operation, PushValues)
    if not state.producers:
        raise StoreError(
            describe_key(operation.queue),
            "all its producers have closed it; make it with producers= as many as there are",
        )
    for number, value in enumerate(operation.values, state.pushed):
        view.put(operation.queue + number.to_bytes(8, "big"), value)
    pushed = state.pushed + len(operation.values)
    view.put(operation.queue, QueueState(state.schema, state.producers, pushed).to_bytes())
