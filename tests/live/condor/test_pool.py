"""HTCondorCluster on a real pool: the benchmark, and what may happen to workers meanwhile."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hepcache.scheduling.client_requests import NAME

from .conftest import WORKERS, Submit
from .lan import DOMAIN, REPOSITORY, USER, Host, Lan, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

FILES, CHUNKS_PER_FILE = 6, 10
EXPECTED = {
    "events": FILES * 1000,
    "sum": sum(sum(range(number, number + 1000)) for number in range(FILES)),
}


def test_workers_are_on_their_hosts_and_talk_over_tls(submit: Submit) -> None:
    assert submit.call("hosts") == [f"{name}.{DOMAIN}" for name in WORKERS]
    started = submit.call("start_facts")
    assert started["address"].startswith("tls://")
    assert "--tls-key hepcache-worker.key" in started["script"]
    assert set(submit.call("cache_directories")) == {f"/ssd/{USER}/columns"}


def test_jobs_have_the_users_token_for_themselves(submit: Submit) -> None:
    assert submit.call("tokens") == [["a bearer token", "0"]] * len(WORKERS)


def test_the_view_of_the_pool(submit: Submit) -> None:
    pool = submit.call("pool")
    by_name = {one["name"]: one for one in pool["machines"]}
    assert list(by_name) == [f"{name}.{DOMAIN}" for name in WORKERS]
    for one in by_name.values():
        assert (one["slots"], one["free"], one["live"], one["booked"]) == (2, 1, 1, 0)
        assert one["host"] == one["name"]
        assert one["capacity_bytes"] > 0
        assert one["name"] in pool["html"]
    assert pool["held"] == {}


def test_second_cycle_comes_from_the_caches(submit: Submit) -> None:
    result = submit.call("cycles", timeout_s=500)
    assert result["ratios"]["hit_ratio_cycle2"] >= 0.99
    assert result["ratios"]["origin_bytes_cycle2"] == 0
    assert len(result["rows"]) == 3
    # From asking for workers to the first chunk, HTCondor's part included.
    assert 0 < result["first_chunk_s"] < 240


def test_scheduler_and_workers_can_be_submitted_by_themselves(submit: Submit) -> None:
    home, cm = f"/home/{USER}", submit.host
    shared, tls = f"{home}/shared", f"{home}/tls"
    programs = Path(sys.prefix) / "bin"
    cm.run(USER, "mkdir", shared)
    cm.run(USER, str(programs / "hepcache"), "cluster", "certificates", tls)
    given = [f"bin={programs}", f"tls={tls}", f"shared={shared}"]
    submit_files = REPOSITORY / "condor/submit"
    try:
        cm.run(USER, "condor_submit", *given, str(submit_files / "scheduler.sub"))
        cm.run(USER, "condor_submit", *given, "workers=2", str(submit_files / "workers.sub"))
        found = submit.call("submitted", shared=shared, tls=tls, workers=2, timeout_s=200)
    finally:
        cm.run(USER, "condor_rm", "-constraint", "HepcacheCluster is undefined")
    assert set(found["hosts"]) <= {f"{name}.{DOMAIN}" for name in WORKERS}
    assert len(found["hosts"]) == 2
    assert found["total"] == sum(range(100))
    assert NAME in found["plugins"]


def test_the_benchmark_can_be_submitted_as_a_job(lan: Lan) -> None:
    cm, program = lan.hosts["cm"], Path(sys.prefix) / "bin/hepcache"
    description = REPOSITORY / "condor/submit/benchmark.sub"
    cm.run(USER, "condor_submit", f"hepcache={program}", "workers=1", str(description))
    cm.run(USER, "condor_wait", "-wait", "400", "benchmark.log")
    found = json.loads((lan.home / "benchmark.json").read_text())
    assert found["name"] == "cycles", (lan.home / "benchmark.err").read_text()


@pytest.fixture(scope="module")
def files(submit: Submit) -> None:
    submit.call("make_files", files=FILES)


@pytest.fixture
def mid_run(submit: Submit, lan: Lan, files: None) -> Callable[..., Any]:
    """Return a function that does something in the middle of a run, and checks its result."""
    submit.call("wait", workers=len(WORKERS), timeout_s=200)
    progress = lan.home / "progress"
    progress.unlink(missing_ok=True)

    def play(
        happening: Callable[[], Any], afterwards: Callable[[], None] = lambda: None
    ) -> list[dict[str, str]]:
        before = len(submit.call("incidents"))
        submit.send("analyse")
        wait_until(
            lambda: progress.exists() and len(progress.read_text().splitlines()) >= 6,
            timeout_s=120, what="the first chunks",
        )  # fmt: skip
        happening()
        assert len(progress.read_text().splitlines()) < FILES * CHUNKS_PER_FILE - 6, "too late"
        found = submit.receive(300)
        assert found["output"] == EXPECTED
        assert found["chunks"] == found["distinct"] >= FILES * CHUNKS_PER_FILE
        afterwards()
        until = time.monotonic() + 90
        while len(submit.call("incidents")) <= before and time.monotonic() < until:
            submit.call("pause", seconds=0.5)
        submit.call("wait", workers=len(WORKERS), timeout_s=200)
        return submit.call("incidents")[before:]

    return play


def job_on(submit: Submit, name: str) -> str:
    return next(one["id"] for one in submit.call("jobs") if one["machine"].startswith(f"{name}."))


def test_a_removed_worker_is_replaced(submit: Submit, mid_run: Callable[..., Any]) -> None:
    job = job_on(submit, "w1")
    happened = mid_run(lambda: submit.host.run(USER, "condor_rm", job))
    assert [(one["what"], one["job_id"]) for one in happened] == [("removed", job)]


def test_a_held_job_is_replaced_and_says_why(submit: Submit, mid_run: Callable[..., Any]) -> None:
    job = job_on(submit, "w2")
    reason = "the cat sat on it"
    happened = mid_run(lambda: submit.host.run(USER, "condor_hold", "-reason", reason, job))
    (one,) = happened
    assert (one["what"], one["job_id"]) == ("held", job)
    assert reason in one["reason"]


def test_a_killed_startd_loses_nothing(
    submit: Submit, worker_hosts: dict[str, Host], mid_run: Callable[..., Any]
) -> None:
    happened = mid_run(lambda: worker_hosts["w3"].kill_process("condor_startd"))
    assert {one["machine"] for one in happened} <= {f"w3.{DOMAIN}", ""}
    assert happened


def test_a_drained_machine_hands_over_what_it_has(
    submit: Submit, worker_hosts: dict[str, Host], mid_run: Callable[..., Any]
) -> None:
    w1, script = worker_hosts["w1"], "/usr/local/libexec/hepcache/hepcache-drain"

    def empty() -> None:
        w1.run("root", script, "start", "120")  # waits until no job is left
        assert f"w1.{DOMAIN}" not in submit.call("hosts")
        (machine,) = (
            one for one in submit.call("pool")["machines"] if one["name"] == f"w1.{DOMAIN}"
        )
        assert machine["draining"]
        assert machine["free"] == 0
        w1.run("root", script, "stop")

    happened = mid_run(lambda: w1.run("root", "sh", "-c", f"{script} start 0 || true"), empty)
    assert [one["what"] for one in happened] == ["removed"]
    assert f"w1.{DOMAIN}" in submit.call("hosts")
