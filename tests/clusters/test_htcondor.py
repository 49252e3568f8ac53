"""What can be known of HTCondorCluster without a pool; tests/live/condor has one."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import classad2
import dask.config
import htcondor2
import pytest
from rich.console import Console

from hepcache.clusters.htcondor import HTCondorCluster
from hepcache.clusters.htcondor.job import RANK, both, inherited, on_machines
from hepcache.clusters.htcondor.monitor import Job, JobStatus, Worker, incident, parse_jobs
from hepcache.clusters.htcondor.pool import address_towards, address_towards_pool, pool_of
from hepcache.errors import ClusterError, ConfigurationError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def cluster(home: Path) -> Iterator[HTCondorCluster]:
    with HTCondorCluster(scheduler_options={"host": "127.0.0.1"}, check_interval="50ms") as made:
        yield made


def submitted(script: str) -> dict[str, str]:
    """Return what HTCondor's own bindings read in a submit description."""
    found = htcondor2.Submit(script.split("\n", 1)[1])
    return {key.lower(): found[key] for key in found}


def test_the_script_is_what_htcondor_reads(cluster: HTCondorCluster) -> None:
    found = submitted(cluster.job_script())
    assert found["should_transfer_files"] == "YES"
    assert found["rank"] == RANK
    assert found["my.hepcachecluster"] == f'"{cluster.name}"'
    assert found["my.daskworkercores"] == "1"
    assert found["my.daskworkermemory"] == str(1_500_000_000)
    assert "DASK_HEPCACHE__HOST=$$([TARGET.HepcacheHost?:TARGET.Machine])" in found["environment"]
    arguments = found["arguments"]
    assert "tls://127.0.0.1:" in arguments
    assert "--preload hepcache.process.worker" in arguments
    assert "--tls-key hepcache-worker.key" in arguments
    assert "127.0.0.1:0" in arguments


def test_keys_are_carried_encrypted_and_gone_with_the_cluster(home: Path) -> None:
    with HTCondorCluster(scheduler_options={"host": "127.0.0.1"}) as cluster:
        found = submitted(cluster.job_script())
        paths = [Path(one.strip()) for one in found["transfer_input_files"].split(",")]
        assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600] * 3
        assert {path.name for path in paths} == set(re.split(", *", found["encrypt_input_files"]))
        assert paths[0].is_relative_to(home / "state")
    assert not any(path.exists() for path in paths)


def test_a_shared_directory_takes_the_place_of_the_transfer(home: Path) -> None:
    options = {"host": "127.0.0.1"}
    with HTCondorCluster(
        scheduler_options=options, shared_temp_directory=str(home / "shared")
    ) as cluster:
        found = submitted(cluster.job_script())
    assert "transfer_input_files" not in found
    assert f"--tls-key {home}/shared/" in found["arguments"]


def test_settings_travel_with_the_job(home: Path) -> None:
    with (
        dask.config.set({"hepcache.cache.codec": "lz4", "hepcache.host": "submit"}),
        HTCondorCluster(
            scheduler_options={"host": "127.0.0.1"}, security=False,
            cache_directory="/ssd/{user}", capacity="10 GiB", environment={"X": "a $b 'c'"},
            job_extra_directives={"Environment": '"A=1"', "requirements": "TARGET.HasFoo"},
        ) as cluster,
    ):  # fmt: skip
        cluster.new_spec["options"]["machines"] = "w*"
        found = submitted(cluster.job_script())
    environment = found["environment"]
    assert "DASK_HEPCACHE__CACHE__CODEC=lz4" in environment
    assert "DASK_HEPCACHE__CACHE__CAPACITY='10 GiB'" in environment
    assert "DASK_HEPCACHE__CACHE__DIRECTORY=/ssd/{user}" in environment
    assert "X='a $(DOLLAR)b ''c'''" in environment
    assert environment.endswith(' A=1"')
    assert "submit" not in environment
    assert found["requirements"] == (
        '(TARGET.HasFoo) && (regexp("^w.*([.].*)?$", TARGET.Machine, "i"))'
    )
    assert "tls" not in found["arguments"]


