"""What is counted while a run goes on, and how it is written down.

A chunk's record is made on the worker that processed it and travels inside
the chunk's own result, so a record arrives exactly as often as its result is
counted: once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, get_args

__all__ = ["CAUSES", "Cause", "ChunkRecord", "MountUse", "ReadLog", "Tally"]

Cause = Literal["hit", "miss", "stolen", "evicted", "stale", "corrupt"]
"""Where a column of a segment came from; all but ``hit`` were read at the origin."""

CAUSES: tuple[Cause, ...] = get_args(Cause)


@dataclass(slots=True)
class ReadLog:
    """Counts of one chunk's reading; one per chunk, not shared by threads.

    Attributes
    ----------
    causes
        Columns of segments by cause.
    cause_bytes
        Decoded bytes of those columns by cause.
    cache_bytes
        Bytes taken from the SSD.
    origin_bytes
        Bytes that came from the origin.
    requested_bytes, used_bytes
        Bytes asked of the origin, each time they were; and those of the
        baskets wanted, without gaps, metadata and what was fetched in vain.
    read_s, decode_s
        Seconds spent waiting for bytes, and decoding them.
    columns
        Names of the columns touched.
    """

    causes: Counter[Cause] = field(default_factory=Counter)
    cause_bytes: Counter[Cause] = field(default_factory=Counter)
    cache_bytes: int = 0
    origin_bytes: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    columns: set[str] = field(default_factory=set)
    requested_bytes: int = 0
    used_bytes: int = 0

    def count(self, cause: Cause, nbytes: int) -> None:
        """Count one column of one segment of ``nbytes`` decoded bytes."""
        self.causes[cause] += 1
        self.cause_bytes[cause] += nbytes
        if cause == "hit":
            self.cache_bytes += nbytes


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """What one chunk cost, and where its bytes came from.

    Attributes
    ----------
    dataset, path, uuid, tree, start, stop, segment
        Which chunk: entries ``start`` to ``stop`` of a tree, and the first
        entry of the segment in which it begins.
    host, worker
        Who processed it.
    owner
        The host that placement had chosen; ``""`` where nothing was placed.
    began, ended
        Seconds since the epoch, on the worker's clock.
    open_s, read_s, decode_s, process_s
        Seconds: to make the events, waiting for bytes, decoding, and all of
        the processor's own time (reading is lazy, so it includes the reading).
    causes, cause_bytes
        Columns of segments, and their decoded bytes, by cause.
    cache_bytes, origin_bytes
        Bytes from the SSD and bytes that came from the origin.
    columns
        Number of columns touched.
    requested_bytes, used_bytes
        Bytes asked of the origin, and those of the baskets wanted; see
        :class:`ReadLog`.
    """

    dataset: str
    path: str
    uuid: str
    tree: str
    start: int
    stop: int
    segment: int
    host: str
    worker: str
    owner: str
    began: float
    ended: float
    open_s: float
    read_s: float
    decode_s: float
    process_s: float
    causes: dict[str, int]
    cause_bytes: dict[str, int]
    cache_bytes: int
    origin_bytes: int
    columns: int
    requested_bytes: int = 0
    used_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready values."""
        return asdict(self)

    def attributed(self) -> ChunkRecord:
        """Return the record with what a host lacked of another's chunk counted as stolen."""
        if self.owner in ("", self.host):
            return self
        causes, sizes = dict(self.causes), dict(self.cause_bytes)
        for counts in (causes, sizes):
            if "miss" in counts:
                counts["stolen"] = counts.get("stolen", 0) + counts.pop("miss")
        return replace(self, causes=causes, cause_bytes=sizes)


@dataclass(slots=True)
class Tally:
    """What chunks add up to, of one process or of many.

    Attributes
    ----------
    chunks, events
        How many were processed.
    cache_bytes, origin_bytes
        Bytes from SSDs and bytes that came from the origin.
    causes, cause_bytes
        Columns of segments, and their decoded bytes, by cause.
    """

    chunks: int = 0
    events: int = 0
    cache_bytes: int = 0
    origin_bytes: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    cause_bytes: Counter[str] = field(default_factory=Counter)

    def count(self, record: ChunkRecord) -> None:
        """Add one chunk."""
        one = record.attributed()
        self.chunks += 1
        self.events += one.stop - one.start
        self.cache_bytes += one.cache_bytes
        self.origin_bytes += one.origin_bytes
        self.causes.update(one.causes)
        self.cause_bytes.update(one.cause_bytes)

    def __add__(self, other: Tally) -> Tally:
        return self._with(other, 1)

    def __sub__(self, other: Tally) -> Tally:
        return self._with(other, -1)

    def _with(self, other: Tally, sign: int) -> Tally:
        causes, sizes = Counter(self.causes), Counter(self.cause_bytes)
        for mine, others in ((causes, other.causes), (sizes, other.cause_bytes)):
            for cause, number in others.items():
                mine[cause] += sign * number
        return Tally(
            self.chunks + sign * other.chunks,
            self.events + sign * other.events,
            self.cache_bytes + sign * other.cache_bytes,
            self.origin_bytes + sign * other.origin_bytes,
            causes,
            sizes,
        )

    @property
    def columns(self) -> int:
        """Columns of segments, from wherever."""
        return sum(self.causes.values())

    @property
    def hit_ratio(self) -> float | None:
        """Part of the columns that came from a cache; ``None`` where none was read."""
        return self.causes["hit"] / self.columns if self.columns else None

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as values for the wire."""
        return {
            "chunks": self.chunks,
            "events": self.events,
            "cache_bytes": self.cache_bytes,
            "origin_bytes": self.origin_bytes,
            "causes": dict(self.causes),
            "cause_bytes": dict(self.cause_bytes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the tally that :meth:`to_dict` described."""
        causes, sizes = Counter(data["causes"]), Counter(data["cause_bytes"])
        return cls(**{**data, "causes": causes, "cause_bytes": sizes})


@dataclass(frozen=True, slots=True)
class MountUse:
    """What went through one NFS superblock between two snapshots.

    Attributes
    ----------
    mount_points
        All places where it is mounted; they share its counters.
    source
        ``server:/export``.
    fsc
        Whether it has the option ``fsc``.
    application_bytes
        Bytes that applications have read; memory maps are not counted.
    server_bytes
        Bytes read from the server. What is missing came from the page cache
        or from FS-Cache; read-ahead can make it the larger number.
    """

    mount_points: tuple[str, ...]
    source: str
    fsc: bool
    application_bytes: int
    server_bytes: int
