"""How long chunks of a kind of work took, and what they read; the next run is planned by it."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import log
from pathlib import Path
from statistics import fmean, median, pstdev
from types import CodeType, FunctionType, MethodType
from typing import Any, Protocol

from hepcache.catalogue.catalogue import Catalogue
from hepcache.placement.shares import Measured, calibrate
from hepcache.report import RunRecord
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord

_KIND = "experience"
_VERSION = 1
_MOST_SEGMENTS = 50_000
# Python itself notes __slotnames__ in a class when an instance is pickled.
_NOT_CODE = frozenset(
    {"__doc__", "__module__", "__firstlineno__", "__dict__", "__slotnames__", "__weakref__"}
)
_MOST_WORKS = 32  # every change of a processor begins another
_NEW_WEIGHT = 0.7


class Range(Protocol):
    """An entry range of a file, such as a chunk or what was recorded of one."""

    @property
    def uuid(self) -> str:
        """UUID of the file."""

    @property
    def segment(self) -> int:
        """First entry of the segment in which the range begins."""


class Blobs(Protocol):
    """Where small metadata are kept, such as the catalogue."""

    def blob_get(self, kind: str, key: str) -> bytes | None:
        """Return what was kept."""

    def blob_put(self, kind: str, key: str, data: bytes, *, most: int | None = None) -> None:
        """Keep something, and of its kind no more than the ``most`` newest."""


@dataclass
class RunHistory:
    """What is known of one kind of work: a processor with a schema.

    ``segments``: seconds per entry where the columns are, by UUID and segment.
    ``speeds``: speeds of hosts against one another; about 1.
    """

    segments: dict[str, dict[int, float]] = field(default_factory=dict)
    speeds: dict[str, float] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, blobs: Blobs, work: str) -> RunHistory:
        """Return what was saved of a kind of work; nothing where that is damaged or another's."""
        data = blobs.blob_get(_KIND, work)
        try:
            found: dict[str, Any] = json.loads(data or b"{}")
            if found.get("version") != _VERSION:
                return cls()
            segments = {
                uuid: {int(segment): float(rate) for segment, rate in rates.items()}
                for uuid, rates in found["segments"].items()
            }
            speeds = {str(host): float(speed) for host, speed in found["speeds"].items()}
            return cls(segments, speeds, [str(name) for name in found["columns"]])
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()

    def save(self, blobs: Blobs, work: str) -> None:
        """Keep it for the next run, which may be in another process."""
        content = {
            "version": _VERSION,
            "segments": self.segments,
            "speeds": self.speeds,
            "columns": self.columns,
        }
        data = json.dumps(content, separators=(",", ":")).encode()
        blobs.blob_put(_KIND, work, data, most=_MOST_WORKS)

    def seconds(self, ranges: Sequence[Range], entries: Sequence[int]) -> list[float] | None:
        """Return how long chunks are expected to take on a host of speed 1.

        ``entries``: their numbers of entries.
        It returns ``None`` when nothing at all is known.
        """
        if not self.segments:
            return None
        files = {uuid: fmean(rates.values()) for uuid, rates in self.segments.items() if rates}
        anything = median(files.values())
        return [
            self.segments.get(part.uuid, {}).get(part.segment, files.get(part.uuid, anything))
            * number
            for part, number in zip(ranges, entries, strict=True)
        ]

    def learn(self, chunks: Iterable[ChunkRecord], columns: Iterable[str]) -> None:
        """Take in what a run has recorded; chunks whose results were reused teach nothing.

        Nor does the first chunk of a process, which pays for imports, where there are others.
        """
        done = [chunk for chunk in chunks if chunk.events > 0 and chunk.outcome == "done"]
        rates: defaultdict[tuple[str, int], list[tuple[str, float]]] = defaultdict(list)
        for chunk in [chunk for chunk in done if not chunk.first] or done:
            rate = max(_hot_s(chunk), 1e-6) / chunk.events
            rates[chunk.uuid, chunk.segment].append((chunk.host, rate))
        if not rates:
            return
        self.columns = sorted(columns)
        self._learn_speeds(rates)
        for (uuid, segment), found in rates.items():
            new = fmean(rate * self.speeds.get(host, 1.0) for host, rate in found)
            known = self.segments.setdefault(uuid, {})
            old = known.get(segment, new)
            known[segment] = (1 - _NEW_WEIGHT) * old + _NEW_WEIGHT * new
        while sum(map(len, self.segments.values())) > _MOST_SEGMENTS and len(self.segments) > 1:
            del self.segments[next(iter(self.segments))]

    def _learn_speeds(self, rates: dict[tuple[str, int], list[tuple[str, float]]]) -> None:
        """Compare hosts by what each took for the files that several of them had parts of."""
        by_file: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (uuid, _), found in rates.items():
            for host, rate in found:
                by_file[uuid][host].append(rate)
        ratios: defaultdict[str, list[float]] = defaultdict(list)
        for hosts in by_file.values():
            if len(hosts) > 1:
                mean = fmean(median(of_host) for of_host in hosts.values())
                for host, of_host in hosts.items():
                    ratios[host] += [mean / rate for rate in of_host]
        measured = {
            host: Measured(median(found), len(found), pstdev(map(log, found)))
            for host, found in ratios.items()
        }
        present = {host: self.speeds.get(host, 1.0) for host in measured}
        changed = calibrate(present, measured)
        self.speeds |= {host: new for host, new in changed.items() if new != present[host]}


