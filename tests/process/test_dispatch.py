"""Every chunk has a key of its own, which says where it belongs."""

from __future__ import annotations

import uuid
from pathlib import Path
from urllib.parse import urlsplit

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import DaskExecutor
from coffea.processor.executor import WorkItem
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker

from hepcache.clusters import attach
from hepcache.placement.identity import JobIdentity
from hepcache.process import Executor, Runner
from hepcache.process.chunk import Chunk, Content
from hepcache.process.dispatch import task_keys
from hepcache.scheduling.task_keys import (
    duplicate_key,
    entries_of,
    identity_of,
    is_chunk,
    original_run,
    run_of,
)

UUID = uuid.UUID(int=7)
RUN = "0123456789ab"


def chunk(dataset: str, path: str) -> Chunk:
    return Chunk(
        dataset, path, "Events", 10, 30, UUID.bytes, {}, content=Content(boundaries=(0, 20, 40))
    )


def test_equal_chunks_have_different_keys_and_one_identity() -> None:
    url = "https://me:secret@host/a.root"
    items = [chunk("a", url), chunk("b", url), chunk("b", "copy.root"), chunk("b", "copy.root")]
    keys = task_keys(RUN, items)
    assert len(set(keys)) == len(items)
    assert {identity_of(key) for key in keys} == {JobIdentity(str(UUID), "Events", 0)}
    assert "secret" not in str(keys)
    duplicates = [duplicate_key(key) for key in keys]
    again = task_keys(f"{RUN}01", items)
    assert len({*keys, *duplicates, *again}) == 3 * len(items)
    for key in (*keys, *duplicates, *again):
        assert is_chunk(key)
        assert entries_of(key) == 20
        assert original_run(key) == RUN
    assert run_of(again[0]) == f"{RUN}01"


def test_chunks_that_coffea_cut_have_keys_too() -> None:
    item = WorkItem("a", "a.root", "Events", 10, 30, UUID.bytes)
    one, other = task_keys(RUN, [item, item])
    assert one != other
    assert identity_of(one) == identity_of(other) == JobIdentity(str(UUID), "Events", 10)


def test_results_of_many_machines_are_all_in_the_sum(tmp_path: Path) -> None:
    """What is left of every machine takes several rounds of merging."""
    with uproot.recreate(tmp_path / "x.root") as file:
        file.mktree("Events", {"x": np.arange(400)})
    workers = {
        number: {"cls": Worker, "options": {"host": f"127.0.0.{number + 1}", "nthreads": 1}}
        for number in range(7)
    }
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard": False}}
    with SpecCluster(workers=workers, scheduler=scheduler) as cluster, Client(cluster) as client:
        client.wait_for_workers(7)
        attach(client)
        run = Runner(
            Executor(client=client, status=False, treereduction=2), schema=BaseSchema, chunksize=5
        )
        fileset = {"dy": {"files": {str(tmp_path / "x.root"): "Events"}}}
        output = run(fileset, lambda events: {"n": len(events), "sum": int(ak.sum(events.x))})
        hosts = {urlsplit(address).hostname for address in client.nthreads()}
    assert len(hosts) == 7
    assert output == {"n": 400, "sum": 400 * 399 // 2}


def test_a_cluster_that_hepcache_is_not_attached_to_is_told(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "x.root") as file:
        file.mktree("Events", {"x": np.arange(40)})
    fileset = {"dy": {"files": {str(tmp_path / "x.root"): "Events"}}}
    with (
        LocalCluster(1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        run = Runner(DaskExecutor(client=client, status=False), schema=BaseSchema)
        with pytest.warns(UserWarning, match=r"call hepcache\.attach\(client\) once"):
            assert run(fileset, lambda events: {"n": len(events)}) == {"n": 40}
