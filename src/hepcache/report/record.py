"""The record of one run: every chunk, its host, and where its bytes came from; as JSON."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from hepcache.errors import RecordError
from hepcache.io.atomic import write_atomically
from hepcache.report.machine import machine, versions
from hepcache.report.outcomes import Coverage, MissingChunk, OverdueChunk
from hepcache.report.profile import Profile
from hepcache.telemetry import ChunkRecord, DerivedUse, KernelUse, PlaceUse

RUN_SCHEMA = "hepcache.run"
_VERSION = 1
_MOST_THREADS = 1 << 20
# Larger numbers would overflow where they are added up: bytes, and seconds since the epoch.
_MOST_COUNT = 2**53
_MOST_S = 1e11

_T = TypeVar("_T")
_Reader: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class RunData:
    """What one run did; :class:`hepcache.report.RunRecord` describes the fields."""

    run: str
    name: str
    began: float
    wall_s: float
    hosts: Mapping[str, int]
    chunks: Sequence[ChunkRecord]
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=versions)
    machine: Mapping[str, Any] = field(default_factory=machine)
    skipped: Sequence[MissingChunk] = ()
    overdue: Sequence[OverdueChunk] = ()
    columns: Sequence[str] = ()
    stored_bytes: int = 0
    stored_raw_bytes: int = 0
    unkept_bytes: int = 0
    kernels: Sequence[KernelUse] = ()
    first_chunk_s: float | None = None
    failed: Sequence[MissingChunk] = ()
    not_stored: Mapping[str, int] = field(default_factory=dict)
    uncached: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, PlaceUse] = field(default_factory=dict)

    @property
    def missing(self) -> list[MissingChunk]:
        """Chunks and files whose events the result lacks: those that failed come first."""
        return [*self.failed, *self.skipped]

    @property
    def complete(self) -> bool:
        """Whether the result has every event of the fileset."""
        return not self.missing

    def coverage(self) -> dict[str, Coverage]:
        """Return of each dataset how many of its events are in the result."""
        found: dict[str, Coverage] = {}
        for chunk in self.chunks:
            known = found.get(chunk.dataset, Coverage())
            found[chunk.dataset] = replace(known, events=known.events + chunk.events)
        for part in self.missing:
            known = found.get(part.dataset, Coverage())
            found[part.dataset] = replace(
                known,
                missing_events=known.missing_events + (part.events or 0),
                unopened_files=known.unopened_files + (part.events is None),
            )
        return found

    @property
    def derived(self) -> dict[str, DerivedUse]:
        """What derived columns took in all chunks, by function."""
        found: dict[str, DerivedUse] = {}
        for chunk in self.chunks:
            for function, use in chunk.derived.items():
                found[function] = found.get(function, DerivedUse()) + use
        return dict(sorted(found.items()))

    @property
    def profile(self) -> Profile:
        """Where the time of ``process`` went."""
        return Profile.of(self.chunks)

    @property
    def problems(self) -> dict[str, str]:
        """Files that could not be opened, with the reason."""
        return {part.path: part.message for part in self.missing if part.events is None}

    @property
    def lacking_events(self) -> int:
        """Number of events that the result lacks, without those of files that can't be opened."""
        return sum(part.events or 0 for part in self.missing)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready values, with its schema's name and version."""
        values = asdict(self)
        lists = ("chunks", "columns", "kernels", "overdue")
        return {
            "schema": RUN_SCHEMA,
            "version": _VERSION,
            **values,
            **{name: list(values[name]) for name in lists},
            "problems": self.problems,
            "skipped": [part.to_dict() for part in self.skipped],
            "failed": [part.to_dict() for part in self.failed],
            "complete": self.complete,
        }

    @classmethod
    def from_dict(cls, data: Any, *, path: str = "", place: str = "") -> Self:
        """Return the record that :meth:`to_dict` described.

        Raises ``RecordError``: another schema, a newer version, or a field is missing or of a
        wrong type.
        """
        try:
            if isinstance(data, Mapping):
                check_schema(data, RUN_SCHEMA, _VERSION, path)
                for name in ("versions", "machine"):
                    # The defaults are those of this machine.
                    if name not in data:
                        raise _FieldError("is missing; write it again").within(name)
                data = _with_skipped(data)
            record = _read_as(cls, data)
            for host, threads in record.hosts.items():
                if not 0 <= threads <= _MOST_THREADS:
                    error = _FieldError(f"expected threads, found {threads}")
                    raise error.within(host).within("hosts")
        except _FieldError as error:
            raise RecordError(path, str(error.within(place) if place else error)) from None
        return record

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the record as JSON, atomically; ``.json.gz`` is compressed."""
        return write_json(path, self.to_dict())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a record that :meth:`write` wrote.

        Raises ``RecordError``: the file holds no record of this version.
        """
        return cls.from_dict(read_json(path), path=os.fspath(path))


