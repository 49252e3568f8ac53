from __future__ import annotations

import pytest

from hepcache.report import advise, summarise


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
    assert "1.50 kB came from the origin" in only.observation


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
    advice = advise(two_cycles(hit=3), {f"/{n}.root": "truncated" for n in range(5)})
    assert advice[0].kind == "warning"
    assert "5 files were skipped: /0.root, /1.root, /2.root and more" in advice[0].observation


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
