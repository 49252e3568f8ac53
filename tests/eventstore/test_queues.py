"""Queues of a store: in order, each value once, whoever takes it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hepcache.errors import DuplicateItemError, MissingItemError, ProductTypeError, StoreError
from hepcache.eventstore import Queue, Schema, Store, connect
from hepcache.eventstore.shard.operations import TakeValue


def test_values_come_out_once_and_in_order(store: Store) -> None:
    queue = store.queues.create("chunks", np.arange(2))
    assert queue.empty
    assert not len(queue)
    queue.push(np.array([1, 2]))
    queue.extend([np.array([number]) for number in range(300)])
    assert len(queue) == 301
    assert store.verify() >= 301
    assert queue.pop().tolist() == [1, 2]
    queue.close()
    assert [value.tolist() for value in queue] == [[number] for number in range(300)]
    assert queue.pop() is None
    with pytest.raises(StoreError, match="producers"):
        queue.push(np.array([1]))
    assert queue.empty


def test_a_queue_is_there_until_it_is_removed(store: Store) -> None:
    queue = store.queues.create("a", Schema.table({"": "float64"}, kind="numpy", layout="one"))
    store.queues.create("b", "text")
    assert list(store.queues) == ["a", "b"]
    assert store.queues["a"] == queue
    assert queue
    assert "c" not in store.queues
    with pytest.raises(DuplicateItemError, match="queue 'a'"):
        store.queues.create("a", 1)
    with pytest.raises(ProductTypeError, match="float64"):
        queue.push(1)
    with pytest.raises(MissingItemError, match="nearest: a, b"):
        store.queues["c"]
    queue.push(1.5)
    del store.queues["a"]
    assert not queue
    assert list(store.queues) == ["b"]
    for use in (queue.pop, lambda: queue.push(1.5), queue.close):
        with pytest.raises(MissingItemError, match="queue 'a'"):
            use()
    assert store.queues.create("a", 1).empty


def test_who_waits_in_vain_is_told(store: Store) -> None:
    queue = store.queues.create("slow", 1, producers=2)
    with pytest.raises(TimeoutError, match="slow"):
        queue.pop(wait_s=0)
    queue.close()
    assert queue.producers == 1
    with pytest.raises(TimeoutError):
        queue.pop(wait_s=0)
    queue.close()
    assert queue.pop(wait_s=0) is None


def test_a_value_that_was_taken_is_not_taken_again(store: Store) -> None:
    queue = store.queues.create("q", 1)
    queue.push(1)
    first = queue._key + bytes(8)
    store.apply(queue._key, [TakeValue(first)])
    queue.push(2)
    # Numbers are never used again: who comes late takes nothing of what came later.
    with pytest.raises(MissingItemError):
        store.apply(queue._key, [TakeValue(first)])
    assert queue.pop() == 2


def test_many_threads_share_a_queue(store: Store) -> None:
    queue = store.queues.create("q", 1, producers=2)

    def produce(first: int) -> None:
        for number in range(first, first + 40):
            queue.push(number)
        queue.close()

    with ThreadPoolExecutor(5) as threads:
        consumers = [threads.submit(lambda: [int(n) for n in queue]) for _ in range(3)]
        for done in [threads.submit(produce, first) for first in (0, 40)]:
            done.result()
        taken = [number for consumer in consumers for number in consumer.result()]
    assert sorted(taken) == list(range(80))


CONSUMER = """
import sys
from hepcache.eventstore import connect
with connect(sys.argv[1]) as store:
    print(*store.queues["files"])
"""


def test_processes_share_a_queue(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri() + "?sync=false"
    with connect(url) as store:
        queue = store.queues.create("files", "name")
        assert pickle.loads(pickle.dumps(queue)) == queue
        consumers = [
            subprocess.Popen([sys.executable, "-c", CONSUMER, url], stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        names = [f"{number}.root" for number in range(50)]
        for name in names:
            queue.push(name)
        queue.close()
        taken = [consumer.communicate(timeout=120)[0].decode().split() for consumer in consumers]
        assert sorted(taken[0] + taken[1]) == sorted(names)
        # Each of them got its values in order.
        for found in taken:
            assert [names.index(name) for name in found] == sorted(map(names.index, found))
        assert isinstance(store.queues["files"], Queue)
