"""Many short runs by one client on one cluster leave nothing behind."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import psutil
import pytest
import uproot
from distributed import Client
from tests.clusters.test_local import expected, runner, sums
from tests.formats.conftest import write_mixed_tree

from hepcache import LocalCluster, attach
from hepcache.scheduling.client_requests import NAME

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

RUNS, WARM = 200, 40
FILES = 2
PROCESSOR_BYTES = 4_000_000
# Of a hundred runs and more; each had left its processor. Dask's own logs fill up meanwhile.
GROWN_BYTES = {"worker": 60_000_000, "client and scheduler": 60_000_000}


class Heavy:
    """A processor with something to carry, which no compression makes small."""

    def __init__(self) -> None:
        self.table = np.random.default_rng(1).bytes(PROCESSOR_BYTES)

    def __call__(self, events: object) -> dict[str, int]:
        return sums(events)


@pytest.fixture(params=["local", "attached"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    with ExitStack() as stack:
        if request.param == "local":
            cluster = stack.enter_context(LocalCluster(hosts=2, cache_directory=tmp_path))
            yield stack.enter_context(cluster.client())
        else:
            plain = distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
            )
            yield attach(stack.enter_context(Client(stack.enter_context(plain))))


def on_scheduler(dask_scheduler: Any) -> dict[str, int]:
    plugin = dask_scheduler.plugins[NAME]
    return {
        "tasks": len(dask_scheduler.tasks),
        "groups": len(dask_scheduler.task_groups),
        "prefixes": len(dask_scheduler.task_prefixes),
        "topics": len(dask_scheduler._broker._topics),
        "books": len(plugin.queues) + len(plugin.runs) + len(plugin._tasks),
    }


def memory_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def results(dask_worker: Any) -> int:
    return len(dask_worker.data)


def left(client: Client) -> dict[str, int]:
    found = client.run_on_scheduler(on_scheduler)
    # The scheduler tells workers what to drop over a connection of its own.
    until = time.monotonic() + 10
    while (kept := sum(client.run(results).values())) and time.monotonic() < until:
        time.sleep(0.05)
    return {
        **found,
        "results": kept,
        "futures": len(client.futures),
        "handlers": len(client._event_handlers),
    }


def sizes(client: Client) -> dict[str, int]:
    return {
        "worker": max(client.run(memory_bytes).values()),
        "client and scheduler": memory_bytes(),
    }


def test_runs_leave_nothing_behind(client: Client, tmp_path: Path) -> None:
    paths = [write_mixed_tree(tmp_path / f"{i}.root", uproot.ZSTD(1)) for i in range(FILES)]
    files = {"data": {"files": {str(path): "Events" for path in paths}}}
    run = runner(client, chunksize=250)
    processor = Heavy()

    def go(runs: int) -> tuple[dict[str, int], dict[str, int]]:
        for _ in range(runs):
            assert run(files, processor) == expected(FILES)
        return left(client), sizes(client)

    first, before = go(WARM)
    assert first["tasks"] == first["results"] == first["futures"] == first["books"] == 0
    last, after = go(RUNS - WARM)
    assert last == first
    grown = {name: after[name] - size for name, size in before.items()}
    print(f"grown in {RUNS - WARM} runs: {grown} bytes")
    assert all(grown[name] < limit for name, limit in GROWN_BYTES.items()), grown


def test_runs_that_fail_leave_nothing_either(client: Client, tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "0.root", uproot.ZSTD(1))
    files = {"data": {"files": {str(path): "Events"}}}
    run = runner(client, chunksize=100)
    errors = []
    for _ in range(20):
        with pytest.raises(Exception, match="no physics today") as caught:
            run(files, fail)
        # A notebook keeps the last error, and so all that its frames hold.
        errors.append(caught.value)
    found = left(client)
    assert found["tasks"] == found["results"] == found["futures"] == found["books"] == 0


def fail(events: object) -> None:
    raise RuntimeError("no physics today")
