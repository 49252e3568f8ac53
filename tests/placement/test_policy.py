from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hepcache.identity import JobIdentity
from hepcache.placement import Residency, host_distances, place
from hepcache.placement.residency import pack


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
    nearest = host_distances(jobs, names).argmin(axis=1)
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
        "import json; from hepcache.placement import *; from hepcache.identity import JobIdentity;"
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
