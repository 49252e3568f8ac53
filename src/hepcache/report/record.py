"""The record of one run: every chunk, who did it, and where its bytes came from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hepcache.errors import RecordError
from hepcache.report.files import read_json, write_json
from hepcache.report.kernel import KernelUse
from hepcache.report.machine import machine, versions
from hepcache.telemetry import ChunkRecord

if TYPE_CHECKING:
    from hepcache.report.explain import Explanation

__all__ = ["RUN_SCHEMA", "RUN_VERSION", "RunRecord", "versions"]

RUN_SCHEMA = "hepcache.run"
RUN_VERSION = 1

_CHUNK_FIELDS = tuple(one.name for one in fields(ChunkRecord))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What one run did.

    Attributes
    ----------
    run
        The run's id, which its task keys carry; ``""`` without a cluster.
    name
        Its name in tables and figures.
    began
        Seconds since the epoch, on the client's clock.
    wall_s
        Seconds from the call to its result, look at the files included.
    hosts
        Threads of every host that could work, by host name.
    chunks
        One record per chunk counted in the result.
    settings
        The settings that matter for reading the numbers.
    versions, machine
        Software, and the client's machine.
    problems
        Files that were skipped, with the reason.
    columns
        Names of the columns that were touched.
    stored_bytes, stored_raw_bytes
        Bytes that were written to the hosts' SSDs, and what they decode to.
    first_chunk_s
        Seconds from when the cluster was asked for workers to the first chunk,
        by the clocks of client and worker; ``None`` where there were workers
        before, or nothing is known of it.
    kernels
        What went through NFS and FS-Cache, for each kernel below the hosts
        that has mounts which hold the run's files.
    """

    run: str
    name: str
    began: float
    wall_s: float
    hosts: Mapping[str, int]
    chunks: Sequence[ChunkRecord]
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=versions)
    machine: Mapping[str, Any] = field(default_factory=machine)
    problems: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[str] = ()
    stored_bytes: int = 0
    stored_raw_bytes: int = 0
    kernels: Sequence[KernelUse] = ()
    first_chunk_s: float | None = None

    def __repr__(self) -> str:
        # What sums records up is made of them; the thousands of chunks are not for reading.
        from hepcache.report.summary import summarise
        from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text

        found = summarise(self)
        return (
            f"<RunRecord {self.name!r}: {count_text(found.events)} events in "
            f"{count_text(found.chunks)} chunks on {len(self.hosts)} hosts in "
            f"{seconds_text(self.wall_s)}, {ratio_text(found.hit_ratio)} hits, "
            f"{bytes_text(found.origin_bytes)} from the origin>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready values, with its schema's name and version."""
        return {
            "schema": RUN_SCHEMA,
            "version": RUN_VERSION,
            "run": self.run,
            "name": self.name,
            "began": self.began,
            "wall_s": self.wall_s,
            "hosts": dict(self.hosts),
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "machine": dict(self.machine),
            "problems": dict(self.problems),
            "columns": list(self.columns),
            "stored_bytes": self.stored_bytes,
            "stored_raw_bytes": self.stored_raw_bytes,
            "first_chunk_s": self.first_chunk_s,
            "kernels": [one.to_dict() for one in self.kernels],
            "chunks": [chunk.to_dict() for chunk in self.chunks],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, path: str = "") -> RunRecord:
        """Return the record that :meth:`to_dict` described.

        Parameters
        ----------
        data
            The values.
        path
            Where they came from, for error messages.

        Raises
        ------
        RecordError
            Another schema, a newer version, or a field is missing or of a wrong type.
        """
        check_schema(data, RUN_SCHEMA, RUN_VERSION, path)
        try:
            return cls(
                run=str(data["run"]),
                name=str(data["name"]),
                began=float(data["began"]),
                wall_s=float(data["wall_s"]),
                hosts={str(host): int(threads) for host, threads in data["hosts"].items()},
                chunks=[_chunk(one) for one in data["chunks"]],
                settings=dict(data["settings"]),
                versions=dict(data["versions"]),
                machine=dict(data["machine"]),
                problems=dict(data["problems"]),
                columns=[str(name) for name in data.get("columns", ())],
                stored_bytes=int(data.get("stored_bytes", 0)),
                stored_raw_bytes=int(data.get("stored_raw_bytes", 0)),
                first_chunk_s=_seconds(data.get("first_chunk_s")),
                kernels=[KernelUse.from_dict(one) for one in data.get("kernels", ())],
            )
        except KeyError as error:
            raise RecordError(path, f"field {error} is missing; write it again") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise RecordError(path, f"a field has the wrong type: {error}") from error

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the record as JSON, atomically; ``.json.gz`` is compressed."""
        return write_json(path, self.to_dict())

    def explain(
        self, earlier: Sequence[RunRecord] = (), *, what_if: Sequence[str] | None = None
    ) -> Explanation:
        """Say why what was read at the origin was, and what the next run will take.

        Parameters
        ----------
        earlier
            Records of earlier runs over the same files, oldest first; they tell
            what was cached before.
        what_if
            Changes, as ``hepcache explain --what-if`` takes them; by default
            twice the room, one host more, and weights by speed.
        """
        from hepcache.report.explain import explain

        return explain((*earlier, self), what_if=what_if)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RunRecord:
        """Read a record that :meth:`write` wrote.

        Raises
        ------
        RecordError
            The file holds no record of this version.
        """
        return cls.from_dict(read_json(path), path=os.fspath(path))


def check_schema(data: Mapping[str, Any], schema: str, version: int, path: str) -> None:
    """Raise :class:`RecordError` unless ``data`` says it is of a schema we can read."""
    found = data.get("schema")
    if found != schema:
        raise RecordError(path, f"expected schema {schema!r}, found {found!r}")
    if data.get("version") != version:
        raise RecordError(
            path,
            f"expected version {version} of {schema}, found {data.get('version')!r}; "
            "read it with the hepcache that wrote it",
        )


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def _chunk(data: Mapping[str, Any]) -> ChunkRecord:
    # Records of before these were counted lack them.
    later = {"requested_bytes": 0, "used_bytes": 0}
    return ChunkRecord(**{name: {**later, **data}[name] for name in _CHUNK_FIELDS})
