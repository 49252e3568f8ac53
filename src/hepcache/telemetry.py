"""What workers count while a run goes on, and send to the client and the scheduler.

A chunk's record is made on the worker that processed it and travels inside
the chunk's own result, so a record arrives exactly as often as its result is
counted: once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

Cause = Literal["hit", "neighbour", "miss", "stolen", "evicted", "stale", "corrupt"]
"""Where a column came from: ``hit`` if it was in its host's cache when the run began;
``neighbour`` if another host's cache gave it in the run; all others were read at the origin in the
run, by the chunk itself or by one before it of the same segment."""

CAUSES: tuple[Cause, ...] = get_args(Cause)

CACHED: frozenset[Cause] = frozenset({"hit", "neighbour"})
"""Causes of columns that were in some host's cache, so that no origin was asked for them."""


def missed_bytes(cause_bytes: Mapping[str, int]) -> int:
    """Return the decoded bytes of the columns that were read at the origin.

    >>> missed_bytes({"hit": 5, "neighbour": 3, "miss": 2})
    2
    """
    return sum(nbytes for cause, nbytes in cause_bytes.items() if cause not in CACHED)


@dataclass(slots=True)
class DerivedUse:
    """How often a derived column was read and computed in a chunk, and what that took.

    ``read``, ``nbytes``, ``read_s``: calls that were answered by what is stored, its decoded
    bytes, and how long that took.
    ``computed``, ``seconds``: calls that were computed, and how long that took: without reading
    columns, and without other derived columns that were wanted meanwhile.
    ``causes``: calls that were computed and could be stored, by why they were not yet: "new",
    "code changed" with the names of the functions that were, "file changed", "evicted" or
    "corrupt".
    ``reason``: why something was computed and not stored; ``""`` where all was.
    ``stored_bytes``: decoded bytes of what was computed and stored.
    """

    read: int = 0
    nbytes: int = 0
    computed: int = 0
    seconds: float = 0.0
    reason: str = ""
    read_s: float = 0.0
    causes: dict[str, int] = field(default_factory=dict)
    stored_bytes: int = 0

    def not_stored(self, reason: str) -> None:
        """Remember why a result is not stored; the first reason counts."""
        self.reason = self.reason or reason

    def count(self, cause: str) -> None:
        """Count why something is computed."""
        self.causes[cause] = self.causes.get(cause, 0) + 1

    def __add__(self, other: DerivedUse) -> DerivedUse:
        return DerivedUse(
            read=self.read + other.read,
            nbytes=self.nbytes + other.nbytes,
            computed=self.computed + other.computed,
            seconds=self.seconds + other.seconds,
            reason=self.reason or other.reason,
            read_s=self.read_s + other.read_s,
            causes=dict(Counter(self.causes) + Counter(other.causes)),
            stored_bytes=self.stored_bytes + other.stored_bytes,
        )


@dataclass(frozen=True, slots=True)
class PlaceUse:
    """What one place of files that have several served, and how often it failed.

    ``read_bytes``: bytes that came from it.
    ``failures``: how often a reader gave it up and went on at the next place.
    ``reason``: the last failure's; ``""`` where there was none.
    """

    read_bytes: int = 0
    failures: int = 0
    reason: str = ""

    def __add__(self, other: PlaceUse) -> PlaceUse:
        return PlaceUse(
            read_bytes=self.read_bytes + other.read_bytes,
            failures=self.failures + other.failures,
            reason=other.reason or self.reason,
        )


def place_uses(*uses: Mapping[str, PlaceUse]) -> dict[str, PlaceUse]:
    """Return what places were used for, all counts together."""
    found: dict[str, PlaceUse] = {}
    for counted in uses:
        for place, use in counted.items():
            found[place] = found.get(place, PlaceUse()) + use
    return found


