"""Who tries a straggler too."""

from __future__ import annotations

from tests.placement.test_queues import task

from hepcache.placement.policy import owners
from hepcache.placement.stragglers import duplicates


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
