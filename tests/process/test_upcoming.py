"""A worker knows its next chunks."""

from __future__ import annotations

import threading
import time
import uuid

from distributed import Client, Worker, get_worker

from hepcache.process.tasks import Batch, Task, key
from hepcache.process.upcoming import following, upcoming
from hepcache.process.work import Chunk


def chunk(number: int) -> Chunk:
    return Chunk(
        "d", "a.root", "Events", number, number + 1, uuid.UUID(int=1).bytes, {},
        tag="t", validator="v", boundaries=(0, 100),
    )  # fmt: skip


def next_entries(item: Chunk) -> dict[str, list[tuple[int, list[int]]]]:
    if item.entrystart == 0:
        # The others are sent while this one runs.
        while len(get_worker().state.ready) < 2:
            time.sleep(0.01)
    return {"next": [(item.entrystart, [one.entrystart for one in upcoming(4)])]}


def test_the_rest_of_the_batch_comes_first_then_what_waits() -> None:
    groups = [(0, 1), (2, 3, 4), (5,)]
    batches = [Batch(tuple(chunk(number) for number in group)) for group in groups]
    with (
        Client(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
        ) as client,
    ):
        # As by the plugin: what is restricted is sent at once, not queued at the scheduler.
        workers = list(client.scheduler_info()["workers"])
        task = Task(next_entries, None, False, "topic")
        futures = [
            client.submit(
                task, batch, key=key("0a", batch.items[0]), priority=-number, workers=workers
            )
            for number, batch in enumerate(batches)
        ]
        found = dict(pair for one in client.gather(futures) for pair in one["next"])
    assert found[0] == [1, 2, 3, 4]
    assert found[1] == [2, 3, 4, 5]
    assert found[2] == [3, 4, 5]
    assert found[5] == []


def test_outside_a_worker_only_the_batch_is_known() -> None:
    assert upcoming() == []
    with following([chunk(1), chunk(2)]):
        assert upcoming(1) == [chunk(1)]
        others: list[int] = []
        thread = threading.Thread(target=lambda: others.append(len(upcoming())))
        thread.start()
        thread.join()
        assert others == [0]
    assert upcoming() == []


def test_a_worker_has_what_is_read() -> None:
    assert hasattr(Worker, "get_current_task")