def _with_skipped(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with what was skipped as it is described today.

    The oldest ones name only files, and those of some releases a reason.
    """
    problems, skipped = data.get("problems"), data.get("skipped")
    if isinstance(skipped, list):
        if not any(isinstance(part, Mapping) and "reason" in part for part in skipped):
            return data
        renamed = [
            {"message": part.get("reason"), **part} if isinstance(part, Mapping) else part
            for part in skipped
        ]
        return {**data, "skipped": renamed}
    if not isinstance(problems, Mapping):
        return data
    unknown = {"dataset": "", "tree": "", "start": None, "stop": None}
    return {
        **data,
        "skipped": [{**unknown, "path": path, "message": why} for path, why in problems.items()],
    }


def write_json(path: str | os.PathLike[str], value: object) -> Path:
    """Write JSON atomically; compressed when the name ends in ``.gz``."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)
    data = (text + "\n").encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, compresslevel=6, mtime=0)
    return write_atomically(path, data)


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write_json` wrote.

    Raises ``RecordError``: the file holds no JSON object.
    Raises ``OSError``: it can't be opened.
    """
    data = Path(path).read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        value = json.loads(data)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise RecordError(os.fspath(path), f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise RecordError(os.fspath(path), f"expected a JSON object, found {type(value).__name__}")
    return value


def _plain(value: Any) -> Any:
    """Return numpy's scalars as Python's; anything else has no place in a record."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


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


class _FieldError(ValueError):
    """A value that is missing or of a wrong type."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.place, self.problem = "", problem

    def within(self, place: str) -> _FieldError:
        """Return itself, with the name of what holds the value put before its place."""
        dot = "." if self.place and not self.place.startswith("[") else ""
        self.place = f"{place}{dot}{self.place}"
        return self

    def __str__(self) -> str:
        return f"field {self.place!r} {self.problem}"


def _read_as(kind: type[_T], value: Any) -> _T:
    """Return JSON values as a dataclass, whose fields may be dataclasses too.

    A field that has a default may be missing; values without a field are passed over.

    Raises ``_FieldError``: a field is missing or of a wrong type.
    """
    found: _T = _reader(cast("Hashable", kind))(value)
    return found


@cache
def _reader(kind: Any) -> _Reader:
    """Return a function that checks and converts values of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin is Literal:
        return _one_of(arguments)
    if origin in (Union, UnionType):
        (inner,) = set(arguments) - {NoneType}
        read = _reader(inner)
        return lambda value: None if value is None else read(value)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader(arguments[1]))
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(_reader(arguments[0]), tuple if origin is tuple else list)
    if is_dataclass(kind):
        return _dataclass(kind)
    return _PLAIN[kind]


def _one_of(words: Sequence[str]) -> _Reader:
    def reader(value: Any) -> str:
        if value in words:
            return str(value)
        raise _wrong(" or ".join(words), value)

    return reader


def _mapping(read: _Reader) -> _Reader:
    def reader(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong("names with values", value)
        return {name: _read_within(name, read, inner) for name, inner in value.items()}

    return reader


def _sequence(read: _Reader, kind: type) -> _Reader:
    def reader(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong("a list", value)
        return kind(_read_within(f"[{n}]", read, inner) for n, inner in enumerate(value))

    return reader


def _dataclass(kind: Any) -> _Reader:
    hints = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    optional = {
        field.name
        for field in fields(kind)
        if field.default is not MISSING or field.default_factory is not MISSING
    }

    def reader(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong("names with values", value)
        for name in readers:
            if name not in value and name not in optional:
                raise _FieldError("is missing; write it again").within(name)
        return kind(
            **{
                name: _read_within(name, read, value[name])
                for name, read in readers.items()
                if name in value
            }
        )

    return reader


def _read_within(place: str, read: _Reader, value: Any) -> Any:
    try:
        return read(value)
    except _FieldError as error:
        raise error.within(place) from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _wrong("a text", value)


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST_COUNT:
        return value
    raise _wrong("a whole number", value)


def _number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_S:
        return float(value)
    raise _wrong("a number", value)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong("true or false", value)


_PLAIN: dict[Any, _Reader] = {str: _text, int: _whole, float: _number, bool: _truth}


def _wrong(expected: str, value: Any) -> _FieldError:
    text = repr(value)
    return _FieldError(
        f"has the wrong type: expected {expected}, found {text[:60]}{'...' * (len(text) > 60)}"
    )
