"""Pools that shrink and grow again, on a real scheduler: who goes first, and what comes back."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
from distributed import Worker, WorkerPlugin
from tests.scheduling.test_plugin import GATES, Gate, Scene, gate, holding, key, pass_gate, play

from hepcache.scheduling.workers import CACHE_PLUGIN, METRIC
from hepcache.upstream import distributed as upstream

__all__ = ["gate"]

GB = 10**9


async def hosts(stack: AsyncExitStack, on: Scene, held: dict[str, int]) -> list[Any]:
    """Add a host for each name, which holds one segment of its own of so many bytes."""
    return [
        await stack.enter_async_context(on.host(name, holding([number], nbytes)))
        for number, (name, nbytes) in enumerate(held.items())
    ]


def test_idle_hosts_that_hold_least_go_first(gate: Gate) -> None:
    """However little memory their results take."""

    async def scene(on: Scene) -> list[Any]:
        async with AsyncExitStack() as stack:
            workers = await hosts(stack, on, {"a": 9 * GB, "b": 3 * GB, "c": 0, "d": 6 * GB})
            results = [
                on.client.submit(bytes, nbytes, key=f"result-{nbytes}", workers=[worker.address])
                for nbytes, worker in zip((10, 1000, 5000, 100), workers, strict=True)
            ]
            await on.client.gather(results)
            ask = on.scheduler.workers_to_close
            found = [ask(n=n, attribute="name") for n in (0, 1, 2, 3)]
            # As Adaptive and cluster managers ask.
            found.append(
                list(
                    await on.client.scheduler.workers_to_close(
                        target=3, key=None, attribute="name"
                    )
                )
            )
            found.append(ask(n=2, minimum=3, attribute="name"))
            found.append(ask(n=1, key=lambda ws: ws.name in "cd", attribute="name"))
            on.futures += on.client.map(
                pass_gate, [0], which=GATES.index(gate), workers=[workers[2].address]
            )
            await on.until(lambda: bool(gate.order))
            found.append(ask(n=2, attribute="name"))
            found.append(ask(attribute="name"))
            gate.event.set()
            await on.client.gather(on.futures)
            return found

    none, one, two, three, asked, bounded, grouped, busy, alone = play(scene)
    assert (none, one, two, three) == ([], ["c"], ["c", "b"], ["c", "b", "d"])
    assert asked == bounded == ["c"]
    assert grouped == []  # somebody's groups stay what they are
    assert busy == ["b", "d"]
    assert alone == ["b", "d", "a"]


def test_dasks_own_choice_is_given_back() -> None:
    async def scene(on: Scene) -> list[Any]:
        async with AsyncExitStack() as stack:
            await hosts(stack, on, {"a": GB, "b": 0})
            found = on.scheduler.workers_to_close(n=1, attribute="name")
            await on.plugin.close()
            await on.plugin.start(on.scheduler)
            await on.plugin.close()
            assert "workers_to_close" not in vars(on.scheduler)
            handler = on.scheduler.handlers["workers_to_close"]
            return [found, handler.__func__ is type(on.scheduler).workers_to_close]

    assert play(scene) == [["b"], True]


def test_without_the_name_dask_is_asked_in_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "_CLOSING", None)

    async def scene(on: Scene) -> list[Any]:
        async with AsyncExitStack() as stack:
            await hosts(stack, on, {"a": 9 * GB, "b": 3 * GB, "c": 0, "d": 6 * GB})
            assert "workers_to_close" not in vars(on.scheduler)
            return list(on.scheduler.workers_to_close(n=3, attribute="name"))

    assert play(scene) == ["c", "b", "d"]


def test_a_host_that_comes_back_is_given_all_that_it_holds(gate: Gate) -> None:
    """Also what another host would have begun before it had nothing else to do."""

    async def scene(on: Scene) -> set[int]:
        async with on.host("b", holding(range(3, 8), GB)) as leaving:
            await on.until(lambda: on.plugin.residency.known(["b"]))
            await leaving.close()
        async with on.host("a"):
            await on.until(lambda: on.plugin.workers.threads() == {"a": 1})
            on.announce(range(8), "a", 0.01)
            on.submit(range(8), gate)
            await on.until(lambda: on.where(7) == "a" and gate.order != [])
            begun = set(gate.order)
            async with on.host("b", holding(range(3, 8), GB)):
                held = set(range(3, 8)) - begun
                await on.until(lambda: all(on.where(number) == "b" for number in held))
                at_home = {n for n in range(8) if on.where(n) == "a"} | begun
                gate.event.set()
                await on.client.gather(on.futures)
        assert at_home >= {0, 1, 2}
        assert all(
            on.scheduler.tasks[key(number)].annotations["hepcache-owner"] == "b" for number in held
        )
        return held - at_home

    assert len(play(scene)) >= 4


def test_a_report_of_a_host_that_was_away_counts() -> None:
    """Its cache may have been emptied meanwhile, and count from one again."""

    async def scene(on: Scene) -> list[float]:
        found = []
        for numbers in (range(3), range(1)):
            async with on.host("b", holding(numbers, GB)):
                found.append(on.plugin.residency.shares(["b"])["b"])
        return found

    assert play(scene) == [3 * GB, GB]


class Late(WorkerPlugin):
    """A worker's plugin that says only after a while of which host the worker is."""

    name = CACHE_PLUGIN

    def setup(self, worker: Worker) -> None:
        report = holding(range(8), GB)
        worker.metrics[METRIC] = lambda _: (
            {"host": worker.name, "generation": 1, "holdings": report} if READY else {}
        )


READY: list[bool] = []


def test_a_worker_that_has_not_said_whose_it_is_gets_nothing_yet(gate: Gate) -> None:
    """Workers of attached clusters learn of hepcache only once they have registered."""
    READY.clear()

    async def scene(on: Scene) -> tuple[set[str], set[str], set[str]]:
        async with on.host("a"):
            await on.client.register_plugin(Late(), name=CACHE_PLUGIN)
            async with Worker(
                on.scheduler.address, nthreads=1, name="b", dashboard=False
            ) as worker:
                await on.until(lambda: worker.address in on.scheduler.workers)
                on.announce(range(8), "a", 2.0)
                on.submit(range(8), gate)
                before = await on.settled(range(8))
                hosts = set(on.plugin.workers.threads())
                READY.append(True)
                await worker.heartbeat()
                waiting = set(range(8)) - set(gate.order)
                await on.until(lambda: {on.where(number) for number in waiting} == {"b"})
                gate.event.set()
                await on.client.gather(on.futures)
                return before, hosts, set(on.plugin.workers.threads())

    assert play(scene) == ({"a"}, {"a"}, {"a", "b"})
