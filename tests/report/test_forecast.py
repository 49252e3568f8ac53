"""Forecasts of which every second can be added up by hand."""

from __future__ import annotations

import pytest

from hepcache.errors import ConfigurationError
from hepcache.report import forecast


@pytest.fixture
def other():
    """Where the second chunk of a cycle is, and who does it."""
    where = {"start": 100, "stop": 200, "segment": 100}
    return {**where, "host": "host-1", "worker": "w1", "owner": "host-1"}


@pytest.fixture
def cold(make_record, make_chunk, other):
    """Two chunks of 1 s and 2 s, with 0.4 s and 0.7 s of work in them, 0.5 s of wall besides."""
    slow = make_chunk(**other, ended=1002.0, read_s=1.0)
    return make_record(make_chunk(), slow, wall_s=2.5)


def hot(make_record, make_hot, other, seconds, **changes):
    first, second = seconds
    chunks = make_hot(ended=1000 + first), make_hot(**other, ended=1000 + second)
    return make_record(*chunks, **changes)


def test_what_was_missed_will_hit(cold):
    found = forecast([cold])
    # 1 - 0.3 - 0.2 - 0.1 and 2 - 1 - 0.2 - 0.1, on a thread each.
    assert found.makespan_s == pytest.approx(0.7)
    # 0.1 s of the 0.5 s passed before the first chunk of a cycle that hit nothing.
    assert found.overhead_s == pytest.approx(0.4)
    assert found.wall_s == pytest.approx(1.1)
    assert (found.hit_ratio, found.reread_bytes, found.busiest) == (1, 0, "host-1")
    # The same entries in 0.4 s and 0.7 s: at these speeds, both ideally end together.
    assert found.ideal_s == pytest.approx(1 / (1 / 0.4 + 1 / 0.7) * 2)
    # Part of that was storing what had been read; it isn't known how much.
    assert found.low_s == pytest.approx(found.ideal_s / 2)
    # Files opened again, and all the time besides.
    assert found.high_s == pytest.approx(0.8 + 0.5)
    assert found.checks == ()


def test_a_hot_cycle_repeats_itself(make_record, make_hot, other):
    found = forecast([hot(make_record, make_hot, other, (0.1, 0.3), wall_s=0.5)])
    assert (found.makespan_s, found.overhead_s) == pytest.approx((0.3, 0.2))
    assert found.low_s == found.ideal_s
    assert found.high_s == pytest.approx(0.5)


def test_earlier_forecasts_say_how_sure_it_is(cold, make_record, make_hot, other):
    second = hot(make_record, make_hot, other, (0.3, 0.5), wall_s=0.66)
    third = hot(make_record, make_hot, other, (0.3, 0.5), wall_s=0.792)
    found = forecast([cold, second, third])
    assert [one.cycle for one in found.checks] == [2, 3]
    assert [one.forecast_s for one in found.checks] == pytest.approx([1.1, 0.66])
    assert [one.ratio for one in found.checks] == pytest.approx([0.6, 1.2])
    assert [one.from_cold for one in found.checks] == [True, False]
    # Only the one that was made from a cycle with hits tells: wrong by a factor of 1.2.
    assert (found.low_s, found.wall_s, found.high_s) == pytest.approx((0.66, 0.792, 0.9504))
    found = forecast([cold, second])
    assert (found.low_s, found.wall_s, found.high_s) == pytest.approx((0.396, 0.66, 1.1))
    assert found.to_dict()["checks"][0]["ratio"] == pytest.approx(0.6)


def test_only_the_same_entries_check_it(cold, make_record, make_hot):
    assert forecast([cold, make_record(make_hot(stop=50))]).checks == ()
    parts = [make_hot(start=n, stop=n + 50, segment=n // 100 * 100) for n in (0, 50, 100, 150)]
    assert len(forecast([cold, make_record(*parts)]).checks) == 1


def test_what_was_evicted_will_be_evicted_again(make_record, make_chunk):
    chunk = make_chunk(
        causes={"hit": 1, "evicted": 2}, cause_bytes={"hit": 1000, "evicted": 2000}, open_s=0.0
    )
    found = forecast([make_record(chunk, hosts={"host-0": 1}, wall_s=1.0)])
    assert found.makespan_s == pytest.approx(1.0)
    assert found.hit_ratio == pytest.approx(1 / 3)
    assert found.reread_bytes == 2000


def test_a_chunk_that_was_stolen_is_held_by_both(make_record, make_chunk, make_hot, other):
    stolen = {"causes": {"stolen": 3}, "cause_bytes": {"stolen": 3000}, "open_s": 0.01}
    away = make_chunk(**{**other, "owner": "host-0", **stolen})
    cold = make_record(make_chunk(), make_chunk(**other))
    # Both on host-0, the first by name, would overload it: each stays where it was.
    found = forecast([cold, make_record(make_hot(ended=1000.2), away, wall_s=1.0)])
    assert (found.reread_bytes, found.makespan_s) == (0, pytest.approx(0.5))
    # An owner that is not there any more holds nothing.
    gone = make_chunk(**{**other, "owner": "gone", **stolen})
    found = forecast([cold, make_record(make_hot(ended=1000.2), gone, wall_s=1.0)])
    assert (found.reread_bytes, found.makespan_s) == (0, pytest.approx(0.5))


def test_threads_pause_between_chunks(make_record, make_hot):
    chunks = [
        make_hot(start=n * 100, stop=n * 100 + 100, segment=n * 100, began=1000 + n * 0.3,
                 ended=1000.1 + n * 0.3) for n in range(3)
    ]  # fmt: skip
    found = forecast([make_record(*chunks, hosts={"host-0": 1}, wall_s=0.7)])
    assert found.makespan_s == pytest.approx(0.1 + 0.3 + 0.3)


def test_a_run_without_chunks_and_no_run_at_all(make_record):
    empty = forecast([make_record(wall_s=0.3)])
    assert (empty.wall_s, empty.makespan_s, empty.hit_ratio, empty.busiest) == (0.3, 0, 1, "")
    assert forecast([make_record(hosts={}, wall_s=0.0)]).wall_s == 0
    with pytest.raises(ConfigurationError, match="at least one"):
        forecast([])
