"""What is known of a file of tables before its rows are read, and how tables are written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError
from hepcache.hdf5.event_key import EventKey

Int64Array = NDArray[np.int64]

Filter = tuple[int, int, tuple[int, ...]]
"""A step of a filter pipeline: HDF5's number of it, its flags, its values."""


OWN_ATTRIBUTES = (b"hepcache.sources", b"hepcache.options")
"""Attributes of the root group that tell of the file itself: never compared, never copied."""

OPTIONS_RECORD = "hepcache.options"
"""The attribute of an output that tells how it was made, where verify must know it."""

ELSEWHERE = "elsewhere"
"""The layout of rows that lie in other files: of virtual datasets, or external."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How one dataset lies in its file."""

    layout: str  # "chunked", "contiguous", "other" if compact, or ELSEWHERE
    chunk: tuple[int, ...] = ()  # empty unless chunked
    filters: tuple[Filter, ...] = ()  # in the order of writing
    fill: bytes = b""  # one value that was never written; empty for zeros


def filter_numbers(filters: Sequence[Filter]) -> list[int]:
    """Return HDF5's numbers of filters."""
    return [number for number, _, _ in filters]


class Column(NamedTuple):
    """One dataset of the schema."""

    path: bytes  # full name, without a leading slash
    group: int  # number of its group
    type: bytes  # as HDF5 encodes it (H5Tencode)
    itemsize: int
    rank: int  # 0 for a scalar, -1 for a dataset without a value
    tail: tuple[int, ...]  # all dimensions but the first
    variable: bool  # values lie outside the dataset, as strings without a fixed length do
    storage: Storage

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.itemsize * prod(self.tail)

    @property
    def name(self) -> bytes:
        """Its name inside its group."""
        return self.path.rpartition(b"/")[2]


@dataclass(frozen=True, slots=True)
class Group:
    """One group: its full name without a leading slash, and whether it keeps creation order."""

    path: bytes
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """Groups and datasets in the file's own order; the root is the first group."""

    groups: tuple[Group, ...]
    columns: tuple[Column, ...]

    def paths(self) -> list[bytes]:
        """Return the full names of all groups, then of all datasets."""
        groups = [group.path for group in self.groups]
        return groups + [column.path for column in self.columns]

    def numbers(self) -> dict[bytes, int]:
        """Return the number of every dataset by its path."""
        return {column.path: number for number, column in enumerate(self.columns)}


class SourceFile(NamedTuple):
    """Another file that rows lie in, and whether its state is on record beside them."""

    path: str
    size: int
    mtime_ns: int
    recorded: bool


@dataclass(frozen=True, slots=True)
class FileTables:
    """One file as the survey found it.

    ``filled``, ``lengths`` and ``addresses`` have the shape ``(n_filled,)``. An address is
    where a chunk index, or contiguous data, begins: -1 if it was never written, 0 unless
    the file is ``direct``.
    """

    path: str
    size: int
    mtime_ns: int
    direct: bool  # can be read without HDF5's library
    digest: bytes  # equal for files whose schemas are known to be equal
    columns: int  # number of datasets
    filled: Int64Array  # numbers of the datasets that hold rows
    lengths: Int64Array  # their first dimensions
    addresses: Int64Array
    attributes: bytes  # equal for files whose attributes are known to be equal; none: empty
    values: Mapping[bytes, bytes]  # digests of scalar values by path
    sources: tuple[SourceFile, ...] = ()  # other files that rows lie in


def object_name(path: bytes) -> str:
    """Return an object's full name as text, even if it is no UTF-8."""
    return path.decode("utf-8", "backslashreplace")


