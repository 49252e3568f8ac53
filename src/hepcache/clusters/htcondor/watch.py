"""What becomes of a cluster's jobs: which of them have to be replaced, and why; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

__all__ = [
    "ATTRIBUTES",
    "Incident",
    "Job",
    "JobStatus",
    "Worker",
    "incident",
    "parse_ad",
    "parse_jobs",
]

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

    Attributes
    ----------
    job_id
        ``cluster.process``.
    status
        Its state.
    machine
        The machine it runs on; ``""`` while it doesn't.
    hold_reason
        Why it is held; ``""`` if it isn't.
    worker
        Name of the Dask worker it is.
    machines
        Pattern of machines to which it is pinned; ``""`` for none.
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

    Attributes
    ----------
    name
        Its name.
    job_id
        Its job; ``""`` where none could be submitted.
    problem
        Why none could be submitted; ``""`` if one was.
    registered
        Whether it is known to the scheduler now.
    was_registered
        Whether it ever was.
    away_s
        Seconds since it was last seen there, or since it was submitted.
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

    Attributes
    ----------
    worker, job_id
        Whose.
    what
        ``held``, ``removed``, ``lost`` or ``refused``.
    reason
        In HTCondor's words where it has any.
    machine
        Where it ran; ``""`` if unknown.
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

    Raises
    ------
    ValueError
        It is something else.
    """
    if not text.strip():
        return []
    return [parse_ad(one) for one in json.loads(text)]


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

    Parameters
    ----------
    worker
        The worker.
    jobs
        All jobs of the cluster that the schedd knows, by id.
    patience_s
        How long a worker whose job runs may be away before it counts as lost.

    Notes
    -----
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
