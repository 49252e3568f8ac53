"""Processes of a small cluster, forked from one that has imported all they need, so in no time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import awkward as ak
import dask.config
import hist
import numpy as np
from coffea.nanoevents import BaseSchema
from coffea.processor import ProcessorABC
from distributed import Client, Scheduler, Worker

from hepcache.errors import ClusterError
from hepcache.process import Executor, Runner

HOSTS = ("host-0", "host-1")
WORKERS_PER_HOST = 2
WORKERS = tuple(f"{host}/{number}" for host in HOSTS for number in range(WORKERS_PER_HOST))
CHUNKSIZE = 50
CHUNK_S = 0.1
# Of the log in every process; a processor that opened a file for writing would not be stored.
LOG = 200
_START_S = 60

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [__name__, "hepcache.process.worker", "hepcache.process.dispatch", "hepcache.dashboard"]
)


class Adding(ProcessorABC):
    """Adds up integers, and says in the log when it begins a chunk."""

    def process(self, events: Any) -> dict[str, Any]:
        start = events.metadata["entrystart"]
        os.write(LOG, f"{events.metadata['dataset']} {start}\n".encode())
        time.sleep(CHUNK_S)
        values = ak.to_numpy(events.x)
        histogram = hist.Hist(
            hist.axis.Regular(50, 0, 1000, name="x"), storage=hist.storage.Int64()
        )
        histogram.fill(x=values)
        return {"events": len(events), "sum": int(np.sum(values)), "histogram": histogram}

    def postprocess(self, accumulator: Any) -> None:
        pass


class Place:
    """The files of a cluster: what is stored, and what its processes say.

    ``directory``: with a cache for each host, the catalogue and the log.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.address = directory / "scheduler"
        self.output = directory / "output"
        self.begun = directory / "begun"
        directory.mkdir(exist_ok=True)

    def empty_log(self) -> None:
        self.log.write_bytes(b"")

    def chunks(self) -> list[str]:
        """Return the chunks of which processing began since the log was emptied."""
        return self.log.read_text().splitlines()

    def configured(self, host: str = "client") -> None:
        """Configure this process, and open the log."""
        caches = {
            "hepcache.host": host,
            "hepcache.cache.directory": str(self.directory / host),
            "hepcache.catalogue": str(self.directory / "catalogue.sqlite"),
            # A scheduler that is dead when it is asked does not come back.
            "distributed.comm.timeouts.connect": "3s",
        }
        dask.config.set(caches)
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, LOG)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)  # of workers without scheduler, and the like


def started(target: Any, *arguments: Any) -> BaseProcess:
    process = processes.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def schedule(place: Place) -> None:
    """Be the scheduler."""
    place.configured()

    async def serve() -> None:
        async with Scheduler(
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            dashboard=False,
            preload=["hepcache.scheduling.plugin"],
            preload_argv=[],
        ) as scheduler:
            temporary = place.address.with_suffix(".new")
            temporary.write_text(scheduler.address)
            temporary.rename(place.address)
            await scheduler.finished()

    asyncio.run(serve())


def work(place: Place, address: str, name: str) -> None:
    """Be a worker of a host."""
    place.configured(name.partition("/")[0])

    async def serve() -> None:
        async with Worker(
            address,
            nthreads=1,
            name=name,
            host="127.0.0.1",
            memory_limit=0,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            local_directory=str(place.directory / "scratch"),
            preload=["hepcache.process.worker"],
            preload_argv=[],
        ) as worker:
            await worker.finished()

    asyncio.run(serve())


def run(place: Place, address: str, fileset: dict[str, Any]) -> None:
    """Be the client: leave the output, and how many chunks had which outcome."""
    place.configured()
    with Client(address) as client:
        client.wait_for_workers(len(WORKERS), timeout=_START_S)
        runner = Runner(
            Executor(client=client, status=False),
            schema=BaseSchema,
            chunksize=CHUNKSIZE,
            results="reuse",
        )
        place.begun.touch()
        try:
            output = runner(fileset, Adding())
        except ClusterError as error:
            place.output.write_bytes(pickle.dumps(error))
            return
        record = runner.run_record
        assert record is not None
        outcomes = [chunk.outcome for chunk in record.chunks]
        found = output, outcomes.count("done"), outcomes.count("reused"), record.not_stored
        place.output.write_bytes(pickle.dumps(found))


@contextmanager
def cluster(place: Place) -> Iterator[tuple[str, dict[str, BaseProcess]]]:
    """Give the address of a scheduler, and its process and those of its workers by name."""
    place.address.unlink(missing_ok=True)
    running = {"scheduler": started(schedule, place)}
    try:
        until = time.monotonic() + _START_S
        while not place.address.exists():
            assert time.monotonic() < until, "no scheduler"
            time.sleep(0.005)
        address = place.address.read_text()
        for name in WORKERS:
            running[name] = started(work, place, address, name)
        yield address, running
    finally:
        for process in running.values():
            process.kill()
        for process in running.values():
            process.join()
