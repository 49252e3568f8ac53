from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.report import CycleReport, advise, summarise
from hepcache.report.outcomes import MissingChunk
from hepcache.report.summary import hits_text
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


def words(advice):
    return " ".join(f"{one.observation} {one.action}" for one in advice)


@pytest.fixture
def two_cycles(make_record, make_chunk, make_hot):
    """A cold cycle, then one with the causes given."""

    def build(**causes):
        last = make_hot(causes=causes, cause_bytes={name: 1000 * n for name, n in causes.items()})
        chunks = (last, make_hot(start=100, host="host-1", worker="w1", owner="host-1"))
        return [summarise(make_record(make_chunk(), wall_s=9.0)),
                summarise(make_record(*chunks, wall_s=1.0))]  # fmt: skip

    return build


def test_no_cycle_no_advice():
    assert advise([]) == ()


def test_after_one_cycle_run_it_again(make_record, make_chunk):
    (only,) = advise([summarise(make_record(make_chunk(), hosts={"host-0": 1}))])
    assert only.kind == "hint"
    assert "Run it again" in only.action
    assert "1.50 kB came compressed from the origin" in only.observation


def test_a_busy_machine_is_not_the_processors_fault(make_record, make_chunk, make_hot):
    slow = make_hot(ended=1002.0, process_s=1.9, cpu_s=0.5)
    first, last = make_record(make_chunk(), wall_s=1.0), make_record(slow, wall_s=2.6)
    summary = summarise(last)
    assert (summary.busy_s, summary.cpu_s) == (2.0, 0.5)
    assert summary.waited_s == pytest.approx(1.49)
    advice = words(advise([summarise(first), summary]))
    assert "took 2.00 s and had a processor for 500 ms" in advice
    assert "longer than the first, which took 1.00 s" in advice
    assert "Nothing to change" not in advice
    assert "more cores or a faster processor" not in advice
    calm = summarise(make_record(make_hot(ended=1002.0, process_s=1.9, cpu_s=1.9), wall_s=2.6))
    assert "more cores or a faster processor" in words(advise([summarise(first), calm]))


def test_first_chunks_of_processes_are_counted_apart(make_record, make_chunk, make_hot):
    chunks = [
        make_hot(ended=1002.0, first=True, cpu_s=2.0),
        *(make_hot(start=100 * n, cpu_s=0.1) for n in range(1, 5)),
    ]
    summary = summarise(make_record(*chunks, wall_s=2.0))
    assert (summary.first_chunks, summary.first_chunks_s) == (1, 2.0)
    advice = words(advise([summarise(make_record(make_chunk(), wall_s=9.0)), summary]))
    assert "1 of 5 chunks of the last cycle were the first of their worker processes" in advice
    assert "took 2.00 s each, imports included; the others took 100 ms" in advice


def test_a_hot_cycle_has_nothing_to_change(two_cycles):
    advice = advise(two_cycles(hit=3))
    assert {one.kind for one in advice} == {"good"}
    assert "9.0 times faster" in words(advice)
    assert "Nothing to change" in words(advice)


@pytest.mark.parametrize(
    ("cause", "kind", "expected"),
    [
        ("evicted", "hint", "hepcache.cache.capacity"),
        ("stolen", "hint", "does not own them"),
        ("miss", "hint", "first time"),
        ("stale", "warning", "changed since"),
        ("corrupt", "warning", "cache volume"),
    ],
)
def test_every_cause_but_a_hit_has_its_line(two_cycles, cause, kind, expected):
    advice = advise(two_cycles(hit=2, **{cause: 1}))
    assert advice[0].kind == kind
    assert expected in words(advice)
    assert "Nothing to change" not in words(advice)


def test_the_capacity_advised_holds_what_was_read(two_cycles):
    cycles = two_cycles(evicted=30)
    # 30 kB in one chunk and 3 kB in the other, over two hosts, with a margin.
    assert "at least 19.0 kB" in words(advise(cycles))


def test_skipped_files_come_first(two_cycles):
    paths = [f"/{number}.root" for number in range(5)]
    skipped = [MissingChunk("tt", path, "Events", None, None, "truncated") for path in paths]
    advice = advise(two_cycles(hit=3), skipped)
    assert advice[0].kind == "warning"
    assert (
        "5 files were skipped (/0.root, /1.root, /2.root and more). The result lacks"
        in advice[0].observation
    )


def test_short_chunks_an_idle_host_and_a_tail_are_seen(make_record, make_chunk, make_hot):
    cold = summarise(make_record(make_chunk(), wall_s=9.0))
    short = [make_hot(start=n, ended=1000.01) for n in range(20)]
    assert "Raise chunksize" in words(advise([cold, summarise(make_record(*short, wall_s=3.0))]))
    assert "No chunk went to host-1" in words(advise([cold, summarise(make_record(*short))]))
    late = make_hot(ended=1002.0, host="host-1", worker="w1", owner="host-1")
    tail = summarise(make_record(make_hot(), late, wall_s=2.1))
    assert "finished 950 ms after the mean" in words(advise([cold, tail]))


def test_an_unfair_load_is_seen(make_record, make_chunk, make_hot):
    chunks = [make_hot(start=100 * n, stop=100 * n + 100) for n in range(9)]
    chunks.append(make_hot(host="host-1", worker="w1", owner="host-1"))
    cycles = [summarise(make_record(make_chunk())), summarise(make_record(*chunks))]
    assert "host-0 processed 1.80 times its fair share" in words(advise(cycles))


def test_a_hot_cycle_bound_by_the_processor_says_so(make_record, make_chunk, make_hot):
    bound = make_hot(read_s=0.001, open_s=0.001, process_s=0.098)
    cycles = [summarise(make_record(make_chunk())), summarise(make_record(bound))]
    assert "processor's own" in words(advise(cycles))


def test_chunks_that_were_reused_have_no_hits_to_speak_of(make_record, make_chunk):
    read = {"causes": {}, "cause_bytes": {}, "cache_bytes": 0, "origin_bytes": 0, "columns": 0}
    reused = [make_chunk(start=n, outcome="reused", **read) for n in range(3)]
    first = make_record(make_chunk())
    again = make_record(*reused, not_stored={"it is too large": 2})
    report = CycleReport((first, again))
    summary = report.summaries[-1]
    assert (summary.reused_chunks, hits_text(summary)) == (3, "-")
    words = " ".join(str(report).split())
    assert "3 of 3 chunks were reused: an earlier run had stored their results." in words
    assert "The results of 2 chunks were not stored: it is too large." in words
    assert any("were not computed" in advice.observation for advice in report.advice)
    assert not any("short" in advice.observation for advice in report.advice)


def test_what_was_read_and_not_kept_is_said(make_record, make_chunk):
    words = " ".join(
        str(CycleReport((make_record(make_chunk(), unkept_bytes=3_000_000),))).split()
    )
    assert "3.00 MB were read and not kept: the cache's volume was too slow" in words
    assert "not kept" not in str(CycleReport((make_record(make_chunk()),)))
