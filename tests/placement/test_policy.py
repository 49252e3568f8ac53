"""Jobs on hosts: where their columns are, else near, and nowhere too much."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hepcache.placement import Placement, Residency, distance_factors, owners, place, torus
from hepcache.placement.identity import JobIdentity, job_points
from hepcache.placement.residency import pack
from hepcache.placement.torus import points_of_hosts, squared_distances


def jobs_of(count: int, name: str = "file") -> list[JobIdentity]:
    return [JobIdentity(f"{name}-{i // 7}", "Events", i % 7) for i in range(count)]


PT = frozenset({"Jet_pt"})
HOSTS = {f"w{i}": 1.0 for i in range(7)}


def test_no_host_exceeds_its_share_and_most_jobs_are_at_the_nearest() -> None:
    jobs = jobs_of(5000)
    result = place(jobs, HOSTS, residency=Residency(), epsilon=0.02)
    assert max(result.load.values()) <= 5000 / 7 * 1.02
    assert sum(result.load.values()) == 5000
    assert result.nearest >= 0.95 * len(jobs)
    assert result.nearest + result.overflow == len(jobs)


def test_unbounded_placement_is_the_published_rule() -> None:
    jobs = jobs_of(300)
    result = place(jobs, HOSTS, residency=Residency(), epsilon=10)
    names = sorted(HOSTS)
    nearest = squared_distances(job_points(jobs), points_of_hosts(tuple(names))).argmin(axis=1)
    assert result.hosts == tuple(names[i] for i in nearest)
    assert result.overflow == 0


def test_load_counts_costs() -> None:
    jobs = jobs_of(400)
    costs = [10.0 if i % 2 else 1.0 for i in range(400)]
    result = place(jobs, HOSTS, residency=Residency(), costs=costs, epsilon=0.05)
    assert max(result.load.values()) <= sum(costs) / 7 * 1.05 + 10


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(2, 6))
def test_result_does_not_depend_on_order(rng: random.Random, hosts: int) -> None:
    jobs = jobs_of(120)
    shares = {f"h{i}": 1.0 + i % 2 for i in range(hosts)}
    expected = dict(zip(jobs, place(jobs, shares, residency=Residency()).hosts, strict=True))
    shuffled, names = jobs[:], list(shares)
    rng.shuffle(shuffled)
    rng.shuffle(names)
    again = place(shuffled, {name: shares[name] for name in names}, residency=Residency())
    assert dict(zip(shuffled, again.hosts, strict=True)) == expected


def test_same_in_every_process_and_hash_seed() -> None:
    code = (
        "import json; from hepcache.placement import *;"
        "from hepcache.placement.identity import JobIdentity;"
        "jobs=[JobIdentity(f'f{i}','Events',0) for i in range(200)];"
        "print(json.dumps(place(jobs,{'a':1,'b':2,'c':1},residency=Residency()).hosts))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }  # fmt: skip
    assert len(outputs) == 1
    assert set(json.loads(outputs.pop())) == {"a", "b", "c"}


def test_residency_overrides_the_hash() -> None:
    jobs = jobs_of(50)
    residency = Residency()
    residency.report(
        "w3", pack({(job.uuid, job.tree): dict.fromkeys(range(7), (1000, PT)) for job in jobs})
    )
    result = place(jobs, HOSTS, residency=residency)
    assert set(result.hosts) == {"w3"}
    assert result.resident == 50


def test_most_bytes_win() -> None:
    job = JobIdentity("u", "Events", 0)
    residency = Residency()
    residency.report("w1", pack({("u", "Events"): {0: (10, PT)}}))
    residency.report("w2", pack({("u", "Events"): {0: (30, PT)}}))
    assert place([job], HOSTS, residency=residency).hosts == ("w2",)
    assert residency.missing_bytes(job, "w1") == 20
    assert residency.missing_bytes(job, "w5") == 30
    residency.report("w2", pack({}))
    assert place([job], HOSTS, residency=residency).hosts == ("w1",)
    residency.forget("w1")
    assert residency.best(job, HOSTS) == []


def test_only_columns_that_are_wanted_count() -> None:
    job, other = JobIdentity("u", "Events", 0), JobIdentity("u", "Events", 5)
    residency = Residency()
    eta = frozenset({"Jet_eta", "Jet_phi"})
    residency.report("w1", pack({("u", "Events"): {0: (10, PT), 5: (10, PT | eta)}}))
    residency.report("w2", pack({("u", "Events"): {0: (30, eta), 5: (30, eta)}}))
    assert residency.best(job, HOSTS) == ["w2"]
    view = residency.of(["Jet_pt"])
    assert view.best(job, HOSTS) == ["w1"]
    assert view.bytes_held(other, "w1") == pytest.approx(10 / 3)
    assert view.missing_bytes(job, "w2") == 10
    assert view.of(["Muon_pt"]).best(job, HOSTS) == []
    view.completed(job, "w2")
    assert residency.of(["Jet_pt"]).missing_bytes(job, "w2") == 0


SCORES = "scores@" + 64 * "0"
OLD = "scores@" + 64 * "1"


def test_what_took_long_to_compute_is_held_by_whom_it_would_cost_most() -> None:
    job = JobIdentity("u", "Events", 0)
    residency = Residency()
    residency.report("w1", pack({("u", "Events"): {0: (40, PT)}}))
    scores = {("u", "Events"): {0: {SCORES: 2.0, OLD: 5.0}}}
    residency.report("w2", pack({("u", "Events"): {0: (30, PT | {SCORES})}}, scores))
    assert residency.missing_s(job, "w1") == residency.missing_s(job, "w5") == 7
    assert residency.missing_s(job, "w2") == 0
    assert place([job], HOSTS, residency=residency).hosts == ("w2",)
    view = residency.of([*PT, SCORES])
    assert view.missing_s(job, "w1") == 2
    assert view.of(PT).best(job, HOSTS) == ["w1"]
    view.completed(job, "w1")
    assert residency.missing_s(job, "w1") == 0
    residency.forget("w2")
    residency.report("w1", pack({("u", "Events"): {0: (40, PT)}}))
    assert residency.missing_s(job, "w5") == 0


def test_a_host_gives_up_what_is_cheap_to_compute_before_what_is_dear() -> None:
    jobs = segments_of(40)
    held: dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]] = {}
    computed: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for number, job in enumerate(jobs):
        file = job.uuid, job.tree
        held.setdefault(file, {})[job.segment] = 1000, PT | {SCORES}
        computed.setdefault(file, {})[job.segment] = {SCORES: 0.1 if number < 20 else 5.0}

    def moved(seconds: dict[tuple[str, str], dict[int, dict[str, float]]]) -> set[JobIdentity]:
        residency = Residency()
        residency.report("a", pack(held, seconds))
        result = place(jobs, {"a": 1, "b": 1}, residency=residency, reread=1e-6)
        return {job for job, host in zip(jobs, result.hosts, strict=True) if host == "b"}

    given_up = moved(computed)
    assert given_up
    assert given_up <= set(jobs[:20])
    dear = {file: {at: {SCORES: 50.0} for at in held[file]} for file in held}
    assert moved(dear) == set()


def test_what_several_hosts_hold_goes_where_least_is_to_be_done_whoever_reported_first() -> None:
    jobs = [JobIdentity("u", "Events", number) for number in range(6)]
    held = {"w1": range(6), "w2": range(3, 6)}
    for order in (("w1", "w2"), ("w2", "w1")):
        residency = Residency()
        for host in order:
            residency.report(host, pack({("u", "Events"): dict.fromkeys(held[host], (10, PT))}))
        assert residency.best(jobs[3], HOSTS) == ["w1", "w2"]
        assert residency.best(jobs[3], {"w2": 1}) == ["w2"]
        shares = {"w1": 1.0, "w2": 1.0}
        for rows in (range(6), range(5, -1, -1)):
            batch = [jobs[row] for row in rows]
            placed = dict(zip(batch, place(batch, shares, residency=residency).hosts, strict=True))
            assert [placed[job] for job in jobs] == 3 * ["w1"] + 3 * ["w2"]
        costs = [1.0, 1.0, 1.0, 6.0, 1.0, 1.0]
        placed_by_cost = place(jobs, shares, residency=residency, costs=costs)
        assert placed_by_cost.hosts == (*3 * ["w1"], "w2", "w1", "w1")
        assert placed_by_cost.load == {"w1": 5.0, "w2": 6.0}


def test_completed_job_is_held_until_a_report_says_otherwise() -> None:
    job = JobIdentity("u", "Events", 0)
    residency = Residency()
    residency.completed(job, "w4")
    assert residency.best(job, HOSTS) == ["w4"]
    residency.report("w4", pack({}))
    assert residency.best(job, HOSTS) == []


def test_no_jobs_and_no_hosts() -> None:
    assert place([], HOSTS, residency=Residency()).hosts == ()
    with pytest.raises(ValueError, match="no host"):
        place(jobs_of(1), {}, residency=Residency())
    with pytest.raises(ValueError, match="costs"):
        place(jobs_of(2), HOSTS, residency=Residency(), costs=[1.0])


def segments_of(count: int) -> list[JobIdentity]:
    """Return the segments of files that have ten each."""
    return [JobIdentity(f"file-{i // 10}", "Events", i % 10 * 100_000) for i in range(count)]


def hosts_of(count: int) -> dict[str, float]:
    return {f"host-{i}": 1.0 for i in range(count)}


def max_over_fair(result: Placement, shares: Mapping[str, float]) -> float:
    fair = sum(result.load.values()) / sum(shares.values())
    return max(result.load[name] / (fair * share) for name, share in shares.items())


def test_221_slots_and_20_000_jobs_are_balanced_and_near() -> None:
    jobs, slots = segments_of(20_000), hosts_of(221)
    result = place(jobs, slots, residency=Residency())
    assert max_over_fair(result, slots) <= 1.02
    assert result.nearest >= 0.95 * len(jobs)
    first = [one[0] for one in owners(jobs, slots, count=1)]
    assert sum(a == b for a, b in zip(result.hosts, first, strict=True)) == result.nearest


def test_weighted_hosts_are_balanced_and_near() -> None:
    shares = {f"host-{i}": 1.0 + i % 4 for i in range(20)}
    result = place(segments_of(20_000), shares, residency=Residency())
    assert max_over_fair(result, shares) <= 1.02
    assert result.nearest >= 0.95 * 20_000


def test_overflow_goes_to_the_next_nearest_with_room() -> None:
    jobs, hosts = segments_of(3000), hosts_of(5)
    result = place(jobs, hosts, residency=Residency(), epsilon=0.01)
    names = sorted(hosts)
    limit = 3000 // 5 * 1.01
    distances = squared_distances(job_points(jobs), points_of_hosts(tuple(names)))
    farthest = {
        name: max(distances[row, column] for row, at in enumerate(result.hosts) if at == name)
        for column, name in enumerate(names)
    }
    refused = 0
    for chosen, row in zip(result.hosts, distances, strict=True):
        for column in np.flatnonzero(row < row[names.index(chosen)]):
            # A nearer host had no room, and whom it took lies nearer still.
            refused += 1
            assert result.load[names[column]] + 1 > limit
            assert farthest[names[column]] <= row[column]
    assert refused >= result.overflow > 20


@settings(max_examples=30)
@given(
    st.lists(st.floats(0, 30), min_size=1, max_size=60),
    st.lists(st.floats(0.2, 5), min_size=1, max_size=9),
    st.floats(0, 0.1),
)
def test_a_host_exceeds_its_limit_only_where_any_other_would_more(
    costs: list[float], weights: list[float], epsilon: float
) -> None:
    shares = {f"h{i}": one for i, one in enumerate(weights)}
    result = place(
        segments_of(len(costs)), shares, residency=Residency(), costs=costs, epsilon=epsilon
    )
    assert len(result.hosts) == len(costs)
    assert sum(result.load.values()) == pytest.approx(sum(costs))
    limit = {
        name: sum(costs) * share / sum(weights) * (1 + epsilon) for name, share in shares.items()
    }
    for name, load in result.load.items():
        mine = [cost for cost, host in zip(costs, result.hosts, strict=True) if host == name]
        assert load == pytest.approx(sum(mine))
        if load > limit[name] * (1 + 1e-6) + 1e-9:
            for other in shares.keys() - {name}:
                there = (result.load[other] + max(mine)) / limit[other]
                assert there >= load / limit[name] * (1 - 1e-6)


def test_costs_that_differ_tenfold_are_balanced() -> None:
    rng = random.Random(4)
    costs = [10 ** rng.random() for _ in range(20_000)]
    hosts = hosts_of(50)
    result = place(segments_of(20_000), hosts, residency=Residency(), costs=costs)
    assert max_over_fair(result, hosts) <= 1.02
    assert result.nearest >= 0.95 * 20_000


@pytest.mark.parametrize(
    ("hosts", "jobs"), [(7, 20_000), (50, 100_000), (221, 400_000)], ids=["7", "50", "221"]
)
@pytest.mark.slow
def test_a_host_more_or_less_moves_no_more_than_it_must(hosts: int, jobs: int) -> None:
    batch = segments_of(jobs)
    fewer = place(batch, hosts_of(hosts), residency=Residency()).hosts
    more = place(batch, hosts_of(hosts + 1), residency=Residency()).hosts
    # The same two placements, whether the host joins or leaves.
    moved = sum(a != b for a, b in zip(fewer, more, strict=True))
    assert jobs / (hosts + 1) * 0.9 < moved <= 1.1 * jobs / (hosts + 1)


def holding(placement: Placement, jobs: list[JobIdentity], nbytes: int = 1000) -> Residency:
    residency = Residency()
    for name in set(placement.hosts):
        held: dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]] = {}
        for job, host in zip(jobs, placement.hosts, strict=True):
            if host == name:
                held.setdefault((job.uuid, job.tree), {})[job.segment] = nbytes, PT
        residency.report(name, pack(held))
    return residency


def test_a_warm_host_that_leaves_moves_only_its_own() -> None:
    jobs, hosts = segments_of(20_000), hosts_of(221)
    before = place(jobs, hosts, residency=Residency())
    residency = holding(before, jobs)
    residency.forget("host-3")
    fewer = {name: share for name, share in hosts.items() if name != "host-3"}
    after = place(jobs, fewer, residency=residency)
    for was, now in zip(before.hosts, after.hosts, strict=True):
        assert (was != now) == (was == "host-3")
    assert max_over_fair(after, fewer) <= 1.02 + 1 / (20_000 / 220)


def test_a_new_host_gets_what_is_worth_reading_again() -> None:
    jobs, hosts = segments_of(4000), hosts_of(7)
    before = place(jobs, hosts, residency=Residency())
    residency, more = holding(before, jobs), hosts_of(8)
    stay = place(jobs, more, residency=residency)
    assert stay.hosts == before.hosts
    cheap = place(jobs, more, residency=residency, reread=1e-5)
    assert cheap.moved == sum(a != b for a, b in zip(cheap.hosts, before.hosts, strict=True))
    assert {now for was, now in zip(before.hosts, cheap.hosts, strict=True) if was != now} == {
        "host-7"
    }
    # It ends as full as the others, reading counted, and nothing else moves.
    assert max(cheap.load.values()) <= 4000 / 8 * 1.02
    assert cheap.load["host-7"] == pytest.approx(cheap.moved * 1.01)
    assert cheap.moved <= 1.1 * 4000 / 8
    # Reading that takes longer than the whole batch is never worth it.
    assert place(jobs, more, residency=residency, reread=10.0).hosts == before.hosts


def test_an_overloaded_host_gives_up_what_is_cheapest_to_move() -> None:
    jobs = segments_of(100)
    residency = Residency()
    sizes = {job: 1000 + 10 * index for index, job in enumerate(jobs)}
    held: dict[tuple[str, str], dict[int, tuple[int, frozenset[str]]]] = {}
    for job, nbytes in sizes.items():
        held.setdefault((job.uuid, job.tree), {})[job.segment] = nbytes, PT
    residency.report("a", pack(held))
    copy = jobs[-1]
    residency.report("b", pack({(copy.uuid, copy.tree): {copy.segment: (sizes[copy] - 1, PT)}}))
    result = place(jobs, {"a": 1, "b": 1}, residency=residency, reread=1e-4)
    given_up = [job for job, host in zip(jobs, result.hosts, strict=True) if host == "b"]
    assert result.moved == len(given_up) > 30
    # Nearly all of the last one's columns are at b already; then come the smallest.
    assert set(given_up) == {copy, *jobs[: len(given_up) - 1]}
    order = jobs[:]
    random.Random(1).shuffle(order)
    again = place(order, {"b": 1, "a": 1}, residency=residency, reread=1e-4)
    assert dict(zip(order, again.hosts, strict=True)) == dict(zip(jobs, result.hosts, strict=True))


@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(2, 12), st.booleans())
def test_the_order_of_jobs_and_hosts_does_not_matter(
    rng: random.Random, hosts: int, warm: bool
) -> None:
    jobs = segments_of(150)
    shares = {f"h{i}": 1.0 + i % 3 for i in range(hosts)}
    costs = {job: 1.0 + rng.randrange(5) for job in jobs}
    residency = Residency()
    if warm:
        some = place(jobs[:60], shares, residency=residency, epsilon=1.0)
        residency = holding(some, jobs[:60])

    def placed(order: list[JobIdentity], names: list[str]) -> dict[JobIdentity, str]:
        result = place(
            order,
            {name: shares[name] for name in names},
            residency=residency,
            costs=[costs[job] for job in order],
            reread=1e-3,
        )
        return dict(zip(order, result.hosts, strict=True))

    shuffled, names = jobs[:], list(shares)
    rng.shuffle(shuffled)
    rng.shuffle(names)
    assert placed(shuffled, names) == placed(jobs, list(shares))


def test_every_process_and_hash_seed_places_alike() -> None:
    code = (
        "import json, hashlib; from hepcache.placement import *;"
        "from hepcache.placement.identity import JobIdentity;"
        "jobs=[JobIdentity(f'f{i}','Events',0) for i in range(3000)];"
        "shares={f'h{i}': 1 + i % 5 for i in range(60)};"
        "hosts=place(jobs,shares,residency=Residency(),factors=distance_factors(shares)).hosts;"
        "print(hashlib.sha256(json.dumps(hosts).encode()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(outputs) == 1


def test_one_thread_and_several_place_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, shares = segments_of(2000), {f"h{i}": 1.0 + i % 3 for i in range(40)}
    alone = place(jobs, shares, residency=Residency())
    monkeypatch.setattr("hepcache.placement.torus._ROWS", 100)
    assert place(jobs, shares, residency=Residency()) == alone


def test_compiled_and_plain_code_place_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, shares = segments_of(2000), {f"h{i}": 1.0 + i % 3 for i in range(40)}
    torus._compiled.cache_clear()
    plain = place(jobs, shares, residency=Residency())
    monkeypatch.setattr(torus, "_LARGE", -1)
    assert place(jobs, shares, residency=Residency()) == plain
    assert torus._compiled.cache_info().currsize
    torus._compiled.cache_clear()


def test_owners_are_the_nearest_hosts_in_order() -> None:
    jobs, shares = segments_of(20), {f"h{i}": 1.0 + i % 2 for i in range(6)}
    found = owners(jobs, shares, count=3)
    alone = place(jobs, shares, residency=Residency(), epsilon=100)
    assert [order[0] for order in found] == list(alone.hosts)
    for job, (first, second, _) in zip(jobs, found, strict=True):
        rest = {name: share for name, share in shares.items() if name != first}
        factors = distance_factors(shares)
        moved = place([job], rest, residency=Residency(), epsilon=100, factors=factors)
        assert moved.hosts == (second,)
    assert owners(jobs, {}) == [()] * 20
    assert owners([], shares) == []


def test_costs_must_be_numbers() -> None:
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="costs"):
            place(segments_of(1), hosts_of(2), residency=Residency(), costs=[wrong])
    free = place(segments_of(100), hosts_of(4), residency=Residency(), costs=[0.0] * 100)
    assert len(free.hosts) == 100
    assert np.unique(free.hosts).size > 1
