"""Looks after a cluster's jobs while it lives: replaces those that came to nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from hepcache.clusters.htcondor.job import CLUSTER
from hepcache.clusters.htcondor.watch import (
    ATTRIBUTES,
    Incident,
    Job,
    Worker,
    incident,
    parse_jobs,
)

if TYPE_CHECKING:
    from hepcache.clusters.htcondor.cluster import HTCondorCluster

__all__ = ["Tending", "query_jobs"]

logger = logging.getLogger(__name__)

# Of what fails time and again, somebody has to know before it is tried once more.
_ATTEMPTS = 3
_QUERY_S = 30.0


async def query_jobs(name: str) -> list[Job]:
    """Ask the schedd for the jobs of a cluster.

    Raises
    ------
    RuntimeError, OSError, ValueError
        condor_q failed, is not there, or said what can't be read.
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


class Tending:
    """Watch the jobs of a cluster.

    Parameters
    ----------
    cluster
        The cluster; it runs in the event loop of its scheduler.
    interval_s
        How often the schedd is asked.
    patience_s
        How long a worker whose job runs may be away.
    note
        Told of every incident, with what is done about it.

    Attributes
    ----------
    incidents
        All that has happened, oldest first.
    given_up
        Workers that are not replaced any more, and the last reason.
    jobs
        The jobs as they were last seen.
    problem
        Why the schedd could not be asked; ``""`` if it could.
    """

    def __init__(
        self,
        cluster: HTCondorCluster,
        *,
        interval_s: float,
        patience_s: float,
        note: Callable[[str], None] = logger.warning,
    ) -> None:
        self._cluster, self._note = cluster, note
        self._interval_s, self._patience_s = interval_s, patience_s
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
        happened = self._act([one for one in workers if one.problem], [])
        submitted = [one for one in workers if one.job_id]
        # Asked after the workers were listed, so that all their jobs are known to it.
        self.jobs = await query_jobs(self._cluster.name) if submitted else []
        self.problem = ""
        return happened + self._act(submitted, self.jobs)

    def _act(self, workers: list[Worker], jobs: list[Job]) -> list[Incident]:
        by_id = {job.job_id: job for job in jobs}
        happened = [
            one
            for worker in workers
            if (one := incident(worker, by_id, patience_s=self._patience_s)) is not None
        ]
        for one in happened:
            self._replace(one)
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
                    str(name), job.job_id or "", job.problem, registered,
                    name in self._registered, away_s,
                )
            )  # fmt: skip
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
