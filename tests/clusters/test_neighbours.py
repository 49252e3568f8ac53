"""Columns that one host holds and another gets from it, on real workers."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, permutations
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
import uproot
from distributed.protocol import to_serialize
from tests.clusters.test_faults import import_what_chunks_need
from tests.clusters.test_local import expected, runner, sums
from tests.formats.conftest import write_mixed_tree

from hepcache.clusters import LocalCluster
from hepcache.errors import ChunkError
from hepcache.process import neighbours
from hepcache.process.neighbours import SEND
from hepcache.process.worker_state import worker_state
from hepcache.scheduling.client_requests import NAME
from hepcache.telemetry import ChunkRecord

FILES = 4
BOUND_S = 90.0


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("caches")
    with LocalCluster(hosts=2, workers_per_host=1, cache_directory=directory) as made:
        yield made


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    """Return two hosts of one worker, cold, that both take work."""
    with shared_cluster.client() as client:
        client.run_on_scheduler(take_work, host="host-0", status="running")
        client.wait_for_workers(2, timeout=BOUND_S)
        client.run(import_what_chunks_need)
    shared_cluster.clear_caches()
    return shared_cluster


@pytest.fixture
def fileset(tmp_path: Path) -> dict[str, dict[str, dict[str, str]]]:
    paths = [write_mixed_tree(tmp_path / f"{i}.root", uproot.ZSTD(1)) for i in range(FILES)]
    return {"data": {"files": {str(path): "Events" for path in paths}}}


def take_work(dask_scheduler: Any, host: str, status: str) -> None:
    """Let a host's workers take work, or none: they answer all the same."""
    table = dask_scheduler.plugins[NAME].workers
    for address in table.members(host):
        dask_scheduler.handle_worker_status_change(status, worker=address, stimulus_id="test")


def unlink(fileset: dict[str, dict[str, dict[str, str]]]) -> None:
    for path in fileset["data"]["files"]:
        Path(path).unlink()


def causes(chunks: list[ChunkRecord]) -> Counter[str]:
    return sum((Counter(chunk.causes) for chunk in chunks), Counter())


def stored_columns(cluster: LocalCluster, host: str) -> list[Path]:
    return sorted(cluster.cache_directory(host).glob("v1/**/*.col"))


def with_neighbours(dask_worker: Any, *, on: bool) -> None:
    dask.config.set({"hepcache.cache.neighbours": on})