def test_dask_jobqueues_own_configuration_is_respected(home: Path) -> None:
    section = "jobqueue.htcondor"
    with dask.config.set(
        {f"{section}.memory": "3 GB", f"{section}.worker-extra-args": ["--resources", "A=1"],
         f"{section}.job-extra-directives": {"+Group": '"x"', "rank": "0"}}
    ), HTCondorCluster(scheduler_options={"host": "127.0.0.1"}) as cluster:  # fmt: skip
        script = cluster.job_script()
        found = submitted(script)
    assert found["my.daskworkermemory"] == str(3_000_000_000)
    assert "--resources A=1" in found["arguments"]
    assert found["rank"] == "0"
    assert "+Group" in script


def test_an_old_environment_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="new syntax"):
        HTCondorCluster(
            scheduler_options={"host": "127.0.0.1"},
            job_extra_directives={"environment": "A=1;B=2"},
        )


def test_the_dashboard_is_on_localhost(cluster: HTCondorCluster) -> None:
    assert "://localhost:" in cluster.dashboard_link
    sockets = cluster.scheduler.http_server._sockets.values()
    assert {one.getsockname()[0] for one in sockets} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("pattern", "machine", "met"),
    [
        ("w1", "w1.pool.test", True), ("w1", "W1", True), ("w1", "w11.pool.test", False),
        ("w1.pool.test", "w1.pool.test", True), ("w?", "w1.pool.test", True),
        ("w*", "w12.pool.test", True), ("w1.pool", "w1xpool", False), ("*", "any.thing", True),
        ("big-*", "w1.big-1", False),
    ],
)  # fmt: skip
def test_a_pattern_means_these_machines(pattern: str, machine: str, met: bool) -> None:
    expression = classad2.ExprTree(on_machines(pattern))
    assert expression.eval(classad2.ClassAd(), classad2.ClassAd({"Machine": machine})) is met


def test_requirements_are_all_met() -> None:
    assert both(None, None) is None
    assert both("A", None) == "A"
    assert both("A || B", "C") == "(A || B) && (C)"


def test_the_rank_prefers_hosts_with_cache() -> None:
    rank = classad2.ExprTree(RANK)
    ads = [{"Machine": "a"}, {"Machine": "b", "HepcacheUsedMiB": 5}]
    assert [rank.eval(classad2.ClassAd(), classad2.ClassAd(ad)) for ad in ads] == [0, 5]


@pytest.mark.parametrize("pattern", ["", "a b", 'w"', "w|x"])
def test_a_pattern_that_is_none(pattern: str, cluster: HTCondorCluster) -> None:
    with pytest.raises(ConfigurationError, match="as in a shell"):
        cluster.scale_hosts({"w1": 1, pattern: 1})
    assert not cluster.worker_spec


def test_inherited_keeps_to_what_was_changed() -> None:
    with dask.config.set({"hepcache.placement.duplicates": 2.5, "hepcache.catalogue": "/c"}):
        found = inherited()
    assert found["DASK_HEPCACHE__PLACEMENT__DUPLICATES"] == "2.5"
    assert "DASK_HEPCACHE__CATALOGUE" not in found
    assert "DASK_HEPCACHE__CACHE__CODEC" not in found


RUNNING = Job("1.0", JobStatus.RUNNING, machine="w1.pool.test", worker="x-0")
HELD = Job("1.0", JobStatus.HELD, hold_reason="no such file", worker="x-0")


