from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.report import summarise
from hepcache.telemetry import CAUSES


def test_a_run_adds_up(make_record, make_chunk, make_hot):
    summary = summarise(
        make_record(
            make_chunk(causes={"miss": 2, "hit": 1}, cause_bytes={"miss": 600, "hit": 400}),
            make_hot(start=100, stop=400, host="host-1", worker="w1", owner="host-0"),
        )
    )
    assert summary.chunks == 2
    assert summary.events == 400
    assert summary.events_per_s == 200
    assert summary.hit_ratio == pytest.approx(4 / 6)
    assert summary.hit_ratio_bytes == pytest.approx(3400 / 4000)
    assert summary.decoded_bytes == 4000
    assert (summary.cache_bytes, summary.origin_bytes) == (3000, 1500)
    assert summary.causes == {**dict.fromkeys(CAUSES, 0), "miss": 2, "hit": 4}
    assert summary.stolen_chunks == 1
    assert summary.open_s == pytest.approx(0.11)
    assert summary.read_s == pytest.approx(0.31)
    assert summary.compute_s == pytest.approx(0.99 - 0.31 - 0.2)
    assert summary.busy_s == pytest.approx(1.1)
    assert summary.span_s == pytest.approx(1.0)
    assert summary.tail_s == pytest.approx((1.0 - 0.1) / 2)
    assert summary.median_chunk_s == pytest.approx(0.55)


def test_hosts_are_compared_with_their_fair_share(make_record, make_chunk):
    summary = summarise(
        make_record(
            make_chunk(stop=300),
            make_chunk(start=300, stop=400, host="host-1", worker="w1"),
            hosts={"host-0": 1, "host-1": 3},
        )
    )
    first, second = summary.hosts
    assert (first.host, first.load, first.fair) == ("host-0", 0.75, 0.25)
    assert first.load_over_fair == summary.max_over_fair == 3
    assert second.load_over_fair == pytest.approx(1 / 3)
    assert (first.stolen, second.stolen) == (0, 1)
    assert summary.threads == 4


def test_an_idle_host_and_a_host_that_left_are_there(make_record, make_chunk):
    summary = summarise(make_record(make_chunk(host="gone", owner="gone")))
    assert [(one.host, one.chunks) for one in summary.hosts] == [
        ("gone", 1), ("host-0", 0), ("host-1", 0),
    ]  # fmt: skip
    assert summary.hosts[1].finish_s == 0


def test_an_empty_run_is_all_zeros(make_record):
    summary = summarise(make_record(hosts={}, wall_s=0.0))
    assert (
        summary.hit_ratio == summary.events_per_s == summary.tail_s == summary.max_over_fair == 0
    )
    assert summary.hosts == ()


def test_a_chunk_without_an_owner_is_not_stolen(make_record, make_chunk):
    assert summarise(make_record(make_chunk(owner=""))).stolen_chunks == 0


def test_the_tail_takes_each_workers_last_chunk(make_record, make_chunk):
    summary = summarise(
        make_record(
            make_chunk(ended=1004.0), make_chunk(began=1000.5, ended=1002.0, worker="w1"),
            make_chunk(began=1000.0, ended=1000.5, worker="w1"),
        )
    )  # fmt: skip
    assert summary.tail_s == pytest.approx(1.0)


causes = st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 1000))


@given(
    st.lists(st.tuples(causes, st.sampled_from(["a", "b", "c"]), st.integers(0, 99)), max_size=9)
)
def test_shares_and_causes_are_complete(make_record, make_chunk, chunks):
    summary = summarise(
        make_record(
            *(make_chunk(causes=one, host=host, stop=stop) for one, host, stop in chunks),
            hosts={"a": 1, "b": 2},
        )
    )
    assert 0 <= summary.hit_ratio <= 1
    assert sum(summary.causes.values()) == sum(sum(one.values()) for one, _, _ in chunks)
    assert sum(host.fair for host in summary.hosts) == pytest.approx(1)
    assert sum(host.load for host in summary.hosts) == pytest.approx(1 if summary.events else 0)
    assert sum(host.chunks for host in summary.hosts) == len(chunks)
