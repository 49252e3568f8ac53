"""The catalogue: each file is opened once, ever, and looked at cheaply after that."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import filter as matching
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from hepcache.catalogue.database import (
    PATIENCE_S,
    Database,
    below,
    checksum,
    decoded,
    encoded,
    storable,
)
from hepcache.credentials import without_credentials
from hepcache.display import track
from hepcache.errors import BadFileError, CatalogueError, ConfigurationError
from hepcache.fileset.model import FileRecord, FileSpec
from hepcache.fileset.replicas import places_of
from hepcache.formats.registry import column_names, examine, freshness_of
from hepcache.io.processes import in_processes
from hepcache.io.replicas import (
    PLACE_PATIENCE_S,
    all_failed,
    in_order,
    note_failure,
    other_content,
    reason_of,
    resting,
)
from hepcache.io.transport import is_url, location
from hepcache.io.validator import Freshness, storage_options
from hepcache.settings import settings

# Looking only waits for a server, so it takes many threads to keep one busy.
_LOOKERS = 32
# Opening a file is nine tenths Python, so threads only hide the waiting: two
# for a file server, more for a server far away. Processes share the work, but
# take longer to start than some NanoAOD files take to open.
_OPENERS_LOCAL, _OPENERS_REMOTE = 2, 16
_WORTH_PROCESSES = 64
_BATCH = 8  # files that a process opens at a time
_COLUMN_NAMES = "column-names"
# New facts are written this often, so that an interrupted survey is not lost.
_WRITE_S = 1.0


class Target(NamedTuple):
    """One tree of one file.

    ``tree``: the tree's name as asked for; empty if not given.
    """

    path: str
    tree: str


class _AtRestError(OSError):
    """A place failed a moment ago, and was not asked."""


def look_at(
    paths: Sequence[str], options: Mapping[str, Any], replicated: Collection[str] = ()
) -> Iterator[tuple[str, Freshness | BadFileError]]:
    """Ask for the state of files, many at a time.

    ``options``: options for ``uproot.open``, some of which concern the connection.
    ``replicated``: those that are places of files which lie at others, too.
    It yields path, and its state or why it can't be had; in order.
    """
    passed = storage_options(options)

    def look_at_one(path: str) -> Freshness | BadFileError:
        if path not in replicated:
            try:
                return freshness_of(path, passed)
            except BadFileError as error:
                return error
        # Its server may have failed a moment ago, for another file.
        if reason := resting(path):
            return BadFileError({without_credentials(path): reason}, _AtRestError)
        try:
            return freshness_of(path, passed, patience_s=PLACE_PATIENCE_S)
        except BadFileError as error:
            note_failure(path, error)
            return error

    with ThreadPoolExecutor(_LOOKERS, "hepcache-look") as pool:
        yield from zip(paths, pool.map(look_at_one, paths), strict=True)


Opened: TypeAlias = tuple[FileRecord, Freshness] | BadFileError
"""What a file holds, and its state; or why it can't be opened."""
Opener: TypeAlias = Callable[
    [Sequence[Target], Mapping[str, Any]], Iterator[tuple[Target, Opened]]
]
"""Opens files with options for ``uproot.open``, and yields each with what came of it."""


def open_all(
    targets: Sequence[Target], options: Mapping[str, Any], *, jobs: int | None = None
) -> Iterator[tuple[Target, Opened]]:
    """Open files, several at a time.

    ``options``: options for ``uproot.open``.
    ``jobs``: how many at a time; :func:`openers` says it if not given.
    """
    pool = ThreadPoolExecutor(jobs or openers(target.path for target in targets))
    futures: dict[Future[Opened], Target] = {
        pool.submit(open_one, target, dict(options)): target for target in targets
    }
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def openers(paths: Iterable[str]) -> int:
    """Return how many files are opened at a time: two, or sixteen at remote servers."""
    return _OPENERS_REMOTE if any(map(is_url, paths)) else _OPENERS_LOCAL


def open_one(target: Target, options: Mapping[str, Any]) -> Opened:
    """Return a target's record, or why there is none."""
    try:
        return examine(target.path, target.tree or None, options)
    except BadFileError as error:
        return error