def work_name(processor: Any, schema: Any) -> str:
    """Return the name of a kind of work: what its code is, not what it is called."""
    seen: set[int] = set()  # functions: one inside another may hold itself

    def pieces(value: Any) -> Iterator[str]:
        parts: Iterable[Any] = ()
        if isinstance(value, FunctionType):
            parts = () if id(value) in seen else _parts_of_code(value)
            seen.add(id(value))
        elif isinstance(value, tuple | list):
            parts = value
        elif isinstance(value, set | frozenset):
            parts = sorted(value, key=repr)
        elif isinstance(value, dict):
            parts = sorted(value.items(), key=lambda item: str(item[0]))
        elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
            yield repr(value)
        else:
            parts = _parts_of_code(value)
        yield f"{type(value).__qualname__}("
        for part in parts:
            yield from pieces(part)
        yield ")"

    if isinstance(processor, FunctionType | MethodType | partial):
        work: Any = processor
    else:
        kind = processor if isinstance(processor, type) else type(processor)
        work = [
            {name: made for name, made in vars(base).items() if name not in _NOT_CODE}
            for base in kind.__mro__
        ]
    digest = hashlib.sha256()
    with suppress(RecursionError):  # a constant that holds itself; what came before it counts
        for piece in pieces((work, getattr(schema, "__qualname__", ""))):
            digest.update(f"{piece}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()


def _parts_of_code(value: Any) -> tuple[Any, ...]:
    """Return what tells a function, or what is made of one, from another; nothing of others."""
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_varnames, value.co_consts
    if isinstance(value, FunctionType):
        return value.__code__, value.__defaults__, value.__kwdefaults__, _captured(value)
    if isinstance(value, staticmethod | classmethod | MethodType):
        return (value.__func__,)
    if isinstance(value, property):
        return (value.fget,)
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    return ()


def _captured(function: FunctionType) -> list[Any]:
    """Return the functions that one holds from where it was made, such as what it wraps."""
    held = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # nothing is in it yet
            if isinstance(value := cell.cell_contents, FunctionType | MethodType | partial):
                held.append(value)
    return held


def _hot_s(chunk: ChunkRecord) -> float:
    """Return how long a chunk takes where its columns are."""
    if chunk.origin_bytes:
        # What was opened, read and decoded now will be on the SSD the next time.
        return chunk.process_s - chunk.read_s - chunk.decode_s - chunk.computed_once_s
    return chunk.ended - chunk.began - chunk.computed_once_s


_BLOB = "last-run", "columns"


@dataclass(frozen=True, slots=True)
class LastRun:
    """What is remembered of a run.

    ``derived``: by dataset, names of the derived columns that it used, and whether the calls
    that make them are kept.
    """

    name: str
    began: float
    columns: tuple[str, ...]
    derived: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)


def note_run(
    catalogue: Catalogue, record: RunRecord, derived: Mapping[str, Mapping[str, bool]]
) -> None:
    """Remember a run; one that touched nothing is none to repeat.

    ``derived``: as :class:`LastRun` has it.
    Raises ``CatalogueError``: the catalogue can't be written.
    """
    if record.columns or derived:
        found = {
            "name": record.name,
            "began": record.began,
            "columns": list(record.columns),
            "derived": derived,
        }
        catalogue.blob_put(*_BLOB, json.dumps(found).encode())


def last_run(blobs: Blobs) -> LastRun | None:
    """Return what the user's last run touched, or ``None`` where none is remembered.

    Raises ``CatalogueError``: the catalogue can't be read.
    """
    text = blobs.blob_get(*_BLOB)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return LastRun(
            name=str(found["name"]),
            began=float(found["began"]),
            columns=tuple(map(str, found["columns"])),
            derived={
                str(dataset): {str(name): kept is True for name, kept in names.items()}
                for dataset, names in found.get("derived", {}).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # a later version's


def calls_directory() -> Path:
    """Return where the calls are kept that make the last run's derived columns."""
    catalogue = settings().catalogue
    return catalogue.with_name(f"{catalogue.stem}-calls")
