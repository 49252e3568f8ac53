"""Runs on the submit host as the user: does with a cluster what it is told, line by line."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import dask.config

HOME = Path.home()
PROGRESS = HOME / "progress"
TOKEN = HOME / "token"
state: dict[str, Any] = {}


def start(hosts: list[str]) -> dict[str, Any]:
    """Start a cluster with one worker on each of some machines."""
    from hepcache import HTCondorCluster

    logging.basicConfig(level=logging.WARNING)
    dask.config.set({"hepcache.catalogue": str(HOME / "catalogue.sqlite")})
    TOKEN.touch(mode=0o600)
    TOKEN.write_text("a bearer token")
    os.environ["BEARER_TOKEN_FILE"] = str(TOKEN)
    cluster = HTCondorCluster(
        cache_directory="/ssd/{user}/columns", log_directory=str(HOME / "logs"), memory="1.2 GB",
    )  # fmt: skip
    state["cluster"], state["client"] = cluster, cluster.client()
    cluster.scale_hosts(dict.fromkeys(hosts, 1))
    cluster.wait_for_workers(len(hosts), "200s")
    return start_facts()


def start_facts() -> dict[str, Any]:
    """Return what there is to know of a cluster from outside."""
    cluster = state["cluster"]
    return {"address": cluster.scheduler_address, "script": cluster.job_script()}


def pause(seconds: float) -> None:
    """Let the cluster go on, between two looks at it."""
    import time

    time.sleep(seconds)


def hosts() -> list[str]:
    """Return what the workers call their hosts."""
    return sorted(state["client"].run(host_name).values())


def host_name() -> str:
    from hepcache.settings import settings

    return settings().host


def tokens() -> list[list[str]]:
    """Return the tokens that workers find, with the modes of their files."""
    return list(state["client"].run(_token).values())


def _token() -> list[str]:
    path = Path(os.environ["BEARER_TOKEN_FILE"])
    assert path.is_absolute()
    assert path != TOKEN
    return [path.read_text(), f"{path.stat().st_mode & 0o077:o}"]


def cache_directories() -> list[str]:
    return sorted(state["client"].run(_cache_directory).values())


def _cache_directory() -> str:
    from hepcache.process.worker_state import worker_state

    return str(worker_state().cache.directory)


def pool() -> dict[str, Any]:
    view = state["cluster"].pool()
    return {**view.to_dict(), "html": view._repr_html_()}


def cycles() -> dict[str, Any]:
    """Run the benchmark."""
    from dataclasses import replace

    from hepcache.bench.cycles import cycles_result, run_cycles
    from hepcache.bench.plan import QUICK, SamplePlan

    sample = SamplePlan(events=24_000, files=6, compression="zstd:1", cluster_entries=2_000)
    plan = replace(QUICK, sample=sample, directory=HOME, origin_bandwidth=None)
    report = run_cycles(plan, cluster=state["cluster"])
    first = report.records[0].to_dict()
    result = json.loads(cycles_result(report).to_json())
    return {**result, "first_chunk_s": first.get("first_chunk_s")}


def make_files(files: int) -> None:
    """Write ROOT files that are analysed slowly, in many chunks."""
    import numpy as np
    import uproot

    directory = HOME / "files"
    directory.mkdir()
    for number in range(files):
        with uproot.recreate(directory / f"{number}.root") as file:
            file["Events"] = {"x": np.arange(number, number + 1000, dtype="i8")}
    state["files"] = [str(path) for path in sorted(directory.iterdir())]


def slow_sum(events: Any) -> dict[str, int]:
    """Take a while for a chunk; leave a trace of it."""
    import time

    time.sleep(0.5)
    total = int(sum(events.x.to_numpy())) if hasattr(events.x, "to_numpy") else int(sum(events.x))
    with PROGRESS.open("a") as file:
        file.write(f"{os.uname().nodename}\n")
    return {"events": len(events), "sum": total}


def analyse() -> dict[str, Any]:
    """Analyse the files; things happen to the pool meanwhile."""
    from coffea.nanoevents import BaseSchema

    from hepcache import analyse as run

    output, record = run(
        state["files"], slow_sum, cluster=state["cluster"], schema=BaseSchema, chunksize=100,
        status=False,
    )  # fmt: skip
    chunks = {(one.path, one.start, one.stop) for one in record.chunks}
    hosts = sorted({one.host for one in record.chunks})
    return {
        "output": output,
        "chunks": len(record.chunks),
        "distinct": len(chunks),
        "hosts": hosts,
    }


def incidents() -> list[dict[str, str]]:
    from dataclasses import asdict

    return [asdict(one) for one in state["cluster"].incidents]


def wait(workers: int) -> list[str]:
    """Wait until there are so many workers again."""
    state["cluster"].wait_for_workers(workers, "150s")
    return hosts()


def jobs() -> list[dict[str, str]]:
    """Return the jobs as they were last seen, and where they run."""
    found = state["cluster"]._monitor.jobs
    return [
        {"id": one.job_id, "machine": one.machine, "status": one.status.name, "worker": one.worker}
        for one in found
    ]


def submitted(shared: str, tls: str, workers: int) -> dict[str, Any]:
    """Run something on the cluster of condor/submit/scheduler.sub and workers.sub."""
    from distributed import Client
    from distributed.security import Security

    held = Path(tls) / "client"
    security = Security(
        require_encryption=True, tls_ca_file=str(held / "hepcache-ca.pem"),
        tls_client_cert=str(held / "hepcache-client.pem"),
        tls_client_key=str(held / "hepcache-client.key"),
    )  # fmt: skip
    with Client(scheduler_file=f"{shared}/scheduler.json", security=security) as client:
        client.wait_for_workers(workers, timeout=150)
        plugins = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins))
        hosts = sorted(client.run(host_name).values())
        total = client.submit(sum, range(100)).result(timeout=60)
    return {"hosts": hosts, "total": total, "plugins": plugins}


def close() -> None:
    if state:
        state["client"].close()
        state["cluster"].close()


def main() -> None:
    # What is printed by libraries must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"result": globals()[asked["call"]](**asked["with"])}
        except Exception:  # whatever it is, the test is told
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if asked["call"] == "close":
            return


if __name__ == "__main__":
    main()
