from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.report.schedule import Task, schedule

A, B = frozenset("a"), frozenset("b")


def test_longest_first_on_the_hosts_own_threads():
    tasks = [Task("a", s, 9.0, holders=A) for s in (1, 2, 3, 4)] + [Task("b", 5.0, holders=B)]
    done = schedule(tasks, {"a": 2, "b": 1})
    # a: 4+1 and 3+2; b: 5.
    assert done.makespan_s == 5
    assert done.finish_s == {"a": 5, "b": 5}
    assert done.hosts == ("a", "a", "a", "a", "b")
    assert not any(done.read)


def test_threads_pause_between_tasks_only():
    done = schedule([Task("a", 1.0, holders=A)] * 3, {"a": 1}, gap_s=0.5)
    assert done.makespan_s == 4


def test_an_idle_host_helps_where_that_is_worth_the_reading():
    tasks = [Task("a", 2.0, away_s, holders=A) for away_s in (1.0, 1.0, 1.0)]
    # b begins the last one at 0, reads 1 s, ends at 3, where a would end it at 6.
    done = schedule(tasks, {"a": 1, "b": 1})
    assert done.makespan_s == 4
    assert sorted(done.hosts) == ["a", "a", "b"]
    assert [r for r, h in zip(done.read, done.hosts, strict=True) if h == "b"] == [True]
    dear = [Task("a", 2.0, 4.0, holders=A)] * 3
    assert schedule(dear, {"a": 1, "b": 1}).hosts == ("a", "a", "a")


def test_a_move_has_to_gain_what_it_takes():
    tasks = [Task("a", 2.0, 1.0, holders=A)] * 2
    # b would end the second one at 3 instead of 4.
    assert schedule(tasks, {"a": 1, "b": 1}, move_s=0.9).makespan_s == 3
    assert schedule(tasks, {"a": 1, "b": 1}, move_s=1.0).makespan_s == 4


def test_who_holds_it_too_helps_for_nothing():
    done = schedule([Task("a", 2.0, 9.0, holders=A | B)] * 2, {"a": 1, "b": 1})
    assert (done.makespan_s, done.read) == (2, (False, False))


def test_a_segment_is_read_once_by_each_host():
    tasks = [Task("a", 1.0, 3.0, segment="s")] * 3
    done = schedule(tasks, {"a": 1})
    assert done.makespan_s == 6
    assert sorted(done.read) == [False, False, True]


def test_what_is_evicted_is_read_again_by_who_holds_the_rest():
    assert schedule([Task("a", 1.0, 3.0, 0.5, A)], {"a": 1}).makespan_s == 1.5


def test_a_fast_host_takes_less_time():
    tasks = [Task("a", 4.0, holders=A), Task("b", 4.0, holders=B)]
    done = schedule(tasks, {"a": 1, "b": 1}, speeds={"a": 2.0, "b": 1.0})
    assert done.finish_s == {"a": 2, "b": 4}


def test_a_home_must_be_there():
    with pytest.raises(ValueError, match="gone"):
        schedule([Task("gone", 1.0)], {"a": 1, "gone": 0})
    assert schedule([], {}).makespan_s == 0


tasks_of_ab = st.lists(
    st.builds(
        Task,
        home=st.sampled_from("ab"),
        work_s=st.floats(0.01, 10),
        away_s=st.floats(0, 20),
        holders=st.sampled_from([A, B, A | B]),
    ),
    max_size=25,
)


@given(tasks_of_ab, st.integers(1, 3), st.integers(1, 3), st.floats(0, 0.1))
def test_bounds_of_every_schedule(tasks, a, b, gap):
    done = schedule(tasks, {"a": a, "b": b}, gap_s=gap)
    assert len(done.hosts) == len(done.read) == len(tasks)
    cost = [t.work_s + (t.away_s if r else 0) for t, r in zip(tasks, done.read, strict=True)]
    for task, host, read in zip(tasks, done.hosts, done.read, strict=True):
        assert read == (host not in task.holders and task.away_s > 0)
    assert done.makespan_s >= sum(cost) / (a + b) - 1e-6
    assert done.makespan_s >= max(cost, default=0) - 1e-6
    for host, threads in (("a", a), ("b", b)):
        own = [c for c, ran in zip(cost, done.hosts, strict=True) if ran == host]
        # Nobody waits while something waits at home.
        longest = max(own, default=0)
        assert done.finish_s[host] <= sum(own) / threads + longest + gap * len(own) + 1e-6


@given(tasks_of_ab)
def test_helping_never_makes_it_later(tasks):
    """With one thread each, what waits is known exactly, so that every move is a gain."""
    done = schedule(tasks, {"a": 1, "b": 1}).makespan_s
    alone = [
        sum(t.work_s + (0 if t.home in t.holders else t.away_s) for t in tasks if t.home == host)
        for host in "ab"
    ]
    assert done <= max(alone) + 1e-6