def open_batch(targets: Sequence[Target], options: Mapping[str, Any]) -> list[Opened]:
    """Open files one after the other."""
    return [open_one(target, options) for target in targets]


def open_in_processes(
    targets: Sequence[Target], options: Mapping[str, Any], *, jobs: int | None = None
) -> Iterator[tuple[Target, Opened]]:
    """Open files in processes, which a program may start that guards its main module.

    ``jobs``: processes; as many as there are cores if not given. A few files are opened here.
    """
    if len(targets) <= _WORTH_PROCESSES:
        yield from open_all(targets, options, jobs=jobs)
        return
    batches = [targets[first : first + _BATCH] for first in range(0, len(targets), _BATCH)]
    opened = in_processes(open_batch, [(batch, dict(options)) for batch in batches], jobs)
    for batch, results in zip(batches, opened, strict=True):
        yield from zip(batch, results, strict=True)


_Found = dict[Target, tuple[FileRecord, Freshness]]


class Catalogue:
    """A persistent memory of files, shared by all processes that name its file.

    Raises
    ------
    CatalogueError
        The file can't be made or opened, or isn't a catalogue.

    Notes
    -----
    Any number of processes and threads may read and write at once. Nothing in
    the file is ever executed or unpickled; rows carry a checksum, and one that
    does not agree counts as unknown. A catalogue holds nothing that could not
    be found again, so it may be removed when no process uses it.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.path = None if path is None else Path(path).expanduser()
        self._database = Database(self.path, patience_s)

    @classmethod
    def in_memory(cls) -> Catalogue:
        """Begin one that lasts until it is closed, for where none can be kept."""
        return cls(None)

    @classmethod
    def from_settings(cls) -> Catalogue:
        """Open the catalogue that the settings name."""
        return cls(settings().catalogue)

    def records(
        self,
        specs: Iterable[FileSpec],
        *,
        on_bad: Literal["raise", "skip"] = "raise",
        open_files: Opener = open_all,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[list[tuple[FileSpec, FileRecord]], dict[str, str]]:
        """Return what is known of files, opening only those that are new or changed.

        ``specs``: the files, such as a :class:`Fileset`.
        ``open_files``: opens those that are new or changed.
        ``options``: options for ``uproot.open``.
        It returns each spec with its record, in the order given, without bad files.
        Raises ``BadFileError``: with ``on_bad="raise"``, naming all files that can't be analysed.
        """
        if on_bad not in ("raise", "skip"):
            raise ConfigurationError("on_bad", "raise or skip", on_bad)
        found, bad = self.survey(specs, open_files=open_files, progress=progress, options=options)
        if bad and on_bad == "raise":
            raise joined(bad) from bad[0][1].__cause__
        return found, joined(bad).problems if bad else {}

    def survey(
        self,
        specs: Iterable[FileSpec],
        *,
        open_files: Opener = open_all,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[list[tuple[FileSpec, FileRecord]], list[tuple[FileSpec, BadFileError]]]:
        """Return what is known of files, and why others can't be analysed.

        ``specs``, ``open_files``, ``progress``, ``options``: as for :meth:`records`.
        It returns each good spec with its record, and each bad one with an error about its file
        alone, both in the order given.
        """
        specs, options = list(specs), dict(options or {})
        stated: dict[Target, tuple[str, ...]] = {}
        for spec in specs:
            target = _target(spec)
            places = dict.fromkeys((*stated.get(target, ()), *places_of(spec)))
            stated[target] = tuple(places)
        found, problems = self._found(
            [target for target, places in stated.items() if not places],
            options,
            open_files,
            progress,
        )
        replicated = {target: places for target, places in stated.items() if places}
        if replicated:
            placed = self._placed(replicated, options, open_files, progress)
            found.update(placed[0])
            problems.update(placed[1])
        good = [(s, found[_target(s)]) for s in specs if _target(s) not in problems]
        return good, [(s, problems[_target(s)]) for s in specs if _target(s) in problems]

    def _found(
        self,
        targets: Sequence[Target],
        options: Mapping[str, Any],
        open_files: Opener,
        progress: bool,
        replicated: Collection[str] = (),
    ) -> tuple[dict[Target, FileRecord], dict[Target, BadFileError]]:
        """Return what is known of files at one place each, and why others can't be analysed."""
        found, outdated, problems = self._revalidated(targets, options, progress, replicated)
        new = [target for target in targets if target not in found and target not in problems]
        opened = self._remembered(open_files(new, options), outdated)
        for target, result in track(opened, len(new), "Opening", enabled=progress):
            if isinstance(result, BadFileError):
                problems[target] = result
            else:
                found[target] = result
        return found, problems

    def _placed(
        self,
        stated: Mapping[Target, tuple[str, ...]],
        options: Mapping[str, Any],
        open_files: Opener,
        progress: bool,
    ) -> tuple[dict[Target, FileRecord], dict[Target, BadFileError]]:
        """Return what is known of files that lie at several places, each by its first that serves.

        The first of its places of which anything is known says which content it is.
        """
        known = {
            target: [
                row[0]
                for row in self._stored([Target(place, target.tree) for place in places]).values()
            ]
            for target, places in stated.items()
        }
        left = {target: in_order(places) for target, places in stated.items()}
        failures: dict[Target, list[tuple[str, BadFileError]]] = {target: [] for target in stated}
        found: dict[Target, FileRecord] = {}
        for patient in (False, True):
            while pending := [target for target in stated if target not in found and left[target]]:
                tried = {target: Target(left[target].pop(0), target.tree) for target in pending}
                asked = list(dict.fromkeys(tried.values()))
                replicated = () if patient else {place.path for place in asked}
                records, problems = self._found(asked, options, open_files, progress, replicated)
                for target, place in tried.items():
                    problem = problems.get(place)
                    if problem is None:
                        problem = _unlike(target, stated, known[target], records[place])
                    if problem is not None:
                        failures[target].append((place.path, problem))
                        continue
                    others = [path for path in stated[target] if path != place.path]
                    found[target] = replace(
                        records[place],
                        path=target.path,
                        places=(place.path, *others),
                        failures=_reasons(failures[target]),
                    )
            # What was not asked because its server failed of late may be the last hope.
            for target in stated:
                left[target] = [
                    path for path, error in failures[target] if error.kind is _AtRestError
                ]
                if target not in found:
                    failures[target] = [
                        failure for failure in failures[target] if failure[0] not in left[target]
                    ]
        return found, {
            target: _none_left(target, failures[target])
            for target in stated
            if target not in found
        }

    def known(self) -> Iterator[FileRecord]:
        """Yield every record there is, sorted by path, without looking at the files."""
        rows = self._database.execute("SELECT * FROM files ORDER BY location, tree")
        for row in rows:
            fact = decoded(*row)
            if fact is not None:
                yield fact[0]

    def forget(self, paths: Iterable[str] | None = None) -> int:
        """Drop what is known of files, or of all files.

        ``paths``: files, directories (all below them) or globs; ``None`` for everything.
        """
        if paths is None:
            return self._database.change("DELETE FROM files", [()])
        dropped = 0
        for path in paths:
            place = _key(location(path)).rstrip("/")
            dropped += self._database.change(
                "DELETE FROM files WHERE location = ? OR location GLOB ? OR location GLOB ?",
                [(place, place, below(place))],
            )
        return dropped

    def blob_get(self, kind: str, key: str) -> bytes | None:
        """Return small metadata that was kept with :meth:`blob_put`, or ``None``."""
        rows = self._database.execute(
            "SELECT data, digest FROM blobs WHERE kind=? AND key=?", (kind, key)
        )
        for data, digest in rows:
            if checksum(kind, key, data) == digest:
                return bytes(data)
            self._database.examine()
        return None

    def blob_put(self, kind: str, key: str, data: bytes, *, most: int | None = None) -> None:
        """Keep small metadata, such as what belongs to one branch-list fingerprint."""
        digest = checksum(kind, key, data)
        self._database.change(
            "INSERT OR REPLACE INTO blobs VALUES (?, ?, ?, ?)", [(kind, key, data, digest)]
        )
        if most is not None:
            # What is written, also in place of another, gets the highest rowid.
            self._database.change(
                "DELETE FROM blobs WHERE kind=? AND rowid NOT IN "
                "(SELECT rowid FROM blobs WHERE kind=? ORDER BY rowid DESC LIMIT ?)",
                [(kind, kind, most)],
            )

    def close(self) -> None:
        """Close the file; safe to call again."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Catalogue], tuple[Path | None]]:
        return Catalogue, (self.path,)

    def __repr__(self) -> str:
        return f"Catalogue({str(self.path or ':memory:')!r})"

    def _revalidated(
        self,
        targets: Sequence[Target],
        options: Mapping[str, Any],
        progress: bool,
        replicated: Collection[str] = (),
    ) -> tuple[dict[Target, FileRecord], dict[Target, FileRecord], dict[Target, BadFileError]]:
        """Return records that still hold, those that may not, and files that can't be seen."""
        stored = self._stored(targets)
        # New places are looked at, too: what can't be seen need not be opened.
        paths = list(
            dict.fromkeys(
                target.path for target in targets if target in stored or target.path in replicated
            )
        )
        looked = look_at(paths, options, replicated)
        states = dict(track(looked, len(paths), "Looking at", enabled=progress))
        found: dict[Target, FileRecord] = {}
        outdated: dict[Target, FileRecord] = {}
        problems: dict[Target, BadFileError] = {}
        for target in targets:
            state = states.get(target.path)
            if isinstance(state, BadFileError):
                problems[target] = state
        for target, (record, settled) in stored.items():
            state = states[target.path]
            if isinstance(state, BadFileError):
                continue
            if settled and state.validator == record.validator:
                found[target] = record
            else:
                outdated[target] = record
        return found, outdated, problems

    def _stored(self, targets: Sequence[Target]) -> dict[Target, tuple[FileRecord, bool]]:
        out = {}
        damaged = False
        for target in targets:
            query = "SELECT facts, digest FROM files WHERE location=? AND tree=?"
            key = _key(target.path), target.tree
            for row in self._database.execute(query, key):
                fact = decoded(*key, *row)
                if fact is not None:
                    out[target] = replace(fact[0], path=target.path), fact[1]
                damaged |= fact is None
        if damaged:
            self._database.examine()
        return out

    def _remembered(
        self, opened: Iterable[tuple[Target, Opened]], outdated: Mapping[Target, FileRecord]
    ) -> Iterator[tuple[Target, FileRecord | BadFileError]]:
        """Pass results on and write them down, also those of a survey that is interrupted."""
        unsaved: _Found = {}
        saved, works = time.monotonic(), True
        try:
            for target, result in opened:
                if isinstance(result, BadFileError):
                    yield target, result
                    continue
                record, fresh = _succeeding(result[0], outdated.get(target)), result[1]
                unsaved[target] = record, fresh
                if works and time.monotonic() - saved > _WRITE_S:
                    works = self._write(unsaved)
                    unsaved, saved = {}, time.monotonic()
                yield target, record
        finally:
            if works:
                self._write(unsaved)

    def _write(self, found: _Found) -> bool:
        """Write facts down; tell whether that is worth trying again in this survey."""
        rows = [
            encoded(_key(target.path), target.tree, _public(record), fresh.settled)
            for target, (record, fresh) in found.items()
        ]
        if not rows:
            return True
        try:
            self._database.change("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
        except CatalogueError as error:
            # The facts are at hand, so the run goes on; they are found again next time.
            warnings.warn(f"not remembered: {error}", UserWarning, stacklevel=3)
            return False
        return True


def _succeeding(record: FileRecord, before: FileRecord | None) -> FileRecord:
    """Return a record that names the content which its path held before."""
    if before is None:
        return record
    if (before.uuid, before.tag) == (record.uuid, record.tag):
        return replace(record, replaces=before.replaces)
    return replace(record, replaces=f"{before.uuid}-{before.tag}")


def joined(bad: Sequence[tuple[FileSpec, BadFileError]]) -> BadFileError:
    """Return one error that names several bad files, of the type of the first one's."""
    problems: dict[str, str] = {}
    datasets: dict[str, list[str]] = {}
    for spec, error in bad:
        path = without_credentials(spec.path)
        problems[path] = next(iter(error.problems.values()))
        datasets.setdefault(path, []).append(spec.dataset)
    names = {path: tuple(dict.fromkeys(found)) for path, found in datasets.items()}
    return BadFileError(problems, bad[0][1].kind, names)


def _content(record: FileRecord) -> tuple[str, str]:
    return record.uuid, record.tag


def _unlike(
    target: Target,
    stated: Mapping[Target, Sequence[str]],
    known: Sequence[FileRecord],
    record: FileRecord,
) -> BadFileError | None:
    """Return why a place is not used: it has another content than those before it.

    ``known``: what is known of the file's places, in their order. What the first of all has now is
    the file, whatever it was before.
    """
    if not known or record.path == stated[target][0]:
        return None
    problem = other_content(_content(known[0]), _content(record))
    return BadFileError({without_credentials(record.path): problem}) if problem else None


def _reasons(failures: Sequence[tuple[str, BadFileError]]) -> tuple[tuple[str, str], ...]:
    """Return the places that were asked in vain, each with the reason."""
    return tuple(
        (path, reason_of(error)) for path, error in failures if error.kind is not _AtRestError
    )


def _none_left(target: Target, failures: Sequence[tuple[str, BadFileError]]) -> BadFileError:
    """Return one error about a file that can't be analysed at any of its places."""
    first = failures[0][1]
    if len(failures) == 1:
        (reason,) = first.problems.values()
        reason = f"{without_credentials(failures[0][0])}: {reason}"
    else:
        reason = all_failed(_reasons(failures))
    error = BadFileError({without_credentials(target.path): reason}, first.kind)
    error.__cause__ = first
    return error


def _key(path: str) -> str:
    # A token may be another one tomorrow, and must not be stored.
    return storable(without_credentials(path))


def _public(record: FileRecord) -> FileRecord:
    return replace(record, path=without_credentials(record.path))


def _target(spec: FileSpec) -> Target:
    # An empty name leads to the working directory, and is to be refused for what it is.
    place = location(spec.path) if spec.path.strip() else spec.path
    return Target(place, spec.tree or "")


def columns_of(catalogue: Catalogue, records: Iterable[FileRecord]) -> list[str]:
    """Return the names of the columns of any of some files, sorted.

    ``catalogue``: where the names are kept for every branch list, so that one file of each is
    opened only the first time.
    Raises ``OriginError``: a file of a new branch list can't be read.
    """
    one_of_each = {record.fingerprint: record for record in records}
    return sorted({name for record in one_of_each.values() for name in _names(catalogue, record)})


def _names(catalogue: Catalogue, record: FileRecord) -> list[str]:
    kept = catalogue.blob_get(_COLUMN_NAMES, record.fingerprint)
    if kept is not None:
        return [str(name) for name in json.loads(kept)]
    names = column_names(record)
    catalogue.blob_put(_COLUMN_NAMES, record.fingerprint, json.dumps(names).encode())
    return names


def expand(patterns: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return the columns that names and patterns mean, each once, in order.

    Raises ``ConfigurationError``: one matches nothing; the message names what comes near.

    >>> expand(["Jet_*", "nJet", "Jet_pt"], ["Jet_eta", "Jet_pt", "nJet"])
    ['Jet_eta', 'Jet_pt', 'nJet']
    """
    columns: dict[str, None] = {}
    names = set(there)
    for pattern in patterns:
        matched = [pattern] if pattern in names else matching(there, pattern)
        if not matched:
            near = get_close_matches(pattern, there, 3)
            hint = f" such as {', '.join(near)}" if near else ""
            raise ConfigurationError("columns", f"columns of the files{hint}", pattern)
        columns.update(dict.fromkeys(matched))
    return list(columns)
