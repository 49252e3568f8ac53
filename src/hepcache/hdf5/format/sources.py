"""Other files that rows of a file lie in: sources of virtual datasets, and raw bytes.

HDF5 says nothing where they are not what they should be. Rows of a virtual dataset whose source
it doesn't find, or for which no more files may be open, have the fill value, and so have those
behind the end of a source that was cut; what lies behind the end of a raw file is zeros.
"""

from __future__ import annotations

import json
import os
import re
import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import h5py
from h5py import h5d, h5f, h5i, h5s

from hepcache.errors import TableFileError
from hepcache.hdf5.model import SourceFile, display_path

RECORD = "hepcache.sources"
"""The attribute of the root group that tells the state of the files that were merged."""

_MARKS = re.compile("(%%|%b)")  # of names in mappings: a percent sign, the number of a block
_VIRTUAL_PREFIX, _RAW_PREFIX = "HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"
_SPARE_FILES = 64  # for all else that a process has open

_State = tuple[int, int]
"""Size and time of change of a file."""


def record_sources(file: h5py.File, sources: Mapping[str, SourceFile]) -> None:
    """Write down, in a file that refers to others by names, what these are now."""
    states = {name: (source.size, source.mtime_ns) for name, source in sources.items()}
    file.attrs[RECORD] = json.dumps(states)


def _record(file: Any) -> dict[str, _State]:
    text = h5py.File(file).attrs.get(RECORD, "{}")
    return {name: (size, time) for name, (size, time) in json.loads(text).items()}


@dataclass(slots=True)
class _Wanted:
    """What is wanted of one other file.

    ``datasets`` are, by path, what is read of them, and where to: pairs of dataspaces.
    """

    path: str
    state: _State | None = None
    raw_bytes: int = 0
    datasets: dict[bytes, list[tuple[Any, Any]]] = field(default_factory=dict)