@dataclass(slots=True)
class ReadLog:
    """Counts of one chunk's reading; one per chunk, not shared by threads.

    ``causes``: columns touched by cause, each once. Of a column that lies in several segments,
    only some of which were in the cache, it is that of the miss.
    ``requested_bytes``, ``used_bytes``: bytes asked of the origin, each time they were; and those
    of the baskets wanted, without gaps, metadata and what was fetched in vain.
    ``derived_columns``: names under which derived columns are stored that were wanted.
    ``places``: what was read and failed at each place of a file that has several.
    ``neighbour_bytes``, ``neighbour_s``: bytes that came from other hosts' caches, as they are
    stored there, and seconds of waiting for them and checking them.
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
    derived: dict[str, DerivedUse] = field(default_factory=dict)
    derived_columns: set[str] = field(default_factory=set)
    places: dict[str, PlaceUse] = field(default_factory=dict)
    neighbour_bytes: int = 0
    neighbour_s: float = 0.0

    @property
    def loading_s(self) -> float:
        """Seconds of waiting for bytes and of decoding them."""
        return self.read_s + self.decode_s + self.neighbour_s

    def count(self, column: str, parts: Mapping[Cause, int]) -> None:
        """Count a column.

        ``parts``: decoded bytes of the chunk's entries, by cause.
        """
        chosen: Cause = "hit"
        for cause, nbytes in parts.items():
            self.cause_bytes[cause] += nbytes
            if cause == "hit":
                self.cache_bytes += nbytes
            elif chosen == "hit" or nbytes > parts[chosen]:
                chosen = cause
        self.columns.add(column)
        self.causes[chosen] += 1


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """What one chunk cost, and where its bytes came from.

    ``dataset``, ``path``, ``uuid``, ``tree``, ``start``, ``stop``, ``segment``: which chunk:
    entries ``start`` to ``stop`` of a tree, and the first entry of the segment in which it begins.
    ``owner``: the host that placement had chosen; ``""`` where nothing was placed.
    ``causes``, ``cause_bytes``: columns touched, each once, and the decoded bytes of the chunk's
    entries, by cause.
    ``columns``: number of columns touched; the sum of ``causes``.
    ``requested_bytes``, ``used_bytes``: bytes asked of the origin, and those of the baskets
    wanted; see :class:`ReadLog`.
    ``derived``: by the function's name, what derived columns took.
    ``functions``: seconds of ``process_s`` in functions of the user's own, as far as looks fifty
    times a second tell: those within included, columns and derived columns not; of the longest.
    ``cpu_s``: seconds of a processor that the chunk's own thread had; of ``took_s``, the rest is
    waiting: for bytes, for threads that decode, for a processor that others use.
    ``outcome``: "reused" where its result was stored by an earlier run, so that nothing was read
    and nothing computed.
    ``first``: whether its process had run no chunk of this processor before; such a chunk pays
    for imports.
    ``places``: what was read and failed at each place of a file that has several.
    ``neighbour_bytes``, ``neighbour_s``: see :class:`ReadLog`.
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
    open_s: float = 0.0
    read_s: float = 0.0
    decode_s: float = 0.0
    process_s: float = 0.0
    causes: dict[str, int] = field(default_factory=dict)
    cause_bytes: dict[str, int] = field(default_factory=dict)
    cache_bytes: int = 0
    origin_bytes: int = 0
    columns: int = 0
    requested_bytes: int = 0
    used_bytes: int = 0
    derived: dict[str, DerivedUse] = field(default_factory=dict)
    functions: dict[str, float] = field(default_factory=dict)
    outcome: Literal["done", "reused"] = "done"
    first: bool = False
    cpu_s: float = 0.0
    places: dict[str, PlaceUse] = field(default_factory=dict)
    neighbour_bytes: int = 0
    neighbour_s: float = 0.0

    @property
    def events(self) -> int:
        """Number of events of the chunk."""
        return self.stop - self.start

    @property
    def took_s(self) -> float:
        """Seconds from its beginning to its end."""
        return self.ended - self.began

    @property
    def loading_s(self) -> float:
        """Seconds of waiting for bytes and of decoding them."""
        return self.read_s + self.decode_s + self.neighbour_s

    @property
    def computed_once_s(self) -> float:
        """Seconds of computing derived columns that are stored now, so that others read them."""
        return sum(use.seconds for use in self.derived.values() if not use.reason)

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

    ``causes``, ``cause_bytes``: columns of chunks, and their decoded bytes, by cause.
    ``skipped``: chunks whose events the result lacks, by host; ``chunks`` has them too.
    """

    chunks: int = 0
    events: int = 0
    cache_bytes: int = 0
    origin_bytes: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    cause_bytes: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def count_skipped(self, host: str) -> None:
        """Add a chunk that a host skipped."""
        self.chunks += 1
        self.skipped[host] += 1

    def count(self, record: ChunkRecord) -> None:
        """Add one chunk."""
        attributed = record.attributed()
        self.chunks += 1
        self.events += record.events
        self.cache_bytes += record.cache_bytes
        self.origin_bytes += record.origin_bytes
        self.causes.update(attributed.causes)
        self.cause_bytes.update(attributed.cause_bytes)

    def __add__(self, other: Tally) -> Tally:
        return self._with(other, 1)

    def __sub__(self, other: Tally) -> Tally:
        return self._with(other, -1)

    def _with(self, other: Tally, sign: int) -> Tally:
        def combined(mine: Counter[str], others: Counter[str]) -> Counter[str]:
            return Counter({name: mine[name] + sign * others[name] for name in {**mine, **others}})

        return Tally(
            self.chunks + sign * other.chunks,
            self.events + sign * other.events,
            self.cache_bytes + sign * other.cache_bytes,
            self.origin_bytes + sign * other.origin_bytes,
            combined(self.causes, other.causes),
            combined(self.cause_bytes, other.cause_bytes),
            combined(self.skipped, other.skipped),
        )

    @property
    def missed_bytes(self) -> int:
        """Decoded bytes of the columns that were read at the origin."""
        return missed_bytes(self.cause_bytes)

    @property
    def columns(self) -> int:
        """Columns of chunks, whatever their source."""
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
            "skipped": dict(self.skipped),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the tally that :meth:`to_dict` described."""
        counters = {name: Counter(data[name]) for name in ("causes", "cause_bytes", "skipped")}
        return cls(**{**data, **counters})


@dataclass(frozen=True, slots=True)
class MountUse:
    """What went through one NFS superblock between two snapshots.

    ``mount_points``: all places where it is mounted; they share its counters.
    ``source``: ``server:/export``.
    ``fsc``: whether it has the option ``fsc``.
    """

    mount_points: tuple[str, ...]
    source: str
    fsc: bool
    application_bytes: int
    server_bytes: int


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What one kernel has read through NFS, and kept, during a run.

    ``reads``, ``writes``: operations on FS-Cache for all mounts together; ``None`` where the
    kernel doesn't count them.
    """

    hosts: tuple[str, ...]
    mounts: tuple[MountUse, ...]
    reads: int | None = None
    writes: int | None = None
