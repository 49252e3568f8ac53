"""Looks after a cluster's jobs while it lives: replaces those that came to nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from hepcache.clusters.htcondor.job import CLUSTER

logger = logging.getLogger(__name__)

# What fails so often is reported to the user before it is tried once more.
_ATTEMPTS = 3
_QUERY_S = 30.0

ATTRIBUTES = (
    "ClusterId", "ProcId", "JobStatus", "HoldReason", "HoldReasonCode", "RemoteHost",
    "LastRemoteHost", "HepcacheWorker", "HepcacheMachines", "QDate", "NumJobStarts",
)  # fmt: skip
"""What the schedd is asked for."""


class JobStatus(IntEnum):
    """HTCondor's states of a job."""

    IDLE = 1
    RUNNING = 2
    REMOVED = 3
    COMPLETED = 4
    HELD = 5
    TRANSFERRING_OUTPUT = 6
    SUSPENDED = 7


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the schedd describes it.

    ``job_id``: ``cluster.process``.
    ``machine``: the machine it runs on; ``""`` while it doesn't.
    ``hold_reason``: why it is held; ``""`` if it isn't.
    ``machines``: pattern of machines to which it is pinned; ``""`` for none.
    """

    job_id: str
    status: JobStatus
    machine: str = ""
    hold_reason: str = ""
    worker: str = ""
    machines: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """What the cluster knows of a worker that it wants to have.

    ``job_id``: its job; ``""`` where none could be submitted.
    ``problem``: why none could be submitted; ``""`` if one was.
    """

    name: str
    job_id: str
    problem: str = ""
    registered: bool = False
    was_registered: bool = False
    away_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that has happened to a worker's job.

    ``what``: ``held``, ``removed``, ``lost`` or ``refused``.
    ``machine``: where it ran; ``""`` if unknown.
    """

    worker: str
    job_id: str
    what: str
    reason: str
    machine: str = ""

    def __str__(self) -> str:
        place = f" on {self.machine}" if self.machine else ""
        job = f" (job {self.job_id})" if self.job_id else ""
        return f"{self.worker}{job}{place} {self.what}: {self.reason}"


def parse_jobs(text: str) -> list[Job]:
    """Return the jobs in the output of ``condor_q -json``; empty output means none.

    Raises ``ValueError``: it is something else.
    """
    if not text.strip():
        return []
    return [parse_ad(ad) for ad in json.loads(text)]


def parse_ad(ad: Mapping[str, Any]) -> Job:
    """Return the job that a ClassAd describes."""
    status = JobStatus(int(ad["JobStatus"]))
    slot = str(ad.get("RemoteHost") or "")
    return Job(
        job_id=f"{ad['ClusterId']}.{ad['ProcId']}",
        status=status,
        machine=slot.rpartition("@")[2],
        hold_reason=str(ad.get("HoldReason") or "") if status is JobStatus.HELD else "",
        worker=str(ad.get("HepcacheWorker") or ""),
        machines=str(ad.get("HepcacheMachines") or ""),
    )


def incident(worker: Worker, jobs: Mapping[str, Job], *, patience_s: float) -> Incident | None:
    """Tell whether a worker has to be replaced; ``None`` if it hasn't.

    ``patience_s``: how long a worker whose job runs may be away before it counts as lost.

    A job that waits is left alone, also after an eviction: HTCondor starts it
    again by itself.
    """
    if worker.problem:
        return Incident(worker.name, "", "refused", worker.problem)
    job = jobs.get(worker.job_id)
    if job is None or job.status in (JobStatus.REMOVED, JobStatus.COMPLETED):
        if worker.registered:
            return None  # its end is on the way
        ended = job is not None and job.status is JobStatus.COMPLETED
        reason = "its job has ended" if ended else "its job is not in the queue any more"
        return Incident(worker.name, worker.job_id, "removed", reason)
    if job.status is JobStatus.HELD:
        return Incident(
            worker.name, worker.job_id, "held", job.hold_reason or "no reason given", job.machine
        )
    running = job.status is JobStatus.RUNNING
    if running and not worker.registered and worker.was_registered and worker.away_s > patience_s:
        reason = f"its job runs, but it has been away for {worker.away_s:.0f} s"
        return Incident(worker.name, worker.job_id, "lost", reason, job.machine)
    return None


