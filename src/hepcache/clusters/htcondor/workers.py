"""Which workers a cluster wants by name: on machines, in place of others, and who has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask_jobqueue.htcondor import HTCondorCluster as JobqueueCluster

from hepcache.clusters.htcondor.requirements import on_machines
from hepcache.errors import ConfigurationError

__all__ = ["NamedWorkers", "checked"]


class NamedWorkers(JobqueueCluster):
    """dask-jobqueue's cluster, whose wanted workers can be pinned and exchanged one by one."""

    def new_worker_spec(self) -> dict[str, dict[str, Any]]:
        """Return the next worker's name and what it is; no name comes twice."""
        found: dict[str, dict[str, Any]] = super().new_worker_spec()
        self._i += 1
        return found

    def registered(self) -> set[str]:
        """Return the names of jobs whose worker the scheduler knows."""
        there = {str(ws.name) for ws in self.scheduler.workers.values()}
        found = set()
        for name, spec in list(self.worker_spec.items()):
            group = [f"{name}{suffix}" for suffix in spec.get("group", ("",))]
            if there.intersection(group):
                found.add(name)
        return found

    def rename(self, name: str) -> str | None:
        """Ask for another job in the place of one; ``None`` if that isn't wanted any more."""
        (new,) = self.new_worker_spec()
        spec = self.worker_spec.pop(name, None)
        if spec is None:
            return None
        self.worker_spec[new] = spec
        return str(new)

    def correct(self) -> None:
        """Submit what is wanted and remove what isn't, soon."""
        self.loop.add_callback(self._correct_state)

    def _pin(self, pattern: str, number: int) -> None:
        """Want so many workers on machines of a pattern, those that are pinned there included."""
        pinned = [
            name
            for name, spec in self.worker_spec.items()
            if spec["options"].get("machines") == pattern
        ]
        for name in pinned[number:]:
            del self.worker_spec[name]
        for _ in range(number - len(pinned)):
            (name,) = self.new_worker_spec()
            options = {**self.new_spec["options"], "machines": pattern}
            self.worker_spec[name] = {**self.new_spec, "options": options}


def checked(hosts: Mapping[str, int]) -> None:
    """Check what is asked of machines by name.

    Raises
    ------
    ConfigurationError
        A pattern has characters that no name has, or a number is negative.
    """
    for pattern, number in hosts.items():
        on_machines(pattern)
        if not isinstance(number, int) or number < 0:
            raise ConfigurationError(f"hosts[{pattern!r}]", "a whole number", number)