def display_path(path: bytes) -> str:
    """Return an object's full name as messages show it."""
    return "/" + object_name(path)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How tables are written.

    Attributes
    ----------
    compression, level
        Compression of chunks, and its level. Without a level ``effort`` decides.
    effort
        Whether speed or size matters: ``"fast"``, ``"balanced"``, ``"small"``.
    chunk_rows, wide_chunk_rows
        Rows of a chunk, for datasets of one value per row and for wider ones. A
        dataset with fewer rows gets a shorter chunk. ``None`` keeps the input's.
    chunk_bytes
        Bytes of a chunk before compression, for all datasets, instead of rows.
    grows
        Factor by which appends will increase the rows of the output. Chunks keep their
        height, so without it an output that is small at first gets many small ones.
    contiguous
        Whether datasets are written without chunks, and so uncompressed.
    flat
        Whether datasets of one value per row have one dimension, whatever the inputs have.
    empty_as_scalars
        Whether datasets without rows are written as scalars, without a value of their own.
    compress_from
        Datasets of fewer bytes are not compressed.
    shuffle
        Whether bytes are ordered by significance before compression; ``None``
        does what the input does.
    memory_bytes
        Limit of the memory of all processes together.
    key, events
        Dataset that distinguishes events, and the group that lists them: ``"evt"`` and
        ``"spill"`` make a dataset ``evt.seq`` in every group. Runs, subruns, cycles and
        batches are also used, if they exist; names separated by commas, or a full
        name, stand for exactly these datasets. No key by default.
    key_groups
        Patterns of the full names of the groups that get keys; by default all groups that
        can have them. The group that lists the events always gets keys.
    counts
        Whether ``evt.seq_cnt`` is made as well: the keys of the events that have rows in the
        group, and the number of rows, shape ``(n_events_with_rows, 2)``.
    sort
        Datasets by whose first values the inputs are sorted: full names such as
        ``/rec.hdr/cycle``, or names of datasets of the group of events.
    attributes
        Whether inputs must have equal attributes, or the first one's are taken.
    copy_chunks
        Whether an input's compressed chunk that is also a chunk of the output is
        copied without recompression.

    Raises
    ------
    ConfigurationError
        A value is invalid.
    """

    compression: Literal["gzip", "zstd", "blosc", "none"] = "gzip"
    level: int | None = None
    effort: Literal["fast", "balanced", "small"] = "balanced"
    chunk_rows: int | None = 262_144
    wide_chunk_rows: int | None = 128
    chunk_bytes: int | None = None
    grows: float = 1.0
    contiguous: bool = False
    flat: bool = False
    empty_as_scalars: bool = False
    compress_from: int = 0
    shuffle: bool | None = None
    memory_bytes: int = 2 << 30
    key: str | None = None
    events: str = "spill"
    key_groups: tuple[str, ...] = ()
    counts: bool = False
    sort: tuple[str, ...] = ()
    attributes: Literal["equal", "first"] = "equal"
    copy_chunks: bool = True

    def __post_init__(self) -> None:
        choices = {
            "compression": ("gzip", "zstd", "blosc", "none"),
            "effort": ("fast", "balanced", "small"),
            "attributes": ("equal", "first"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigurationError(name, f"one of {', '.join(allowed)}", getattr(self, name))
        most = {"gzip": 9, "zstd": 22, "blosc": 9, "none": 0}[self.compression]
        if self.level is not None and not 0 <= self.level <= most:
            raise ConfigurationError("level", f"0 to {most} for {self.compression}", self.level)
        for name in ("chunk_rows", "wide_chunk_rows"):
            rows = getattr(self, name)
            if rows is not None and rows < 1:
                raise ConfigurationError(name, "1 or more", rows)
        if self.chunk_bytes is not None and self.chunk_bytes < 1:
            raise ConfigurationError("chunk_bytes", "1 or more", self.chunk_bytes)
        if not 1 <= self.grows < float("inf"):
            raise ConfigurationError("grows", "1 or more", self.grows)
        if self.memory_bytes < 64 << 20:
            raise ConfigurationError("memory_bytes", "64 MiB or more", self.memory_bytes)
        if self.compress_from < 0:
            raise ConfigurationError("compress_from", "0 or more bytes", self.compress_from)
        if self.event_key is None and (self.key_groups or self.counts):
            raise ConfigurationError("key", "the name of a dataset, such as evt", self.key)

    @property
    def event_key(self) -> EventKey | None:
        """What partition keys are made of, if there are to be any."""
        return None if self.key is None else EventKey.parse(self.key, self.events)

    @property
    def key_name(self) -> str | None:
        """Name of the dataset after which keys are called."""
        key = self.event_key
        return None if key is None else key.name

    @property
    def event_group(self) -> str:
        """Full name of the group that lists the events, without slashes around it."""
        key = self.event_key
        return self.events.strip("/") if key is None else key.group

    def record(self) -> dict[str, Any]:
        """Return what must be known to compare an output with its inputs, where it is unusual."""
        usual = TableOptions()
        names = ("events", "key_groups", "sort", "attributes", "flat", "empty_as_scalars")
        values = {name: getattr(self, name) for name in names}
        found = {name: value for name, value in values.items() if value != getattr(usual, name)}
        if self.event_key is not None and self.event_key.exact:
            found["key"] = self.key
        return found

    @property
    def key_memory_bytes(self) -> int:
        """Share of the memory that partition keys may take."""
        return self.memory_bytes // 8


Progress = Callable[[str, int, int], None]
"""Called with a phase's name, how much of it is done, and how much there is in all."""


def no_progress(_phase: str, _done: int, _total: int) -> None:
    """Report nothing."""


@dataclass(slots=True)
class Concatenated:
    """The result of writing a file.

    Attributes
    ----------
    path
        The output.
    files, groups, datasets
        Number of inputs, and of groups and datasets in the output.
    raw_bytes, stored_bytes
        Bytes of all rows written, and of the output.
    chunks, copied_chunks
        Chunks that were written, and those of them that were copied unchanged.
    resumed_chunks
        Chunks that an earlier, interrupted run had written.
    without_key
        Groups with rows that got no partition keys, because they lack the dataset.
    phases
        Seconds by phase; datasets are created while the first chunks are made.
    wall_s
        Seconds in total.
    """

    path: str
    files: int = 0
    groups: int = 0
    datasets: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    chunks: int = 0
    copied_chunks: int = 0
    resumed_chunks: int = 0
    without_key: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    _began: float = field(default_factory=time.perf_counter)

    def to_dict(self) -> dict[str, Any]:
        """Return what was written as JSON-ready values."""
        return {name: value for name, value in asdict(self).items() if not name.startswith("_")}

    def finish(self) -> None:
        """Note the output's size and the time that it took."""
        self.stored_bytes = Path(self.path).stat().st_size
        self.wall_s = time.perf_counter() - self._began

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.phases[phase] = self.phases.get(phase, 0.0) + time.perf_counter() - begin
