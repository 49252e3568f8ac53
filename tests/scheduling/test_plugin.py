"""The scheduler plugin on a real scheduler, and its rules for stragglers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from math import inf
from typing import Any, TypeVar

import pytest
from distributed import Client, Scheduler, Worker
from tests.scheduling.test_queues import task

from hepcache.placement.identity import JobIdentity
from hepcache.placement.policy import owners
from hepcache.placement.residency import Report, pack
from hepcache.process.worker import CachePlugin
from hepcache.scheduling.client_requests import announce, forget_run, plan_run
from hepcache.scheduling.plugin import OWNER, Durations, PlacementPlugin, duplicates, is_overdue
from hepcache.scheduling.queues import Queued
from hepcache.scheduling.task_keys import ChunkKey, chunk_key
from hepcache.scheduling.workers import METRIC

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

    async def settled(self, numbers: range) -> set[str]:
        """Return where tasks are once idle workers had the occasion to take them over."""
        await self.until(lambda: self.where(numbers[-1]) != "")
        for _ in range(5):
            self.plugin.rebalancer.rebalance()
            await asyncio.sleep(0.02)
        return {self.where(number) for number in numbers}

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
            found = await on.settled(range(4))
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


def test_chunks_that_turn_out_short_stay_where_their_columns_are(gate: Gate) -> None:
    async def scene(on: Scene) -> set[str]:
        async with on.host("full", holding(range(6), 1000)), on.host("empty"):
            for _ in range(3):
                # They were measured on a day when everything took a hundred times as long.
                on.plugin.run("0a").durations.note(0.02, 2.0)
            on.announce(range(6), "full", 2.0)
            on.submit(range(6), gate)
            found = await on.settled(range(6))
            gate.event.set()
            return found

    assert play(scene) == {"full"}


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


def worker_side(worker: Any) -> dict[Any, tuple[float, ...]]:
    return {ts.key: ts.priority[:-1] for ts in worker.state.ready}


def test_a_worker_whose_report_fails_stays_on_its_host() -> None:
    """Dask leaves out of a heartbeat what could not be made."""

    def failing(_: Any) -> Any:
        raise RuntimeError("not now")

    async def scene(on: Scene) -> tuple[str, str]:
        async with on.host("a") as worker:
            before = on.plugin.workers.update(worker.address)
            worker.metrics[METRIC] = failing
            await worker.heartbeat()
            assert METRIC not in on.scheduler.workers[worker.address].metrics
            return before, on.plugin.workers.update(worker.address)

    assert play(scene) == ("a", "a")


def test_a_worker_takes_tasks_in_the_order_that_is_in_the_books(gate: Gate) -> None:
    """Also after it turned out that a run's tasks take longer than anybody thought."""

    async def scene(on: Scene) -> tuple[list[int], list[int]]:
        async with on.host("a") as worker:
            await worker.plugin_add(CachePlugin(), name=CachePlugin.name)
            report = worker.metrics[METRIC]
            worker.metrics[METRIC] = lambda w: {**report(w), "host": "a"}
            await worker.heartbeat()
            for run, user, number in (("0a", "alice", 0), ("0b", "bob", 30)):
                plan_run(run, [key(number, run)], None, [], {}, user=user,
                         dask_scheduler=on.scheduler)  # fmt: skip
            on.submit(range(20), gate)
            await on.until(lambda: on.where(19) == "a" and gate.order != [])
            numbers = range(30, 34)
            on.futures += on.client.map(
                pass_gate, numbers, which=GATES.index(gate),
                key=[key(number, "0b") for number in numbers],
            )  # fmt: skip
            await on.until(lambda: len(worker.state.ready) == 23)
            for _ in range(3):
                on.plugin.runs["0a"].durations.note(1e6, 1.0)
            books = on.plugin.queues
            await on.until(
                lambda: worker_side(worker)
                == {task.key: on.scheduler.tasks[task.key].priority
                    for task in books.waiting(worker.address, 99)}
                and max(worker_side(worker).values())[1] > 1.0
            )  # fmt: skip
            expected = [task.key[3] for task in reversed(books.waiting(worker.address, 99))]
            gate.event.set()
            await on.until(lambda: len(gate.order) == 24)
            return gate.order[1:], expected

    found, expected = play(scene)
    assert found == expected
    assert sorted(found[:5])[1:] == [30, 31, 32, 33]


