"""The price of leaving one's columns."""

from __future__ import annotations

from dataclasses import replace

from tests.scheduling.test_queues import task

from hepcache.placement.moves import OPENING_S, reading_s
from hepcache.scheduling.queues import Queued
from hepcache.scheduling.rebalance import Candidate, best_move

RATE = 100e6


def chosen(
    *candidates: Candidate, next_owner_of: tuple[int, ...] = (), rates: float = RATE
) -> int | None:
    def is_next_owner(one: Queued) -> bool:
        return one.jobs[0].segment in next_owner_of

    found = best_move(candidates, rates=lambda _: (rates, rates), is_next_owner=is_next_owner)
    return None if found is None else found.task.jobs[0].segment


def candidate(
    number: int, lead_s: float, seconds: float = 1.0, here: float = 0, there: float = 0
) -> Candidate:
    return Candidate(task(number), lead_s, seconds, here, there)


def test_reading_again_must_cost_less_than_waiting() -> None:
    assert reading_s(200e6, RATE) == OPENING_S + 2
    assert reading_s(0, RATE) == 0
    assert chosen(candidate(0, 3.0, there=200e6)) is None
    assert chosen(candidate(0, 5.0, there=200e6)) == 0
    assert chosen(candidate(0, 5.0, there=200e6), rates=10e6) is None


def test_computing_again_must_cost_less_than_waiting() -> None:
    waiting = candidate(0, 3.0)
    assert chosen(waiting) == 0
    assert chosen(replace(waiting, computing_there_s=3.0)) is None
    assert chosen(replace(waiting, computing_here_s=3.0, computing_there_s=1.0)) == 0
    # A host that holds more columns is no better if it has to compute what the other has.
    more = candidate(1, 3.0, here=1e6)
    assert more.held_there
    assert not replace(more, computing_there_s=1.0).held_there


def test_the_task_that_makes_both_end_soonest_moves() -> None:
    assert (
        chosen(*(candidate(number, 4.0, length) for number, length in enumerate((9, 2, 1)))) == 1
    )
    # With reading to be paid, a shorter one; but one, not many.
    priced = [
        candidate(number, 4.0, length, there=50e6) for number, length in enumerate((3, 1, 2))
    ]
    assert chosen(*priced) == 1


def test_what_is_being_fetched_already_is_not_taken_over_for_a_little() -> None:
    waiting = candidate(0, 1.5)
    assert chosen(waiting) == 0
    assert chosen(replace(waiting, ahead_s=1.0)) is None
    # Behind a host that hangs, it is.
    assert chosen(replace(waiting, lead_s=9.0, ahead_s=1.0)) == 0


def test_a_move_that_gains_next_to_nothing_is_not_made() -> None:
    assert chosen(candidate(0, 0.05)) is None
    assert chosen(candidate(0, 5.0, seconds=0.01)) is None
    assert chosen(candidate(0, 1.0, seconds=1.0)) is None


def test_what_the_idle_host_holds_itself_goes_before_everything() -> None:
    assert chosen(candidate(0, 9.0), candidate(1, 2.0, seconds=0.5, here=50e6)) == 1


def test_the_next_owner_goes_first_among_what_gains_about_as_much() -> None:
    some = [candidate(number, 9.0, 1 + number / 10) for number in range(5)]
    assert chosen(*some) == 4
    assert chosen(*some, next_owner_of=(2,)) == 2
    assert chosen(*some, candidate(9, 9.0, 0.2), next_owner_of=(9,)) == 4
