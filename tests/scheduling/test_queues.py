"""The scheduler's own books of what waits where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.placement.identity import JobIdentity
from hepcache.scheduling.queues import Queued, Queues
from hepcache.scheduling.task_keys import ChunkKey, chunk_key


def task(number: int, seconds: float = 1.0, rank: float | None = None) -> Queued:
    job = JobIdentity("u", "Events", number)
    position = float(number) if rank is None else rank
    return Queued(chunk_key("0a", job, number, number + 1), (job,), "h", seconds, (position,))


def numbers(found: list[Queued]) -> list[int]:
    return [one.jobs[0].segment for one in found]


def test_a_worker_begins_as_many_as_it_has_threads_and_the_rest_in_order_of_rank() -> None:
    queues = Queues()
    queues.join("w", 2)
    for number in (0, 1, 9, 5, 7):
        queues.put("w", task(number))
    assert [queues.has_begun(task(number).key) for number in (0, 1, 9, 5, 7)] == [
        True,
        True,
    ] + 3 * [False]
    assert numbers(queues.waiting("w", 10)) == [9, 7, 5]
    queues.take(task(0).key)
    assert queues.has_begun(task(5).key)
    assert numbers(queues.waiting("w", 1)) == [9]


def of(user: str, number: int, seconds: float = 1.0, priority: float = 0.0) -> Queued:
    job = JobIdentity(user, "Events", number)
    key = chunk_key(user, job, number, number + 1)
    return Queued(key, (job,), "h", seconds, (priority, float(number)), user=user)


def begun_in_turn(queues: Queues, worker: str) -> list[str]:
    """Let a worker do all that it has; return whose tasks it began, one after the other."""
    order = []
    while queues.ages_s(worker):
        (task,) = queues.ages_s(worker)
        order.append(task.user)
        queues.take(task.key)
    return order


def test_users_take_turns_whoever_came_first() -> None:
    queues = Queues()
    queues.join("w", 1)
    for number in range(20):
        queues.put("w", of("long", number))
    for number in range(4):
        queues.put("w", of("short", number, 0.5))
    order = begun_in_turn(queues, "w")
    # Two seconds of its own, and as much of the other's.
    assert order[:6].count("short") == 4
    assert len(order) == 24


def test_several_runs_of_a_user_share_one_turn() -> None:
    queues = Queues()
    queues.join("w", 1)
    for run in "abc":
        for number in range(10):
            queues.put("w", replace(of(run, number), user="many"))
    for number in range(10):
        queues.put("w", of("one", number))
    assert begun_in_turn(queues, "w")[:21].count("one") == 10


def test_a_higher_priority_comes_before_every_turn() -> None:
    queues = Queues()
    queues.join("w", 1)
    for number in range(5):
        queues.put("w", of("a", number))
        queues.put("w", of("b", number))
    for number in range(3):
        queues.put("w", of("urgent", number, 9.0, priority=-1.0))
    assert begun_in_turn(queues, "w")[1:4] == ["urgent"] * 3


def test_turns_are_taken_anew_when_it_is_known_how_long_tasks_take() -> None:
    scales = {"long": 1.0, "short": 1.0}
    queues = Queues(scale=lambda task: scales[task.user])
    queues.join("w", 1)
    # It says a millisecond, and takes eight seconds.
    for number in range(50):
        queues.put("w", of("long", number, 0.001))
    scales["long"] = 8000.0
    assert queues.misjudged() == []
    for number in range(10):
        queues.put("w", of("short", number, 0.1))
    assert queues.misjudged() == ["w"]
    ranks = queues.take_turns("w")
    assert len(ranks) == 59
    assert queues.misjudged() == []
    assert [ranks[found.key] for found in queues.waiting("w", 99)] == sorted(
        ranks.values(), reverse=True
    )
    assert begun_in_turn(queues, "w")[:12].count("short") == 10


def test_a_run_that_has_ended_is_judged_no_more() -> None:
    scales = {"a": 1.0, "b": 1.0, "c": 1.0}
    queues = Queues(scale=lambda task: scales[task.user])
    queues.join("w", 1)
    for user in "abbcc":
        queues.put("w", of(user, len(queues)))
    queues.take(of("a", 0).key)
    scales["a"] = 99.0
    assert queues.misjudged() == []
    scales["b"] = 99.0
    assert queues.misjudged() == ["w"]


def test_who_comes_to_an_idle_worker_is_not_behind_those_of_others() -> None:
    queues = Queues()
    for worker in "vw":
        queues.join(worker, 1)
    for number in range(9):
        queues.put("v", of("a", number))
    begun_in_turn(queues, "v")
    assert queues.put("w", of("b", 0))[1] == queues.turn_now(0.0) > 0


def test_next_in_line_is_what_the_threads_begin_when_they_are_free() -> None:
    queues = Queues()
    queues.join("w", 2)
    assert queues.next_in_line("w") == set()
    for number in (0, 1, 9, 5, 7):
        queues.put("w", task(number))
    assert queues.next_in_line("w") == {task(5).key, task(7).key}


def test_what_was_begun_is_partly_done() -> None:
    now = [100.0]
    queues = Queues(lambda: now[0])
    queues.join("w", 2)
    queues.put("w", task(0, 4.0))
    queues.put("w", task(1, 2.0))
    queues.put("w", task(2, 8.0))
    assert queues.wait_s("w") == 7
    now[0] += 1
    assert queues.wait_s("w") == 6
    now[0] += 4
    assert queues.wait_s("w") == 4
    queues.take(task(0).key)
    assert queues.wait_s("w") == 4
    now[0] += 0.5
    assert queues.wait_s("w") == 3.75


def test_what_takes_far_too_long_may_take_as_long_again() -> None:
    now = [0.0]
    queues = Queues(lambda: now[0])
    queues.join("w", 2)
    for number in (0, 1):
        queues.put("w", task(number, 2.0))
    now[0] = 7.0
    assert queues.ages_s("w") == {task(0, 2.0): 7.0, task(1, 2.0): 7.0}
    now[0] = 20.0
    assert queues.wait_s("w") == 0
    now[0] = 21.0
    assert queues.wait_s("w") == 21


def test_what_was_guessed_takes_far_too_long_once_others_have_ended() -> None:
    now = [0.0]
    queues = Queues(lambda: now[0])
    queues.join("w", 1)
    for number in (0, 1):
        queues.put("w", replace(task(number, 0.001), guessed=True))
    now[0] = 20.0
    assert queues.wait_s("w") == pytest.approx(0.001)
    # Tasks take a hundred times longer than was guessed: 0.1 s for each that waits.
    assert 100 * queues.wait_s("w", pace=100.0) == pytest.approx(20.1)


def test_a_cancelled_task_occupies_its_thread_until_it_ends() -> None:
    now = [0.0]
    queues = Queues(lambda: now[0])
    queues.join("w", 1)
    for number in (0, 1):
        queues.put("w", task(number))
    queues.take(task(0).key, ended=False)
    queues.occupy("w", 1)
    now[0] = 5.0
    queues.occupy("w", 1)
    assert not queues.has_begun(task(1).key)
    assert (queues.wait_s("w"), queues.idle_threads("w")) == (6.0, 0)
    queues.occupy("w", 0)
    assert queues.has_begun(task(1).key)
    assert queues.wait_s("w") == 1.0
    queues.take(task(1).key)
    assert queues.idle_threads("w") == 1
    queues.occupy("nobody", 1)


def test_a_task_is_at_one_worker_only() -> None:
    queues = Queues()
    for worker in ("v", "w"):
        queues.join(worker, 1)
    queues.put("v", task(0))
    queues.put("v", task(1))
    queues.put("w", task(1))
    assert queues.worker_of(task(1).key) == "w"
    assert not queues.is_waiting("v")
    assert len(queues) == 2
    assert queues.leave("w") == {task(1).key: True}
    assert queues.worker_of(task(1).key) is None


def test_the_least_loaded_worker_is_the_one_that_begins_first() -> None:
    queues = Queues()
    queues.join("one", 1)
    queues.join("four", 4)
    queues.put("one", task(0, 2.0))
    queues.put("four", task(1, 6.0))
    assert queues.least_loaded(["one", "four"]) == "four"


@given(
    st.lists(
        st.tuples(st.sampled_from("pt"), st.integers(0, 8), st.sampled_from("abc")), max_size=60
    ),
    st.integers(1, 3),
)
def test_books_agree_with_a_plain_model(steps: list[tuple[str, int, str]], threads: int) -> None:
    queues, model = Queues(), dict[ChunkKey, str]()
    for worker in "abc":
        queues.join(worker, threads)
    for step, number, worker in steps:
        key = task(number).key
        if step == "p":
            queues.put(worker, task(number))
            model[key] = worker
        else:
            assert (queues.take(key) is None) == (model.pop(key, None) is None)
    assert len(queues) == len(model)
    for worker in "abc":
        here = [key for key, where in model.items() if where == worker]
        begun = [key for key in here if queues.has_begun(key)]
        assert len(begun) == min(len(here), threads)
        assert queues.is_waiting(worker) == (len(here) > threads)
        assert len(queues.waiting(worker, 100)) == len(here) - len(begun)
        assert queues.leave(worker).keys() == set(here)
