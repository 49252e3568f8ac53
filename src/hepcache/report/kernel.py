"""What the kernels of the hosts have read through NFS, and kept, during a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hepcache.telemetry import MountUse

__all__ = ["KernelUse"]


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel's part in a run.

    Attributes
    ----------
    hosts
        The run's hosts on it: one, or several that are simulated on one machine.
    mounts
        What went through the NFS mounts that hold the run's files, for
        whomever: other users' reading counts too.
    reads, writes
        Operations on FS-Cache for all mounts together; ``None`` where the
        kernel doesn't count them.
    """

    hosts: Sequence[str]
    mounts: Sequence[MountUse]
    reads: int | None = None
    writes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values, ready for JSON."""
        return {
            "hosts": list(self.hosts),
            "mounts": [
                {**asdict(mount), "mount_points": list(mount.mount_points)}
                for mount in self.mounts
            ],
            "reads": self.reads,
            "writes": self.writes,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> KernelUse:
        """Return what :meth:`to_dict` described.

        Raises
        ------
        KeyError, TypeError, ValueError
            A field is missing or of a wrong type.
        """
        mounts = tuple(
            MountUse(
                mount_points=tuple(str(place) for place in one["mount_points"]),
                source=str(one["source"]),
                fsc=bool(one["fsc"]),
                application_bytes=int(one["application_bytes"]),
                server_bytes=int(one["server_bytes"]),
            )
            for one in data["mounts"]
        )
        reads, writes = (
            None if data[name] is None else int(data[name]) for name in ("reads", "writes")
        )
        return cls(tuple(str(host) for host in data["hosts"]), mounts, reads, writes)
