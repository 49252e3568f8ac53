"""Which workers a shrinking pool closes first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hepcache.placement.closing import Closable, closing_order
from hepcache.placement.identity import JobIdentity
from hepcache.placement.residency import Residency, pack

HOSTS = st.sampled_from("abcd")
WORKERS = st.lists(st.tuples(HOSTS, st.booleans(), st.integers(0, 3)), max_size=12).map(
    lambda found: [
        Closable(f"{host}{number}", host, busy, nbytes)
        for number, (host, busy, nbytes) in enumerate(found)
    ]
)
HELD = st.dictionaries(HOSTS, st.floats(0, 1e12))


def test_of_hosts_with_one_worker_the_one_that_holds_least_goes_first() -> None:
    workers = [Closable(host, host) for host in "abc"]
    assert closing_order(workers, {"a": 2.0, "c": 1.0}, Counter("abc")) == ["b", "c", "a"]


def test_workers_that_may_not_be_closed_count_as_well() -> None:
    workers = [Closable("a0", "a"), Closable("b0", "b")]
    assert closing_order(workers, {"a": 30.0, "b": 20.0}, {"a": 3, "b": 1}) == ["a0", "b0"]


def test_of_a_host_the_worker_with_the_fewest_results_goes_first() -> None:
    workers = [Closable("a0", "a", nbytes=5), Closable("a1", "a"), Closable("a2", "a", nbytes=9)]
    assert closing_order(workers, {"a": 1.0}, {"a": 3}) == ["a1", "a0", "a2"]


@given(WORKERS, HELD)
def test_every_worker_goes_once_and_idle_ones_before_busy_ones(
    workers: list[Closable], held: dict[str, float]
) -> None:
    members = Counter(worker.host for worker in workers)
    order = closing_order(workers, held, members)
    assert sorted(order) == sorted(worker.worker for worker in workers)
    by_name = {worker.worker: worker for worker in workers}
    busy = [by_name[name].busy for name in order]
    assert busy == sorted(busy)
    assert order == closing_order(workers[::-1], held, members)


@given(WORKERS, HELD)
def test_the_next_is_of_the_host_that_holds_least_for_each_worker(
    workers: list[Closable], held: dict[str, float]
) -> None:
    by_name = {worker.worker: worker for worker in workers}
    left = Counter(worker.host for worker in workers)
    waiting = dict(by_name)
    for name in closing_order(workers, held, left):
        able = {worker.host for worker in waiting.values() if worker.busy == by_name[name].busy}
        least = min(held.get(host, 0.0) / left[host] for host in able)
        assert held.get(by_name[name].host, 0.0) / left[by_name[name].host] == least
        left[by_name[name].host] -= 1
        del waiting[name]


def test_what_several_hosts_hold_is_not_lost_with_one() -> None:
    residency, columns = Residency(), frozenset({"met"})
    residency.report("a", pack({("u", "t"): {0: (100, columns), 1: (50, columns)}}))
    residency.report("b", pack({("u", "t"): {0: (100, columns)}}))
    residency.report("c", pack({}, {("u", "t"): {2: {"mass": 2.0}}}))
    assert residency.shares(["a", "b"]) == {"a": 100.0, "b": 50.0}
    assert residency.shares(["a"]) == {"a": 150.0}
    residency.completed(JobIdentity("u", "t", 2), "c")
    assert residency.shares(["c", "d"])["c"] > 1e8
    assert residency.shares(["d"]) == {"d": 0.0}
