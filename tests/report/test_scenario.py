"""What changes would do, where it can be said by hand."""

from __future__ import annotations

import pytest

from hepcache.errors import ConfigurationError
from hepcache.report import what_if
from hepcache.report.scenario import change_of

PLAIN = {"read_s": 0.0, "decode_s": 0.0, "open_s": 0.0}


def queue(make_hot, number, seconds, **changes):
    """Hot chunks that one thread did one after the other."""
    host = changes.get("host", "host-0")
    return [
        make_hot(
            uuid=f"{host}-{n}", path=f"/data/{host}-{n}.root", began=1000 + n * seconds,
            ended=1000 + (n + 1) * seconds, **PLAIN, **{"worker": host, "owner": host, **changes},
        )
        for n in range(number)
    ]  # fmt: skip


def slow_reads(make_record, make_chunk, seconds):
    """A cycle that has measured reading: 3000 bytes in so many seconds."""
    return make_record(make_chunk(uuid="other", read_s=seconds, decode_s=0.0))


def test_twice_the_room_keeps_what_was_evicted(make_record, make_chunk):
    # A quarter of the bytes is missed, so the room is for three quarters.
    chunk = make_chunk(
        causes={"hit": 3, "evicted": 1}, cause_bytes={"hit": 3000, "evicted": 1000}, open_s=0.0
    )
    record = make_record(chunk, hosts={"host-0": 1}, wall_s=1.2)
    found = what_if([record], "ssd=2")
    # Now it is still to be read: 0.5 s of the second, and 0.2 s of wall besides.
    assert (found.wall_s, found.reread_bytes) == pytest.approx((1.2, 1000))
    assert (found.settled_s, found.settled_bytes) == pytest.approx((0.7, 1000))
    assert found.settled_hit_ratio == 1
    assert found.baseline_s == pytest.approx(1.2)
    assert found.note == ""


def test_somewhat_more_room_keeps_somewhat_more(make_record, make_chunk):
    chunk = make_chunk(
        causes={"hit": 1, "evicted": 1}, cause_bytes={"hit": 2000, "evicted": 2000}, open_s=0.0
    )
    record = make_record(chunk, hosts={"host-0": 1}, wall_s=1.0)
    found = what_if([record], "ssd=1.5")
    # Room for 0.75 of what is read: of the missed half, a half is left, and of 0.5 s.
    assert found.settled_hit_ratio == pytest.approx(0.75)
    assert found.settled_s == pytest.approx(0.75)
    assert found.settled_bytes == pytest.approx(1000)


def test_room_that_nobody_needs(make_record, make_hot):
    found = what_if([make_record(make_hot())], "ssd=2")
    assert found.wall_s == found.settled_s == found.baseline_s
    assert "nothing was evicted" in found.note


def test_a_new_host_takes_over_what_is_worth_the_reading(make_record, make_chunk, make_hot):
    chunks = queue(make_hot, 4, 1.0)
    cheap = slow_reads(make_record, make_chunk, 0.5)
    record = make_record(*chunks, hosts={"host-0": 1}, wall_s=4.0)
    found = what_if([cheap, record], "hosts=+1")
    # The other opens a file for 0.5 s, reads for 0.5 s, works for 1 s; then nothing waits.
    assert found.baseline_s == pytest.approx(4.0)
    assert found.wall_s == pytest.approx(3.0)
    assert (found.moved, found.reread_bytes) == (1, 3000)
    assert found.settled_s == pytest.approx(2.0)
    assert found.settled_bytes == 6000
    assert found.shares == pytest.approx({"host-0": 0.5, "new-1": 0.5})
    assert "assumed" not in found.note

    dear = slow_reads(make_record, make_chunk, 5.0)
    found = what_if([dear, record], "hosts=+1")
    assert (found.wall_s, found.moved, found.reread_bytes) == (pytest.approx(4.0), 0, 0)


def test_a_new_host_brings_room_too(make_record, make_chunk):
    """Of two hosts' caches a quarter is missed; a half more hosts have room for it all."""
    half = {"causes": {"hit": 3, "evicted": 1}, "cause_bytes": {"hit": 3000, "evicted": 1000}}
    chunks = [
        make_chunk(**half, open_s=0.0, host=host, owner=host, worker=host, uuid=host)
        for host in ("host-0", "host-1")
    ]
    found = what_if([make_record(*chunks)], "hosts=+1")
    assert found.settled_hit_ratio == 1


def test_an_assumed_rate_is_named(make_record, make_hot):
    record = make_record(*queue(make_hot, 4, 1.0), hosts={"host-0": 1}, wall_s=4.0)
    assert "100 MB/s per thread are assumed" in what_if([record], "hosts=+1").note


def test_without_a_host_its_chunks_are_read_by_others(make_record, make_chunk, make_hot):
    chunks = queue(make_hot, 2, 1.0) + queue(make_hot, 1, 1.0, host="host-1")
    record = make_record(*chunks, wall_s=2.0)
    found = what_if([slow_reads(make_record, make_chunk, 0.5), record], "without=host-1")
    assert found.baseline_s == pytest.approx(2.0)
    # A second of opening, half a second of reading.
    assert (found.wall_s, found.settled_s) == pytest.approx((4.5, 3.0))
    assert (found.moved, found.reread_bytes, found.settled_bytes) == (1, 3000, 3000)
    assert found.shares == {"host-0": 1}
    assert "space" in found.note


def test_weights_by_speed_end_together(make_record, make_hot):
    """host-1 is half as fast: of 90 equal chunks it should have a third."""
    chunks = queue(make_hot, 45, 0.1) + queue(make_hot, 45, 0.2, host="host-1")
    record = make_record(*chunks, wall_s=9.0)
    found = what_if([record], "weights=speed")
    assert found.shares["host-0"] == pytest.approx(2 / 3, abs=0.03)
    assert found.settled_s == pytest.approx(6.0, rel=0.05)
    assert "host-0 1.50, host-1 0.75" in found.note
    # What the hosts hold stays where it is.
    assert found.wall_s == found.baseline_s


@pytest.mark.parametrize(
    "text",
    ["", "ssd", "ssd=", "ssd=big", "ssd=0.5", "ssd=inf", "ssd=nan", "hosts=0", "hosts=-1",
     "hosts=one", "weights=size", "cpu=2"],
)  # fmt: skip
def test_a_change_that_means_nothing_is_refused(text):
    with pytest.raises(ConfigurationError, match="--what-if"):
        change_of(text)


@pytest.mark.parametrize("text", ["ssd=2", "ssd=1.5x", "hosts=+1", "hosts=3", "without=host-0"])
def test_a_change_says_itself(text):
    assert str(change_of(f" {text.replace('=', ' = ')} ")) == text


def test_a_host_that_is_not_there_and_the_last_one_are_refused(make_record, make_hot):
    with pytest.raises(ConfigurationError, match="host-1"):
        what_if([make_record(make_hot())], "without=host-9")
    with pytest.raises(ConfigurationError, match="several hosts"):
        what_if([make_record(make_hot(), hosts={"host-0": 1})], "without=host-0")
    with pytest.raises(ConfigurationError, match="at least one"):
        what_if([], "ssd=2")
