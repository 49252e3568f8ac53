"""The event processor on a real Dask cluster, also when workers are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hepcache.clusters import LocalCluster
from hepcache.errors import FailedEventsError
from hepcache.eventstore import EventBatch, Store, connect

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
SUBRUNS, EVENTS = 12, 500
EXPECTED = [(1, subrun, event) for subrun in range(SUBRUNS) for event in range(EVENTS)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("store")
    with connect(f"file://{path}/s?shards=3&sync=false") as made:
        run = made.create("nova").create(1)
        for number in range(SUBRUNS):
            counts = np.arange(EVENTS) % 4
            offsets = np.concatenate([[0], np.cumsum(counts)])
            hits = np.repeat(np.arange(EVENTS), counts)
            run.create(number).ingest("slice", np.arange(EVENTS), {"nhit": hits}, offsets)
        yield made


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    with LocalCluster(hosts=3, cache_directory=tmp_path) as cluster, cluster.client() as made:
        made.wait_for_workers(3)
        yield made


def collect(events: EventBatch) -> dict[str, Any]:
    import awkward as ak

    return {"ids": events.ids(), "sum": int(ak.sum(events["slice"].nhit))}


def test_all_events_are_processed_once_by_all_workers(store: Store, client: Any) -> None:
    seen: list[int] = []
    done = store.process(
        "nova", collect, products=["slice"], client=client, load_batch=256, progress=seen.append
    )
    assert sorted(done.value["ids"]) == EXPECTED
    assert done.value["sum"] == SUBRUNS * sum(event * (event % 4) for event in range(EVENTS))
    assert (len(done.workers), len(done.readers)) == (3, 3)
    assert sum(seen) <= len(EXPECTED)


def test_failing_events_are_named(store: Store, client: Any) -> None:
    def fail(events: EventBatch) -> int:
        if 77 in events.event.tolist():
            raise ValueError("bad")
        return len(events)

    with pytest.raises(FailedEventsError, match="run 1, subrun 3, event 77: ValueError: bad"):
        store.process("nova", fail, products=["slice"], client=client)


def ids(events: EventBatch) -> dict[str, Any]:
    time.sleep(0.01)  # the work that these events take
    return {"ids": events.ids()}


@pytest.mark.parametrize("event", [0, 150, EVENTS - 1])
def test_what_a_killed_worker_had_is_processed_again(
    store: Store, client: Any, tmp_path: Path, event: int
) -> None:
    mark = tmp_path / "died"

    def die_once(events: EventBatch) -> dict[str, Any]:
        if event in events.event.tolist() and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ids(events)

    done = store.process("nova", die_once, products=["slice"], client=client, load_batch=256)
    assert mark.exists()
    assert sorted(done.value["ids"]) == EXPECTED


def test_all_workers_are_killed_at_once(store: Store, client: Any, tmp_path: Path) -> None:
    begun, killed = tmp_path / "begun", tmp_path / "killed"
    workers = list(client.run(os.getpid).values())

    def wait_for_the_end(events: EventBatch) -> dict[str, Any]:
        if not killed.exists():
            begun.touch()
            time.sleep(300)  # it is killed meanwhile
        return ids(events)

    def kill_all() -> None:
        while not begun.exists():
            time.sleep(0.05)
        killed.touch()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)

    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill_all)
        done = store.process("nova", wait_for_the_end, products=["slice"], client=client)
        killing.result()
    assert sorted(done.value["ids"]) == EXPECTED
