"""The monitor and the page on a real scheduler with workers in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from distributed import Client, Scheduler, Worker
from distributed.preloading import process_preloads
from tornado.httpclient import AsyncHTTPClient

from hepcache.dashboard import PATH, dask_setup
from hepcache.dashboard.monitor import Monitor
from hepcache.dashboard.state import FULL, READING, WAITING, DatasetView
from hepcache.placement.identity import JobIdentity
from hepcache.placement.residency import pack
from hepcache.scheduling.client_requests import NAME, announce
from hepcache.scheduling.plugin import PlacementPlugin
from hepcache.scheduling.queues import Queued
from hepcache.scheduling.task_keys import ChunkKey, chunk_key
from hepcache.scheduling.workers import METRIC
from hepcache.telemetry import Tally

T = TypeVar("T")
RUN = "0123456789ab"
GATE = threading.Event()


def pass_gate(number: int) -> int:
    assert number == 0 or GATE.wait(20)
    return number


def fail(number: int) -> int:
    raise ValueError(number)


def job(number: int) -> JobIdentity:
    return JobIdentity("u", "Events", number)


def key(number: int, run: str = RUN) -> ChunkKey:
    return chunk_key(run, job(number), number, number + 1)


@pytest.fixture(autouse=True)
def gate() -> threading.Event:
    GATE.clear()
    return GATE


class Scene:
    def __init__(self, scheduler: Any, client: Any) -> None:
        self.scheduler, self.client = scheduler, client
        self.said: dict[str, dict[str, Any]] = {}
        self.futures: list[Any] = []

    @property
    def monitor(self) -> Monitor:
        found: Monitor = self.scheduler.plugins[Monitor.name]
        return found

    def worker(self, host: str, held: tuple[int, ...] = ()) -> Worker:
        columns = frozenset({"Jet_pt"})
        said = self.said[host] = {
            "host": host,
            "generation": 1,
            "holdings": pack({("u", "Events"): dict.fromkeys(held, (10**6, columns))}),
            "tally": Tally().to_dict(),
        }
        return Worker(
            self.scheduler.address, nthreads=1, name=host, dashboard=False,
            metrics={METRIC: lambda _: said},
        )  # fmt: skip

    def submit(self, owners: dict[int, str], run: str = RUN, function: Any = pass_gate) -> None:
        tasks = [
            Queued(key(n, run), (job(n),), host, 1.0, datasets=("tt",))
            for n, host in owners.items()
        ]
        announce(run, tasks, self.scheduler)
        keys = [one.key for one in tasks]
        self.futures += self.client.map(function, list(owners), key=keys, pure=False)

    async def until(self, condition: Callable[[], bool]) -> None:
        async def poll() -> None:
            while not condition():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(poll(), 30)


def play(scene: Callable[[Scene], Awaitable[T]], *, dashboard: bool = False) -> T:
    async def play_it() -> T:
        async with (
            Scheduler(
                dashboard=dashboard, dashboard_address="127.0.0.1:0", host="127.0.0.1", port=0
            ) as scheduler,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            placement = PlacementPlugin()
            await placement.start(scheduler)
            scheduler.add_plugin(placement)
            if dashboard:
                await process_preloads(scheduler, "hepcache.dashboard", []).start()
            else:
                monitor = Monitor(placement)
                await monitor.start(scheduler)
                scheduler.add_plugin(monitor)
            try:
                return await asyncio.wait_for(scene(Scene(scheduler, client)), 60)
            finally:
                await placement.close()
                await scheduler.plugins[Monitor.name].close()

    return asyncio.run(play_it())


def test_a_run_is_followed_from_its_first_chunk_to_its_end() -> None:
    async def scene(on: Scene) -> None:
        async with on.worker("a", held=(0, 1)), on.worker("b") as other:
            assert on.monitor.snapshot().run == ""
            on.submit({0: "a", 1: "a", 2: "b", 3: "b"})
            # Number 0 passes at once.
            await on.until(lambda: on.monitor._run.done_chunks["a"] == 1)
            now = on.monitor._look()
            assert (now.run, now.is_over, now.chunks, now.chunks_done) == (RUN, False, 4, 1)
            first, second = now.hosts
            assert (first.host, first.done, first.todo, first.chunks) == ("a", 0.5, 0.5, 1)
            assert (second.host, second.done, second.todo) == ("b", 0.0, 1.0)
            assert now.segments.cells[0, 0] == FULL
            assert now.segments.cells[1].tolist()[2:] == [READING, WAITING]
            assert set(now.hosts[1].ends_s) == {other.address}
            (dataset,) = now.datasets
            assert (dataset.dataset, dataset.chunks, dataset.done) == ("tt", 4, 1)
            assert 0 < dataset.left_s <= now.hosts[1].ends_s[other.address]

            on.said["b"]["tally"] = {
                **Tally().to_dict(), "chunks": 2, "events": 200, "origin_bytes": 5000,
                "causes": {"miss": 4}, "cause_bytes": {"miss": 9000},
            }  # fmt: skip
            GATE.set()
            await on.client.gather(on.futures)
            await other.heartbeat()
            on.monitor._sample()
            end = on.monitor._look()
            assert (end.is_over, end.chunks_done) == (True, 4)
            assert end.elapsed_s == pytest.approx(
                on.monitor._run.last_done - on.monitor._run.began
            )
            assert (end.tally.events, end.tally.hit_ratio) == (200, 0.0)
            assert [one.done for one in end.hosts] == [1.0, 1.0]
            assert end.tail_s >= 0.0
            assert end.moved == {}
            # The next run begins with nothing.
            on.submit({5: "a"}, run="ba9876543210")
            await on.until(lambda: on.monitor._run.run == "ba9876543210")
            assert on.monitor._look().tally.events == 0
            # The page can go back to the last one.
            last = on.monitor.earlier[RUN]
            assert (last.is_over, last.chunks_done, last.tally.events) == (True, 4, 200)
            assert last.datasets == (DatasetView("tt", 4, 4),)

    play(scene)


def test_who_waits_for_whom_is_shown() -> None:
    async def scene(on: Scene) -> None:
        async with on.worker("a"):
            on.submit({1: "a", 2: "a", 3: "a"})
            await on.until(lambda: [run.running for run in on.monitor._look().runs] == [1])
            on.submit({5: "a", 6: "a"}, run="ba9876543210")
            await on.until(lambda: len(on.monitor._look().runs) == 2)
            long, short = on.monitor._look().runs
            assert (long.running, long.waiting) == (1, 2)
            assert (short.run, short.running, short.waiting) == ("ba9876543210", 0, 2)
            # Both are of one client, which is one user here.
            assert short.behind == {long.user: 1}
            GATE.set()
            await on.client.gather(on.futures)
            assert on.monitor._look().runs == ()

    play(scene)


def test_chunks_done_elsewhere_are_stolen() -> None:
    async def scene(on: Scene) -> None:
        async with on.worker("a"):
            on.submit({0: "gone"})
            await on.client.gather(on.futures)
            now = on.monitor._look()
            assert now.moved == {("gone", "a"): 1}
            assert (now.hosts[0].taken, now.hosts[0].given) == (1, 0)

    play(scene)


def test_what_failed_is_shown_and_not_waited_for() -> None:
    async def scene(on: Scene) -> None:
        async with on.worker("a"):
            on.submit({0: "a"}, function=fail)
            await on.until(lambda: on.futures[0].status == "error")
            now = on.monitor._look()
            assert (now.chunks, now.chunks_done, now.is_over) == (1, 0, True)
            assert [(host.host, host.failed) for host in now.hosts] == [("a", 1)]
            # After the run as well, when its client has left.
            await on.client.cancel(on.futures)
            await on.until(lambda: key(0) not in on.scheduler.tasks)
            assert [host.failed for host in on.monitor._look().hosts] == [1]

    play(scene)


def test_a_worker_that_left_stays_in_the_books() -> None:
    async def scene(on: Scene) -> None:
        async with on.worker("a"):
            async with on.worker("b"):
                on.submit({0: "b"})
                await on.client.gather(on.futures)
            await on.until(lambda: len(on.scheduler.workers) == 1)
            assert len(on.monitor.counts._last) == 1
            now = on.monitor._look()
            assert [(one.host, one.chunks, one.threads) for one in now.hosts] == [
                ("a", 0, 1), ("b", 1, 0),
            ]  # fmt: skip

    play(scene)


def test_snapshots_are_shared_and_cost_little() -> None:
    async def scene(on: Scene) -> None:
        monitor = on.monitor
        first = monitor.snapshot()
        assert monitor.snapshot() is first
        monitor._made -= 2
        assert monitor.snapshot() is not first
        # What takes 0.2 s to make is made every 10 s.
        second = monitor.snapshot()
        monitor._took_s = 0.2
        monitor._made -= 9
        assert monitor.snapshot() is second
        monitor._made -= 1.1
        assert monitor.snapshot() is not second

    play(scene)


def test_the_page_is_one_of_dask_s_and_all_link_to_it() -> None:
    async def scene(on: Scene) -> None:
        port = on.scheduler.http_server.port
        for page in (PATH, "/status"):
            response = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}{page}")
            assert '<a href="hepcache">Hepcache</a>' in response.body.decode()
        monitor = on.monitor
        await dask_setup(on.scheduler)  # once is enough
        assert on.monitor is monitor

    play(scene, dashboard=True)


def test_without_a_dashboard_or_placement_there_is_no_page() -> None:
    async def scene() -> None:
        async with Scheduler(dashboard=False, host="127.0.0.1", port=0) as scheduler:
            await dask_setup(scheduler)
            placement = PlacementPlugin()
            await placement.start(scheduler)
            scheduler.add_plugin(placement)
            await dask_setup(scheduler)
            await placement.close()
            assert set(scheduler.plugins) & {NAME, Monitor.name} == {NAME}

    asyncio.run(scene())