def test_what_condor_q_says_is_read() -> None:
    ads = [
        {"ClusterId": 1, "ProcId": 0, "JobStatus": 2, "RemoteHost": "slot1_1@w1.pool.test",
         "HepcacheWorker": "x-0", "HepcacheMachines": "w*"},
        {"ClusterId": 2, "ProcId": 0, "JobStatus": 5, "HoldReason": "no such file"},
    ]  # fmt: skip
    first, second = parse_jobs(json.dumps(ads))
    assert (first.job_id, first.machine, first.machines) == ("1.0", "w1.pool.test", "w*")
    assert (second.status, second.hold_reason) == (JobStatus.HELD, "no such file")
    assert parse_jobs("\n") == []


def worker(**changed: object) -> Worker:
    return Worker(**{"name": "x-0", "job_id": "1.0", **changed})


@pytest.mark.parametrize(
    ("seen", "jobs", "what"),
    [
        (worker(), [RUNNING], None),
        (worker(away_s=99), [RUNNING], None),  # it may still be starting
        (worker(was_registered=True, away_s=5), [RUNNING], None),
        (worker(was_registered=True, away_s=16), [RUNNING], "lost"),
        (worker(was_registered=True, away_s=99), [Job("1.0", JobStatus.IDLE)], None),
        (worker(registered=True), [], None),
        (worker(), [], "removed"),
        (worker(), [Job("1.0", JobStatus.REMOVED)], "removed"),
        (worker(), [Job("1.0", JobStatus.COMPLETED)], "removed"),
        (worker(), [HELD], "held"),
        (worker(job_id="", problem="no schedd"), [], "refused"),
    ],
)
def test_what_becomes_of_a_job(seen: Worker, jobs: list[Job], what: str | None) -> None:
    found = incident(seen, {job.job_id: job for job in jobs}, patience_s=15)
    assert (found and found.what) == what
    if what == "held":
        assert "no such file" in str(found)


def condor(directory: Path, monkeypatch: pytest.MonkeyPatch, jobs: str = "") -> Path:
    """Put commands named as HTCondor's in the way, which act on files: a queue of one user."""
    programs = directory / "bin"
    programs.mkdir()
    count, queue = directory / "count", directory / "queue.json"
    queue.write_text(jobs)
    texts = {
        "condor_submit": f'n=$(($(cat {count} 2>/dev/null || echo 0) + 1)); echo $n > {count}; '
        'echo "1 job(s) submitted to cluster $n."',
        "condor_q": f"cat {queue}",
        "condor_rm": f"echo $1 >> {directory}/removed",
    }  # fmt: skip
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return queue


def until(cluster: HTCondorCluster, check: Callable[[], bool]) -> None:
    import asyncio

    async def look() -> None:
        async with asyncio.timeout(30):
            while not check():
                await asyncio.sleep(0.01)

    cluster.sync(look)


def test_a_job_that_fails_time_and_again_is_given_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, cluster: HTCondorCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    held = [
        {"ClusterId": n, "ProcId": 0, "JobStatus": 5, "HoldReason": "no disk"} for n in range(1, 9)
    ]
    condor(home, monkeypatch, json.dumps(held))
    # A Dask cluster, of another test too, silences all handlers of the logs.
    caplog.handler.setLevel(0)
    cluster.scale(1)
    until(cluster, lambda: bool(cluster._monitor.given_up))
    assert [(one.what, one.reason) for one in cluster.incidents] == [("held", "no disk")] * 3
    assert (home / "removed").read_text().split() == ["1.0", "2.0"]
    with pytest.raises(ClusterError, match="no disk"):
        cluster.wait_for_workers(1)
    assert "given up" in caplog.text
    cluster.scale(1)
    until(cluster, lambda: len(cluster.incidents) > 3)


def test_a_submit_host_without_htcondor_says_so(
    monkeypatch: pytest.MonkeyPatch, home: Path, cluster: HTCondorCluster
) -> None:
    monkeypatch.setenv("PATH", str(home))
    cluster.scale(1)
    until(cluster, lambda: bool(cluster._monitor.given_up))
    with pytest.raises(ClusterError, match="condor_submit"):
        cluster.wait_for_workers(1)


