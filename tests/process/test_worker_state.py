"""What a worker process keeps: its state is one, and knows the next chunks."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from typing import Any

import awkward as ak
import dask.config
import pytest
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor
from distributed import Client, Worker, get_worker

from hepcache.cache.access_log import read_totals
from hepcache.process import Runner
from hepcache.process.chunk import Chunk, Content
from hepcache.process.dispatch import Batch, BatchFunction, task_keys
from hepcache.process.worker import CachePlugin
from hepcache.process.worker_state import WorkerState, forget, worker_state
from hepcache.scheduling.workers import METRIC


def chunk(number: int) -> Chunk:
    return Chunk(
        "d", "a.root", "Events", number, number + 1, uuid.UUID(int=1).bytes, {},
        content=Content(tag="t", validator="v", boundaries=(0, 100)),
    )  # fmt: skip


def next_entries(item: Chunk) -> dict[str, list[tuple[int, list[int]]]]:
    if item.entrystart == 0:
        # The others are sent while this one runs.
        while len(get_worker().state.ready) < 2:
            time.sleep(0.01)
    return {"next": [(item.entrystart, [one.entrystart for one in worker_state().upcoming(4)])]}


def test_the_rest_of_the_batch_comes_first_then_what_waits() -> None:
    groups = [(0, 1), (2, 3, 4), (5,)]
    batches = [Batch(tuple(chunk(number) for number in group)) for group in groups]
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        # As by the plugin: what is restricted is sent at once, not queued at the scheduler.
        workers = list(client.scheduler_info()["workers"])
        task = BatchFunction(next_entries, None, False, "0a", "topic")
        futures = [
            client.submit(task, batch, key=key, priority=-number, workers=workers)
            for number, (batch, key) in enumerate(
                zip(batches, task_keys("0a", [batch.items[0] for batch in batches]), strict=True)
            )
        ]
        found = dict(pair for one in client.gather(futures) for pair in one["next"])
    assert found[0] == [1, 2, 3, 4]
    assert found[1] == [2, 3, 4, 5]
    assert found[2] == [3, 4, 5]
    assert found[5] == []


def test_outside_a_worker_only_the_batch_is_known() -> None:
    state = WorkerState()
    assert state.upcoming() == []
    with state.working_on(0, [chunk(1), chunk(2)]):
        assert state.upcoming(1) == [chunk(1)]
        others: list[int] = []
        thread = threading.Thread(target=lambda: others.append(len(state.upcoming())))
        thread.start()
        thread.join()
        assert others == [0]
    assert state.upcoming() == []


def test_a_worker_has_what_is_read() -> None:
    assert hasattr(Worker, "get_current_task")


def test_the_plugin_of_a_worker_has_the_state_of_its_process(tmp_path: Path) -> None:
    with (
        dask.config.set({"hepcache.cache.directory": str(tmp_path), "hepcache.host": "here"}),
        Client(processes=False, n_workers=1, dashboard_address=None) as client,
    ):
        forget()
        client.register_plugin(CachePlugin())

        def report(dask_worker: Worker) -> dict[str, Any]:
            plugin = dask_worker.plugins[CachePlugin.name]
            assert plugin.state is worker_state()
            return dict(dask_worker.metrics[METRIC](dask_worker))

        (found,) = client.run(report).values()
        forget()
    assert found["host"] == "here"
    assert found["holdings"] == ([], [], [], [])
    assert found["working"] == []


@pytest.mark.filterwarnings("ignore::UserWarning")  # of chunks that are skipped
def test_what_a_run_did_is_counted_beside_its_cache(shared_data: Path) -> None:
    """Chunks by outcome, columns and bytes agree with the records of the runs."""
    path = shared_data / "nanoaod" / "nano_dy.root"
    fileset = {"dy": {"files": {str(path): "Events"}}}

    def jets(events: Any) -> dict[str, int]:
        if events.metadata["entrystart"] == 0:
            raise ZeroDivisionError
        return {"jets": int(ak.sum(events.nJet))}

    hits = misses = origin_bytes = 0
    for _ in range(2):
        runner = Runner(
            IterativeExecutor(status=False),
            schema=BaseSchema,
            chunksize=20,
            skipbadfiles=(ZeroDivisionError,),
        )
        runner(fileset, jets)
        causes = [record.causes for record in runner.run_record.chunks]
        hits += sum(cause.get("hit", 0) for cause in causes)
        misses += sum(count for cause in causes for name, count in cause.items() if name != "hit")
        origin_bytes += sum(record.origin_bytes for record in runner.run_record.chunks)
    totals, _ = read_totals(worker_state().cache.layout.access_log)
    chunks = len(runner.run_record.chunks)
    assert (totals.done, totals.skipped, totals.failed) == (2 * chunks, 2, 0)
    assert (totals.hits, totals.misses) == (hits, misses)
    assert totals.hits > 0 < totals.misses
    assert totals.origin_bytes == origin_bytes > 0
    assert totals.hit_bytes > 0 < totals.miss_bytes