def test_what_a_run_needs_besides_its_chunks_goes_before_them(gate: Gate) -> None:
    async def scene(on: Scene) -> dict[str, tuple[float, ...]]:
        async with on.host("a"):
            on.submit(range(3), gate)
            await on.until(lambda: on.where(2) == "a")
            others = {"hepcache-processor-0b": 2, "hepcache-merge-0b": 3, "other": 2}
            on.futures += [
                on.client.submit(int, key=(name, 0), priority=priority)
                for name, priority in others.items()
            ]
            await on.until(lambda: all((name, 0) in on.scheduler.tasks for name in others))
            found = {name: on.scheduler.tasks[name, 0].priority for name in others}
            gate.event.set()
            return found

    found = play(scene)
    # A merge is sent with a higher priority for schedulers without the plugin.
    assert found["hepcache-processor-0b"][:2] == found["hepcache-merge-0b"][:2] == (-2, -inf)
    assert found["other"][:2] == (-2, 0.0)


def test_a_host_that_comes_back_gets_its_own_again(gate: Gate) -> None:
    async def scene(on: Scene) -> set[int]:
        async with on.host("a", holding([], 0)):
            on.announce(range(8), "a", 2.0)
            on.submit(range(8), gate)
            await on.until(lambda: on.where(7) == "a")
            async with on.host("b", holding([2, 5], 10**9)):
                await on.until(lambda: on.where(2) == "b" or on.where(5) == "b")
                on.plugin.rebalancer.rebalance()
                found = {number for number in range(8) if on.where(number) == "b"}
                gate.event.set()
        return found

    assert play(scene) & {2, 5}


def test_a_lost_hosts_chunks_move_at_once_and_only_what_it_had_begun_is_blamed(gate: Gate) -> None:
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
            owners, threads = plan_run(
                "0a", keys, None, ["Jet_pt"], {}, dask_scheduler=on.scheduler
            )
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


def test_a_chunk_is_overdue_after_many_times_what_others_take() -> None:
    durations = Durations()
    assert not is_overdue(29.0, durations.expected_s(0.1, guessed=False))
    assert is_overdue(31.0, durations.expected_s(0.1, guessed=False))
    # Nothing is known of a first run, for some time.
    assert not is_overdue(299.0, durations.expected_s(0.1, guessed=True))
    assert is_overdue(301.0, durations.expected_s(0.1, guessed=True))
    for taken_s in (1.0, 5.0, 100.0):
        durations.note(taken_s, 0.1)
    for guessed in (True, False):
        assert not is_overdue(49.0, durations.expected_s(0.1, guessed=guessed))
        assert is_overdue(51.0, durations.expected_s(0.1, guessed=guessed))


def test_what_goes_faster_than_planned_is_not_overdue_sooner() -> None:
    durations = Durations()
    for _ in range(5):
        durations.note(1.0, 10.0)
    assert durations.expected_s(10.0, guessed=False) == 10.0
    assert durations.expected_s(10.0, guessed=True) == 1.0


def test_an_idle_host_tries_it_and_never_its_own() -> None:
    late = [("a", task(0)), ("b", task(1)), ("a", task(2))]
    assert duplicates(late, {}) == duplicates(late, {"a": 0, "b": 0}) == []
    assert duplicates(late[:1], {"a": 3}) == []
    assert duplicates(late, {"a": 3, "b": 1}) == [(task(0), "b"), (task(1), "a")]


def test_of_several_it_is_the_next_owner() -> None:
    for number in range(20):
        (found,) = duplicates([("a", task(number))], {"a": 1, "b": 1, "c": 1, "d": 1})
        others = {"b": 1.0, "c": 1.0, "d": 1.0}
        assert found[1] == owners(task(number).jobs, others, count=1)[0][0]