def test_scaling_by_machines_counts_what_is_there(
    home: Path, monkeypatch: pytest.MonkeyPatch, cluster: HTCondorCluster
) -> None:
    condor(home, monkeypatch)
    monkeypatch.setattr(cluster._monitor, "look", cluster._monitor._workers)
    cluster.scale_hosts({"w1": 2, "w2*": 1})
    cluster.scale_hosts({"w1": 1})
    pinned = [spec["options"]["machines"] for spec in cluster.worker_spec.values()]
    assert sorted(pinned) == ["w1", "w2*"]


SLOTS = [
    {"Machine": "w1.t", "PartitionableSlot": True, "Cpus": 6, "TotalSlotCpus": 8, "Memory": 9_000,
     "TotalSlotMemory": 12_000, "HepcacheHost": "w1", "HepcacheUsedMiB": 512,
     "HepcacheCapacityMiB": 1024, "HepcacheDraining": False},
    {"Machine": "w1.t", "DynamicSlot": True, "Cpus": 1, "TotalSlotCpus": 1, "State": "Claimed"},
    {"Machine": "w2.t", "Cpus": 1, "State": "Unclaimed"},
    {"Machine": "w2.t", "Cpus": 1, "State": "Claimed"},
    {"Machine": "w3.t", "PartitionableSlot": True, "Cpus": 4, "TotalSlotCpus": 4,
     "State": "Drained"},
]  # fmt: skip


def test_a_pool_is_what_its_slots_are() -> None:
    jobs = [
        RUNNING, Job("2.0", JobStatus.RUNNING, "w1.t", worker="x-1"),
        Job("3.0", JobStatus.RUNNING, "w1.t", worker="x-2"),
        Job("4.0", JobStatus.IDLE, machines="w2*"), Job("5.0", JobStatus.IDLE), HELD,
    ]  # fmt: skip
    pool = pool_of(map(classad2.ClassAd, SLOTS), jobs, {"x-1", "other"})
    one, two, three = pool.machines
    assert (one.name, one.host, one.slots, one.free) == ("w1.t", "w1", 8, 6)
    assert (one.live, one.booked, one.cached_bytes, one.capacity_bytes) == (1, 1, 1 << 29, 1 << 30)
    assert (two.slots, two.free, two.cached_bytes) == (2, 1, None)
    assert (three.draining, three.free) == (True, 0)
    assert dict(pool.waiting) == {"w2*": 1, "": 1}
    assert dict(pool.held) == {"x-0": "no such file"}
    console = Console(width=100, file=io.StringIO())
    console.print(pool)
    text = console.file.getvalue()
    assert "w3.t (draining)" in text
    assert "3 machines" in text
    assert "x-0 held: no such file" in text
    assert "w3.t (draining)" in repr(pool)
    shown = pool._repr_html_()
    assert shown.index("3 machines") < shown.index("w1.t")
    assert "no such file" in shown
    assert json.loads(json.dumps(pool.to_dict()))["machines"][0]["live"] == 1


def test_an_empty_pool() -> None:
    assert pool_of([], []).rows()[1] == []


def test_a_pool_that_does_not_answer(cluster: HTCondorCluster) -> None:
    htcondor2.param["COLLECTOR_HOST"] = "127.0.0.1:1"
    try:
        with pytest.raises(ClusterError, match="does not answer"):
            cluster.pool()
    finally:
        del htcondor2.param["COLLECTOR_HOST"]


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:9618", "<127.0.0.1:9618?noUDP>", ""])
def test_an_address_is_found(text: str) -> None:
    htcondor2.param["COLLECTOR_HOST"] = text
    try:
        assert re.fullmatch(r"[0-9a-f:.]+", address_towards_pool())
    finally:
        del htcondor2.param["COLLECTOR_HOST"]
    assert address_towards("no.such.host.invalid") is None