class Sources:
    """The files that datasets need beside their own, each looked at once.

    With ``hold`` they stay open, so that HDF5 can open them whenever it reads.
    """

    def __init__(self, *, hold: bool) -> None:
        self._hold = hold
        self._held: list[Any] = []
        self._seen: set[tuple[str, bytes]] = set()
        self._files: dict[str, SourceFile] = {}
        self._records: dict[str, dict[str, _State]] = {}

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that were found so far."""
        return tuple(self._files.values())

    def require(self, file: Any, paths: Iterable[bytes]) -> None:
        """Require the files that datasets of an open file need, if they need any.

        What is wrong with them raises ``TableFileError``, which names every one.
        """
        problems: dict[str, str] = {}
        self._require(file, paths, problems)
        _raise(_name(file), problems)

    def require_unchanged(self, path: str) -> None:
        """Require that all are still what they were when they were found."""
        _raise(path, changed_sources(self._files.values()))

    def close(self) -> None:
        """Close the files that are held open."""
        for opened in self._held:
            opened.close()
        self._held.clear()

    def _require(self, file: Any, paths: Iterable[bytes], problems: dict[str, str]) -> None:
        found: dict[str, _Wanted] = {}
        for path in paths:
            dataset = h5d.open(file, b"/" + path)
            own = _name(dataset)
            if (own, path) in self._seen:
                continue
            self._seen.add((own, path))
            creation = dataset.get_create_plist()
            if creation.get_layout() == h5d.VIRTUAL:
                self._add_virtual(dataset, creation, own, found)
            elif creation.get_layout() == h5d.CONTIGUOUS:
                _add_raw(dataset, creation, own, found)
        if self._hold:
            _allow_open_files(_name(file), len(found))
        for wanted in found.values():
            problem = self._problem(wanted, problems)
            if problem:
                problems[wanted.path] = problem

    def _add_virtual(
        self, dataset: Any, creation: Any, own: str, found: dict[str, _Wanted]
    ) -> None:
        if own not in self._records:
            self._records[own] = _record(h5i.get_file_id(dataset))
            # Among them are those that the merged files referred to.
            for name, state in self._records[own].items():
                found.setdefault(name, _Wanted(_located(own, name, _VIRTUAL_PREFIX), state))
        for number in range(creation.get_virtual_count()):
            stored = creation.get_virtual_filename(number)
            path, is_pattern = _plain_name(creation.get_virtual_dsetname(number))
            rows = creation.get_virtual_srcspace(number), creation.get_virtual_vspace(number)
            for name in _file_names(own, stored):
                if name in self._records[own]:
                    continue
                if name not in found:
                    located = own if name == "." else _located(own, name, _VIRTUAL_PREFIX)
                    found[name] = _Wanted(located)
                if not is_pattern:
                    datasets = found[name].datasets
                    datasets.setdefault(os.fsencode(path).strip(b"/"), []).append(rows)

    def _problem(self, wanted: _Wanted, problems: dict[str, str]) -> str:
        """Return what is wrong with one file; those that it needs itself go to ``problems``."""
        try:
            status = os.stat(wanted.path)  # noqa: PTH116 - a plain path
            state = status.st_size, status.st_mtime_ns
            if wanted.state not in (None, state):
                return _CHANGED
            self._files[wanted.path] = SourceFile(wanted.path, *state, wanted.state is not None)
            if wanted.raw_bytes:
                with open(wanted.path, "rb"):  # noqa: PTH123 - a plain path
                    is_short = status.st_size < wanted.raw_bytes
                return f"has no {wanted.raw_bytes} bytes" if is_short else ""
            opened = h5f.open(os.fsencode(wanted.path), h5f.ACC_RDONLY)
        except OSError as error:
            return error.strerror or str(error)
        if self._hold:
            self._held.append(opened)
        for path, selections in wanted.datasets.items():
            try:
                dataset = h5d.open(opened, b"/" + path)
            except KeyError:
                return f"has no dataset {display_path(path)}"
            if not all(_fits(dataset.shape, *selection) for selection in selections):
                return f"has other rows in {display_path(path)}"
        self._require(opened, wanted.datasets, problems)
        return ""


_CHANGED = "was changed"


def changed_sources(sources: Iterable[SourceFile]) -> dict[str, str]:
    """Return what is wrong with files that are not what they were, by path."""
    problems = {}
    for source in sources:
        try:
            status = os.stat(source.path)  # noqa: PTH116 - a plain path
        except OSError as error:
            problems[source.path] = error.strerror or str(error)
            continue
        if (status.st_size, status.st_mtime_ns) != (source.size, source.mtime_ns):
            problems[source.path] = _CHANGED
    return problems


def _raise(path: str, problems: Mapping[str, str]) -> None:
    if problems:
        listed = "\n".join(f"  {source}: {why}" for source, why in problems.items())
        raise TableFileError(
            path,
            "its rows lie in other files, which are not what they were; put them back, or "
            f"merge anew:\n{listed}",
        )


def _name(opened: Any) -> str:
    """Return the name of the file that an object lies in."""
    return os.fsdecode(h5f.get_name(opened))


def _plain_name(stored: bytes | str) -> tuple[str, bool]:
    """Return a name in a mapping as it is meant, and whether it stands for many."""
    parts = os.fsdecode(stored).split("%%")
    return "%".join(parts), any("%b" in part for part in parts)


def _file_names(own: str, stored: bytes | str) -> list[str]:
    """Return the names of the files that a mapping takes rows of.

    Of a pattern HDF5 takes as many as there are, up to the first that is not there. Those up to
    the last one that is there are wanted, and at least the first.
    """
    name, is_pattern = _plain_name(stored)
    if not is_pattern:
        return [name]
    pieces = _MARKS.split(os.fsdecode(stored))
    meant = {"%%": "%", "%b": r"(\d+)"}
    base = re.compile("".join(meant.get(piece) or re.escape(piece) for piece in pieces))
    last = 0
    for directory in {os.path.dirname(path) for path in _candidates(own, name, _VIRTUAL_PREFIX)}:  # noqa: PTH120
        with suppress(OSError):
            for there in os.listdir(directory or "."):  # noqa: PTH208
                numbers = base.fullmatch(os.path.join(os.path.dirname(name), there))  # noqa: PTH118, PTH120
                if numbers and len(set(numbers.groups())) == 1:
                    last = max(last, int(numbers[1]))
    return [
        "".join({"%%": "%", "%b": str(number)}.get(piece, piece) for piece in pieces)
        for number in range(last + 1)
    ]


def _located(own: str, name: str, variable: str) -> str:
    """Return which file HDF5 takes for a name in another file; the first, if none is there."""
    candidates = list(_candidates(own, name, variable))
    return next((path for path in candidates if os.path.exists(path)), candidates[0])  # noqa: PTH110


def _candidates(own: str, name: str, variable: str) -> Iterator[str]:
    """Yield where HDF5 looks for a file (H5Pset_virtual, H5Pset_external)."""
    beside = os.path.dirname(os.path.abspath(own))  # noqa: PTH100, PTH120 - as HDF5 does
    if variable == _RAW_PREFIX:
        prefix = os.environ.get(variable, "").replace("${ORIGIN}", beside)
        yield os.path.join(prefix, name)  # noqa: PTH118
        return
    if os.path.isabs(name):  # noqa: PTH117
        yield name
        name = os.path.basename(name)  # noqa: PTH119
    prefixes = [prefix for prefix in os.environ.get(variable, "").split(":") if prefix]
    real = os.path.dirname(os.path.realpath(own))  # noqa: PTH120
    for directory in (*prefixes, beside, "", real):
        yield os.path.join(directory.replace("${ORIGIN}", beside), name)  # noqa: PTH118


def _add_raw(dataset: Any, creation: Any, own: str, found: dict[str, _Wanted]) -> None:
    left = prod(dataset.shape) * dataset.get_type().get_size()
    for number in range(creation.get_external_count()):
        stored, offset, size = creation.get_external(number)
        name = os.fsdecode(stored)
        wanted = found.setdefault(f"raw {name}", _Wanted(_located(own, name, _RAW_PREFIX)))
        wanted.raw_bytes = max(wanted.raw_bytes, offset + min(left, size), 1)
        left -= min(left, size)


def _fits(shape: tuple[int, ...], rows: Any, into: Any) -> bool:
    """Tell whether a source still has the rows that are taken of it."""
    if rows.get_select_type() == h5s.SEL_NONE:
        return True
    if rows.get_select_type() == h5s.SEL_ALL:
        try:
            points = int(into.get_select_npoints())
        except (ValueError, RuntimeError):
            points = prod(into.get_regular_hyperslab()[3])  # one block of as many as there are
        return prod(shape) == points
    try:
        _, last = rows.get_select_bounds()
    except (ValueError, RuntimeError):
        return len(shape) == len(rows.shape)  # of any length, as is what is made of them
    return len(last) == len(shape) and all(n < size for n, size in zip(last, shape, strict=True))


def _allow_open_files(path: str, count: int) -> None:
    """Let this process open so many more files, as far as the system does."""
    there = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    needed = there + count + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise TableFileError(
            path,
            f"its rows lie in {count} other files, and a process may open {hard}; raise that "
            "limit (ulimit -Hn), or join fewer at a time",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
