"""The scheduler's own books of what waits where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hepcache.identity import JobIdentity
from hepcache.placement.keys import ChunkKey, chunk_key
from hepcache.placement.queues import Queued, Queues


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
    now[0] = 6.0
    assert queues.overdue("w", 3, 1.0) == {}
    now[0] = 7.0
    assert queues.overdue("w", 3, 1.0) == {task(0, 2.0): 7.0, task(1, 2.0): 7.0}
    now[0] = 20.0
    assert queues.wait_s("w") == 0
    now[0] = 21.0
    assert queues.wait_s("w") == 21
    now[0] = 7.0
    assert queues.overdue("w", 3, 8.0) == queues.overdue("w", 4, 1.0) == {}


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