def test_a_host_gets_from_another_what_it_lacks_though_the_origin_is_gone(
    cluster: LocalCluster, fileset: dict[str, dict[str, dict[str, str]]]
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=100)
        chunks = list(run.preprocess(fileset))
        some = {chunk.filename for chunk in chunks[: len(chunks) // 2]}
        first: list[ChunkRecord] = []
        # One host at a time: of a short run, either could do all.
        for host, other in permutations(("host-0", "host-1")):
            client.run_on_scheduler(take_work, host=other, status="paused")
            run(
                [chunk for chunk in chunks if (chunk.filename in some) == (host == "host-0")], sums
            )
            assert {chunk.host for chunk in run.run_record.chunks} == {host}
            first += run.run_record.chunks
            client.run_on_scheduler(take_work, host=other, status="running")
        assert causes(first).keys() == {"miss"}
        unlink(fileset)
        client.run_on_scheduler(take_work, host="host-0", status="paused")
        assert run(chunks, sums) == expected(FILES)
        second = run.run_record.chunks
        assert run(chunks, sums) == expected(FILES)
        third = run.run_record.chunks
    moved = {(chunk.path, chunk.start) for chunk in first if chunk.host == "host-0"}
    assert {chunk.host for chunk in second} == {"host-1"}
    for chunk in second:
        found = "neighbour" if (chunk.path, chunk.start) in moved else "hit"
        assert chunk.causes.keys() == {found}, chunk
        assert chunk.origin_bytes == 0
        assert chunk.neighbour_bytes == 0 or found == "neighbour"
    assert sum(chunk.neighbour_bytes for chunk in second) > 0
    # What came stays.
    assert causes(third).keys() == {"hit"}
    assert sum(chunk.neighbour_bytes for chunk in third) == 0


def test_a_column_that_is_damaged_at_its_host_is_read_at_the_origin(
    cluster: LocalCluster, fileset: dict[str, dict[str, dict[str, str]]]
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=100)
        chunks = list(run.preprocess(fileset))
        assert run(chunks, sums) == expected(FILES)
        damaged = stored_columns(cluster, "host-0")
        for path in damaged:
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
        client.run_on_scheduler(take_work, host="host-0", status="paused")
        assert run(chunks, sums) == expected(FILES)
        second = run.run_record.chunks
    assert damaged
    assert causes(second).keys() == {"hit", "stolen"} or causes(second).keys() == {"hit", "miss"}
    assert sum(chunk.origin_bytes for chunk in second) > 0


FAULTS = ("flipped", "short", "another's", "text", "twice", "nothing", "raises", "hangs")


def misbehave(dask_worker: Any, faults: tuple[str, ...]) -> None:
    """Let a worker answer others wrongly, each time in the next of some ways."""
    if not hasattr(dask_worker, "sound_send"):
        dask_worker.sound_send = dask_worker.handlers[SEND]
    sound, dask_worker.wrong_answers = dask_worker.sound_send, []
    left = cycle(faults)

    async def send(**wanted: Any) -> Any:
        if not wanted["keys"]:
            return await sound(**wanted)
        fault = next(left)
        dask_worker.wrong_answers.append(fault)
        if fault == "raises":
            raise ValueError("on purpose")
        if fault == "dies":
            os._exit(1)
        if fault == "hangs":
            await asyncio.sleep(3600)
        if fault in ("text", "nothing"):
            return "text" if fault == "text" else {}
        answer = await sound(**wanted)
        columns = [column.data.copy() for column in answer["columns"] if column is not None]
        for number, column in enumerate(columns):
            column[len(column) * number // len(columns)] ^= fault == "flipped"
        if fault == "short":
            columns = [column[:-1] for column in columns]
        if fault == "another's":
            columns = columns[1:] + columns[:1]
        if fault == "twice":
            columns = columns[1:] + columns
        return {"columns": [to_serialize(column) for column in columns]}

    dask_worker.handlers[SEND] = send if faults else sound


def ask_all_again(answer_s: float) -> None:
    """Let a worker forget that others have failed."""
    worker_state().neighbourhood.forget()
    neighbours._ANSWER_S = answer_s


def test_what_a_host_sends_wrongly_is_read_at_the_origin(
    cluster: LocalCluster, fileset: dict[str, dict[str, dict[str, str]]]
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=100)
        chunks = list(run.preprocess(fileset))
        assert run(chunks, sums) == expected(FILES)
        client.run_on_scheduler(take_work, host="host-0", status="paused")
        hosts = {host: address for address, host in client.run(host_name).items()}
        answered = []
        try:
            for fault in FAULTS:
                for path in stored_columns(cluster, "host-1"):
                    path.unlink()
                patience_s = 0.2 if fault == "hangs" else 30.0
                client.run(ask_all_again, patience_s, workers=[hosts["host-1"]])
                client.run(misbehave, faults=(fault,), workers=[hosts["host-0"]])
                assert run(chunks, sums) == expected(FILES), fault
                assert "neighbour" not in causes(run.run_record.chunks), fault
                answered += client.run(wrong_answers, workers=[hosts["host-0"]])[hosts["host-0"]]
        finally:
            client.run(ask_all_again, 30.0, workers=[hosts["host-1"]])
            client.run(misbehave, faults=(), workers=[hosts["host-0"]])
    assert set(answered) == set(FAULTS)


def wrong_answers(dask_worker: Any) -> list[str]:
    return list(dask_worker.wrong_answers)


@pytest.mark.parametrize("answering", [False, True])
def test_a_host_that_has_died_is_no_loss(
    cluster: LocalCluster, fileset: dict[str, dict[str, dict[str, str]]], *, answering: bool
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=100)
        chunks = list(run.preprocess(fileset))
        assert run(chunks, sums) == expected(FILES)
        client.run_on_scheduler(take_work, host="host-0", status="paused")
        hosts = {host: address for address, host in client.run(host_name).items()}
        died = client.run(os.getpid)[hosts["host-0"]]
        if answering:
            client.run(misbehave, faults=("dies",), workers=[hosts["host-0"]])
        else:
            os.kill(died, 9)
        assert run(chunks, sums) == expected(FILES)
        assert not answering or not psutil.pid_exists(died)
        # The next test must not meet what is left of it.
        until = time.monotonic() + BOUND_S
        while client.run_on_scheduler(is_known, address=hosts["host-0"]):
            assert time.monotonic() < until
            time.sleep(0.05)


def is_known(dask_scheduler: Any, address: str) -> bool:
    return address in dask_scheduler.workers


def test_the_setting_turns_it_off(
    cluster: LocalCluster, fileset: dict[str, dict[str, dict[str, str]]]
) -> None:
    with cluster.client() as client:
        run = runner(client, chunksize=100)
        chunks = list(run.preprocess(fileset))
        assert run(chunks, sums) == expected(FILES)
        client.run(with_neighbours, on=False)
        try:
            client.run_on_scheduler(take_work, host="host-0", status="paused")
            assert run(chunks, sums) == expected(FILES)
            assert "neighbour" not in causes(run.run_record.chunks)
            cluster.clear_caches()
            unlink(fileset)
            with pytest.raises(ChunkError, match="No such file"):
                run(chunks, sums)
        finally:
            client.run(with_neighbours, on=True)


def host_name() -> str:
    from hepcache.settings import settings

    return settings().host
