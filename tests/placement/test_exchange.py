"""The price of leaving one's columns."""

from __future__ import annotations

from tests.placement.test_queues import task

from hepcache.placement.exchange import Candidate, best_move, gain_s
from hepcache.placement.queues import Queued

RATE = 100e6


def chosen(
    *candidates: Candidate, next_owner_of: tuple[int, ...] = (), rates: float = RATE
) -> int | None:
    def is_next_owner(one: Queued) -> bool:
        return one.jobs[0].segment in next_owner_of

    found = best_move(candidates, rates=lambda _: (rates, rates), is_next_owner=is_next_owner)
    return None if found is None else found.task.jobs[0].segment


def candidate(number: int, wait_s: float, here: float = 0, there: float = 0) -> Candidate:
    return Candidate(task(number), wait_s, here, there)


def test_reading_again_must_cost_less_than_waiting() -> None:
    assert gain_s(1.0, 0, 200e6, RATE, RATE) == -1.5
    assert chosen(candidate(0, 1.0, there=200e6)) is None
    assert chosen(candidate(0, 3.0, there=200e6)) == 0
    assert chosen(candidate(0, 3.0, there=200e6), rates=10e6) is None


def test_the_longest_wait_goes_first() -> None:
    assert chosen(candidate(0, 1.0), candidate(1, 4.0), candidate(2, 2.0)) == 1


def test_a_move_that_gains_next_to_nothing_is_not_made() -> None:
    assert chosen(candidate(0, 0.01)) is None


def test_what_the_idle_host_holds_itself_goes_before_everything() -> None:
    assert chosen(candidate(0, 9.0), candidate(1, 1.0, here=50e6)) == 1


def test_the_next_owner_goes_first_among_what_gains_about_as_much() -> None:
    waits = [candidate(number, 4.0 + number / 10) for number in range(5)]
    assert chosen(*waits) == 4
    assert chosen(*waits, next_owner_of=(2,)) == 2
    assert chosen(*waits, candidate(9, 1.0), next_owner_of=(9,)) == 4
