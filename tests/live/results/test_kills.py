"""Runs whose client, scheduler or workers are killed go on where they were."""

from __future__ import annotations

import pickle
import random
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot
from tests.live.results.processes import (
    CHUNK_S,
    CHUNKSIZE,
    HOSTS,
    WORKERS,
    Place,
    cluster,
    run,
    started,
)

from hepcache.errors import ClusterError

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

ROUNDS = 20
CHUNKS = 40
DATASETS = {"data": 25, "simulation": 15}
RUN_S = CHUNKS * CHUNK_S / len(WORKERS)
BOUND_S = 60


@pytest.fixture(scope="module")
def fileset(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory, made = tmp_path_factory.mktemp("files"), {}
    for number, (dataset, chunks) in enumerate(DATASETS.items()):
        path = directory / f"{dataset}.root"
        values = np.random.default_rng(number).integers(0, 1000, chunks * CHUNKSIZE)
        with uproot.recreate(path) as file:
            file.mktree("Events", {"x": values})
        made[dataset] = {"files": {str(path): "Events"}}
    return made


@pytest.fixture(scope="module")
def undisturbed(fileset: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = Place(tmp_path_factory.mktemp("undisturbed"))
    with cluster(place) as (address, _):
        output, computed, reused = finished(place, client_of(place, address, fileset))
    assert (computed, reused) == (CHUNKS, 0)
    assert output["events"] == CHUNKS * CHUNKSIZE
    return output


def client_of(place: Place, address: str, fileset: dict[str, Any]) -> BaseProcess:
    place.output.unlink(missing_ok=True)
    place.begun.unlink(missing_ok=True)
    place.empty_log()
    return started(run, place, address, fileset)


def wait_until_begun(place: Place) -> None:
    until = time.monotonic() + BOUND_S
    while not place.begun.exists():
        assert time.monotonic() < until
        time.sleep(0.002)


def finished(place: Place, client: BaseProcess) -> tuple[Any, int, int]:
    """Wait for a client; return its output, and how many chunks were computed and reused."""
    client.join(BOUND_S)
    assert client.exitcode == 0, client.exitcode
    found = pickle.loads(place.output.read_bytes())
    if isinstance(found, ClusterError):
        raise found
    output, computed, reused, not_stored = found
    assert not not_stored
    return output, computed, reused


def check_same(output: Any, expected: Any) -> None:
    """Check that every bit of two outputs is the same."""
    assert {**output, "histogram": None} == {**expected, "histogram": None}
    ours, theirs = (found["histogram"].view(flow=True) for found in (output, expected))
    assert ours.dtype == theirs.dtype == np.int64
    assert ours.tobytes() == theirs.tobytes()


def moments(victim: str) -> list[Any]:
    """Return random moments of a run, from before its first chunk to after its last."""
    chosen = random.Random(victim)
    return [
        pytest.param(chosen.uniform(0, RUN_S + 0.5), id=f"{number}") for number in range(ROUNDS)
    ]


def resumed(
    place: Place, address: str, fileset: dict[str, Any], undisturbed: Any, most: int
) -> int:
    """Run once more; return how many chunks were computed, at most so many."""
    output, computed, reused = finished(place, client_of(place, address, fileset))
    check_same(output, undisturbed)
    assert computed + reused == CHUNKS
    assert computed <= most
    return computed


def resumed_elsewhere(
    place: Place, fileset: dict[str, Any], undisturbed: Any, in_flight: int
) -> None:
    """Run once more on another cluster, which computes what was in flight and what is new."""
    before = {*place.chunks()}
    with cluster(place) as (address, _):
        most = CHUNKS - len(before) + in_flight
        computed = resumed(place, address, fileset, undisturbed, most)
    chunks = place.chunks()
    assert len(chunks) == len({*chunks}) == computed
    assert len({*chunks} & before) <= in_flight


@pytest.mark.parametrize("moment_s", moments("client"))
def test_a_run_whose_client_was_killed_goes_on(
    fileset: dict[str, Any], undisturbed: Any, tmp_path: Path, moment_s: float
) -> None:
    place = Place(tmp_path)
    with cluster(place) as (address, _):
        client = client_of(place, address, fileset)
        wait_until_begun(place)
        time.sleep(moment_s)
        client.kill()
        client.join()
        # By another client, at once: the workers still process what they were at.
        most = CHUNKS - len({*place.chunks()}) + len(WORKERS)
        resumed(place, address, fileset, undisturbed, most)
        assert resumed(place, address, fileset, undisturbed, 0) == 0


@pytest.mark.parametrize("moment_s", moments("scheduler"))
def test_a_run_whose_scheduler_was_killed_goes_on(
    fileset: dict[str, Any], undisturbed: Any, tmp_path: Path, moment_s: float
) -> None:
    place = Place(tmp_path)
    with cluster(place) as (address, processes):
        client = client_of(place, address, fileset)
        wait_until_begun(place)
        time.sleep(moment_s)
        processes["scheduler"].kill()
        with suppress(ClusterError):  # the run may have been over
            check_same(finished(place, client)[0], undisturbed)
    resumed_elsewhere(place, fileset, undisturbed, len(WORKERS))


@pytest.mark.parametrize("moment_s", moments("worker"))
def test_a_run_survives_a_worker_that_is_killed(
    fileset: dict[str, Any], undisturbed: Any, tmp_path: Path, moment_s: float
) -> None:
    survives(
        fileset, undisturbed, Place(tmp_path), moment_s, [random.Random(moment_s).choice(WORKERS)]
    )


@pytest.mark.parametrize("moment_s", moments("host"))
def test_a_run_survives_a_host_that_fails(
    fileset: dict[str, Any], undisturbed: Any, tmp_path: Path, moment_s: float
) -> None:
    host = random.Random(moment_s).choice(HOSTS)
    victims = [worker for worker in WORKERS if worker.startswith(host)]
    survives(fileset, undisturbed, Place(tmp_path), moment_s, victims)


def survives(
    fileset: dict[str, Any], undisturbed: Any, place: Place, moment_s: float, victims: list[str]
) -> None:
    with cluster(place) as (address, processes):
        client = client_of(place, address, fileset)
        wait_until_begun(place)
        time.sleep(moment_s)
        for victim in victims:
            processes[victim].kill()
        output, computed, reused = finished(place, client)
        assert (computed, reused) == (CHUNKS, 0)
        check_same(output, undisturbed)
    assert len({*place.chunks()}) == CHUNKS
    resumed_elsewhere(place, fileset, undisturbed, 0)