async def query_jobs(name: str) -> list[Job]:
    """Ask the schedd for the jobs of a cluster.

    Raises ``RuntimeError``, ``OSError``, ``ValueError``: condor_q failed, is not there, or said
    what can't be read.
    """
    # The command, not the bindings: those would hold up the scheduler that
    # shares this process for as long as the schedd takes to answer.
    process = await asyncio.create_subprocess_exec(
        "condor_q", "-json", "-attributes", ",".join(ATTRIBUTES),
        "-constraint", f'{CLUSTER} == "{name}"',
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        said, complained = await asyncio.wait_for(process.communicate(), _QUERY_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise RuntimeError(f"condor_q has not answered for {_QUERY_S:.0f} s") from None
    if process.returncode:
        raise RuntimeError(f"condor_q failed: {complained.decode(errors='replace').strip()}")
    return parse_jobs(said.decode(errors="replace"))


class WantedWorkers(Protocol):
    """What the monitor needs of a cluster: its workers, and another one in a worker's place."""

    name: str
    worker_spec: Mapping[str, Any]

    @property
    def workers(self) -> Mapping[str, Any]:
        """Jobs by worker."""

    def registered(self) -> set[str]:
        """Return the names of jobs whose worker the scheduler knows."""

    def rename(self, name: str) -> str | None:
        """Ask for another job in the place of one; ``None`` if that isn't wanted any more."""

    def correct(self) -> None:
        """Submit what is wanted and remove what isn't, soon."""


class JobMonitor:
    """Watch the jobs of a cluster.

    ``patience_s``: how long a worker whose job runs may be away.
    ``problem``: why the schedd could not be asked; ``""`` if it could.
    """

    def __init__(
        self,
        cluster: WantedWorkers,
        *,
        interval_s: float,
        patience_s: float,
        note: Callable[[str], None] = logger.warning,
    ) -> None:
        self._cluster = cluster
        self._note = note
        self._interval_s = interval_s
        self._patience_s = patience_s
        self._seen: dict[str, float] = {}
        self._registered: set[str] = set()
        self._attempts: Counter[str] = Counter()
        self.incidents: list[Incident] = []
        self.given_up: dict[str, Incident] = {}
        self.jobs: list[Job] = []
        self.problem = ""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.look()
            except (OSError, RuntimeError, ValueError) as error:
                # What can't be seen is left alone.
                if str(error) != self.problem:
                    self.problem = str(error)
                    self._note(f"{self._cluster.name}: {error}")

    async def look(self) -> list[Incident]:
        """Look once; replace what has to be, and return what had happened to it."""
        workers = self._workers()
        happened = self._act([worker for worker in workers if worker.problem], [])
        submitted = [worker for worker in workers if worker.job_id]
        # Asked after the workers were listed, so that all their jobs are known to it.
        self.jobs = await query_jobs(self._cluster.name) if submitted else []
        self.problem = ""
        return happened + self._act(submitted, self.jobs)

    def _act(self, workers: list[Worker], jobs: list[Job]) -> list[Incident]:
        by_id = {job.job_id: job for job in jobs}
        happened = [
            found
            for worker in workers
            if (found := incident(worker, by_id, patience_s=self._patience_s)) is not None
        ]
        for found in happened:
            self._replace(found)
        if happened:
            self._cluster.correct()
        return happened

    def _workers(self) -> list[Worker]:
        now, there = time.monotonic(), self._cluster.registered()
        wanted = [
            (name, job)
            for name, job in self._cluster.workers.items()
            if name in self._cluster.worker_spec and name not in self.given_up
        ]
        found = []
        for name, job in wanted:
            registered = name in there
            if registered:
                self._registered.add(name)
                self._attempts.pop(name, None)
            if registered or name not in self._seen:
                self._seen[name] = now
            away_s = now - self._seen[name]
            found.append(
                Worker(
                    name=str(name),
                    job_id=job.job_id or "",
                    problem=job.problem,
                    registered=registered,
                    was_registered=name in self._registered,
                    away_s=away_s,
                )
            )
        return found

    def _replace(self, happened: Incident) -> None:
        name = happened.worker
        self.incidents.append(happened)
        attempts = self._attempts.pop(name, 0) + 1
        if attempts >= _ATTEMPTS:
            self.given_up[name] = happened
            self._note(f"{happened}; given up after {attempts} attempts, scale() tries again")
            return
        new = self._cluster.rename(name)
        if new is not None:
            self._attempts[new] = attempts
            self._note(f"{happened}; replaced by {new}")

    def forget(self) -> list[str]:
        """Return the workers that were given up, to be tried again."""
        names = list(self.given_up)
        self.given_up.clear()
        return names
