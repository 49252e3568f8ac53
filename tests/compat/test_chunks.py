"""A processor gets the same entry ranges in every cycle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema

import hepcache
from hepcache import compat
from hepcache.errors import ConfigurationError

CHUNKSIZE = 13


def ranges(events: Any) -> dict[str, Any]:
    begin, end = (events.metadata[name] for name in ("entrystart", "entrystop"))
    time.sleep(0.025 * (end - begin))
    return {"chunks": {(begin, end)}, "events": end - begin}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[distributed.Client]:
    """Client of one host with two threads: of three chunks, the last one makes it trail."""
    home = tmp_path_factory.mktemp("trailing")
    with (
        hepcache.LocalCluster(hosts=1, workers_per_host=2, cache_directory=home) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def files(shared_data: Path) -> dict[str, Any]:
    return {"dy": {"files": {str(shared_data / "nanoaod" / "nano_dy.root"): "Events"}}}


def test_chunks_are_the_same_when_durations_are_known(
    files: dict[str, Any], client: distributed.Client
) -> None:
    plain = coffea.Runner(
        coffea.IterativeExecutor(status=False), chunksize=CHUNKSIZE, schema=BaseSchema
    )
    theirs = plain(files, ranges)
    run = compat.Runner(
        compat.DaskExecutor(client=client, status=False), chunksize=CHUNKSIZE, schema=BaseSchema
    )
    for _ in range(3):
        assert run(files, ranges) == theirs


def test_the_last_chunks_are_cut_where_a_user_asks_for_it(
    files: dict[str, Any], client: distributed.Client
) -> None:
    executor = hepcache.Executor(client=client, status=False)
    run = hepcache.Runner(executor, schema=BaseSchema, chunksize=CHUNKSIZE, divisible=True)
    cold, hot = run(files, ranges), run(files, ranges)
    assert cold["events"] == hot["events"] == 40
    assert len(hot["chunks"]) > len(cold["chunks"]) == 3
    edges = sorted(hot["chunks"])
    assert [begin for begin, _ in edges] == [0, *(end for _, end in edges[:-1])]


def test_chunks_that_must_stay_whole_are_not_divisible(files: dict[str, Any]) -> None:
    run = hepcache.Runner(
        hepcache.Executor(), schema=BaseSchema, align_clusters=True, divisible=True
    )
    with pytest.raises(ConfigurationError, match="align_clusters"):
        run(files, ranges)
