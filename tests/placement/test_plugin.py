"""The plugin inside a real scheduler, with workers in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from distributed import Client, Scheduler, Worker

from hepcache.identity import JobIdentity
from hepcache.placement.calls import announce, forget_run, plan_run
from hepcache.placement.keys import ChunkKey, chunk_key
from hepcache.placement.plugin import OWNER, PlacementPlugin
from hepcache.placement.queues import Queued
from hepcache.placement.residency import Report, pack
from hepcache.placement.roster import METRIC

T = TypeVar("T")
COLUMNS = frozenset({"Jet_pt"})


class Gate:
    """Tasks wait at it; ``order`` is that in which they began."""

    def __init__(self) -> None:
        self.event, self.order = threading.Event(), list[int]()


GATES: list[Gate] = []


@pytest.fixture
def gate() -> Iterable[Gate]:
    GATES.append(Gate())
    yield GATES[-1]
    GATES[-1].event.set()


def pass_gate(number: int, which: int) -> int:
    gate = GATES[which]
    gate.order.append(number)
    assert gate.event.wait(20)
    return number


def key(number: int, run: str = "0a") -> ChunkKey:
    return chunk_key(run, JobIdentity("u", "Events", number), number, number + 1)


def holding(numbers: Iterable[int], nbytes: int) -> Report:
    return pack({("u", "Events"): dict.fromkeys(numbers, (nbytes, COLUMNS))})


class Scene:
    def __init__(self, scheduler: Any, client: Any, plugin: PlacementPlugin) -> None:
        self.scheduler, self.client, self.plugin = scheduler, client, plugin
        self.futures: list[Any] = []

    @asynccontextmanager
    async def host(self, name: str, report: Report | None = None) -> AsyncIterator[Any]:
        said = {"host": name, "generation": 1, "holdings": report or pack({})}
        async with Worker(
            self.scheduler.address, nthreads=1, name=name, dashboard=False,
            metrics={METRIC: lambda _: said},
        ) as worker:  # fmt: skip
            yield worker

    def submit(self, numbers: Iterable[int], gate: Gate) -> list[Any]:
        numbers = list(numbers)
        futures = self.client.map(
            pass_gate, numbers, which=GATES.index(gate), key=[key(number) for number in numbers]
        )
        self.futures += futures  # or Dask would forget the tasks
        return list(futures)

    def announce(self, numbers: Iterable[int], owner: str, seconds: float) -> None:
        tasks = [
            Queued(key(number), (JobIdentity("u", "Events", number),), owner, seconds)
            for number in numbers
        ]
        announce("0a", tasks, self.scheduler)

    def where(self, number: int) -> str:
        ts = self.scheduler.tasks.get(key(number))
        return str(ts.processing_on.name) if ts is not None and ts.processing_on else ""

    async def until(self, condition: Callable[[], bool]) -> None:
        async def poll() -> None:
            while not condition():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(poll(), 20)


def play(scene: Callable[[Scene], Awaitable[T]]) -> T:
    async def play_it() -> T:
        async with (
            Scheduler(dashboard=False, host="127.0.0.1", port=0) as scheduler,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            plugin = PlacementPlugin()
            await plugin.start(scheduler)
            scheduler.add_plugin(plugin)
            try:
                return await asyncio.wait_for(scene(Scene(scheduler, client, plugin)), 60)
            finally:
                await plugin.close()

    return asyncio.run(play_it())


def test_chunks_outlive_the_last_worker(gate: Gate) -> None:
    async def scene(on: Scene) -> list[int]:
        async with on.host("a") as first:
            futures = on.submit(range(3), gate)
            await on.until(lambda: on.where(0) == "a")
            await first.close(executor_wait=False)
            await on.until(
                lambda: {ts.state for ts in on.scheduler.tasks.values()} == {"no-worker"}
            )
        gate.event.set()
        async with on.host("b"):
            return list(await on.client.gather(futures))

    assert play(scene) == [0, 1, 2]


def test_chunks_go_where_their_columns_are_and_wait_there_if_reading_costs_more(
    gate: Gate,
) -> None:
    async def scene(on: Scene) -> set[str]:
        # A hundred seconds to read each again.
        async with on.host("full", holding(range(4), 10**10)), on.host("empty"):
            on.submit(range(4), gate)
            await on.until(lambda: on.where(3) != "")
            for _ in range(5):
                on.plugin.market.open()
                await asyncio.sleep(0.02)
            found = {on.where(number) for number in range(4)}
            gate.event.set()
            return found

    assert play(scene) == {"full"}


def test_an_idle_worker_takes_over_what_is_worth_it(gate: Gate) -> None:
    async def scene(on: Scene) -> int:
        async with on.host("full", holding(range(6), 1000)), on.host("empty"):
            on.announce(range(6), "full", 2.0)
            on.submit(range(6), gate)
            await on.until(lambda: any(on.where(number) == "empty" for number in range(6)))
            gate.event.set()
            await on.until(lambda: len(gate.order) == 6)
            return len(gate.order)

    assert play(scene) == 6


def test_the_longest_is_first(gate: Gate) -> None:
    async def scene(on: Scene) -> list[int]:
        seconds = {0: 1.0, 1: 3.0, 2: 2.0, 3: 9.0}
        async with on.host("a"):
            announce(
                "0a", [Queued(key(number), (), "a", s) for number, s in seconds.items()],
                on.scheduler,
            )  # fmt: skip
            futures = on.submit(range(4), gate)
            await on.until(lambda: on.where(3) != "" and gate.order != [])
            gate.event.set()
            await on.client.gather(futures)
        return gate.order

    # Whichever arrives first is begun at once.
    first, *others = play(scene)
    assert others == [number for number in (3, 1, 2, 0) if number != first]


def test_a_host_that_comes_back_gets_its_own_again(gate: Gate) -> None:
    async def scene(on: Scene) -> set[int]:
        async with on.host("a", holding([], 0)):
            on.announce(range(8), "a", 2.0)
            on.submit(range(8), gate)
            await on.until(lambda: on.where(7) == "a")
            async with on.host("b", holding([2, 5], 10**9)):
                await on.until(lambda: on.where(2) == "b" or on.where(5) == "b")
                on.plugin.market.open()
                found = {number for number in range(8) if on.where(number) == "b"}
                gate.event.set()
        return found

    assert play(scene) & {2, 5}


def test_a_lost_hosts_chunks_move_at_once_and_only_what_it_had_begun_is_blamed(
    gate: Gate,
) -> None:
    async def scene(on: Scene) -> dict[int, int]:
        async with on.host("a", holding(range(3), 10**10)) as lost, on.host("b"):
            on.submit(range(3), gate)
            await on.until(lambda: on.where(2) == "a" and gate.order != [])
            begun = gate.order[0]
            await on.scheduler.remove_worker(lost.address, stimulus_id="test", expected=False)
            await on.until(lambda: {on.where(number) for number in range(3)} == {"b"})
            blame = {n: on.scheduler.tasks[key(n)].suspicious for n in range(3)}
            assert {on.scheduler.tasks[key(n)].annotations[OWNER] for n in range(3)} == {"b"}
            gate.event.set()
        assert blame.pop(begun) == on.scheduler.allowed_failures
        return blame

    assert set(play(scene).values()) == {0}


def test_nothing_is_left_in_the_books(gate: Gate) -> None:
    async def scene(on: Scene) -> int:
        gate.event.set()
        async with on.host("a"), on.host("b"):
            keys = [key(number) for number in range(20)]
            owners, threads = plan_run("0a", keys, None, ["Jet_pt"], {}, None, on.scheduler)
            assert set(owners) == set(threads) == {"a", "b"}
            futures = on.submit(range(20), gate)
            await on.client.gather(futures)
            forget_run("0a", on.scheduler)
            held = {
                host
                for n in range(20)
                for host in on.plugin.residency.best(JobIdentity("u", "Events", n), "ab")
            }
            assert held == {"a", "b"}
        assert on.plugin.runs == {}
        return len(on.plugin.queues) + len(on.plugin._tasks) + len(on.plugin._left)

    assert play(scene) == 0
