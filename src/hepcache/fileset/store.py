"""The catalogue: each file is opened once, ever, and looked at cheaply after that."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from hepcache.errors import BadFileError, CatalogueError, ConfigurationError
from hepcache.fileset.freshness import Freshness
from hepcache.fileset.model import FileRecord, FileSpec
from hepcache.fileset.paths import location, without_credentials
from hepcache.fileset.progress import track
from hepcache.fileset.rows import Database, below, checksum, decoded, encoded, storable
from hepcache.fileset.survey import Target, look_at, open_all
from hepcache.settings import settings

__all__ = ["Catalogue"]

# New facts are written this often, so that an interrupted survey is not lost.
_WRITE_S = 1.0
_Found = dict[Target, tuple[FileRecord, Freshness]]


class Catalogue:
    """A persistent memory of files, shared by all processes that name its file.

    Parameters
    ----------
    path
        The SQLite file; made when missing, for this user alone.

    Raises
    ------
    CatalogueError
        The file can't be made or opened, or isn't a catalogue.

    Notes
    -----
    Any number of processes and threads may read and write at once. Nothing in
    the file is ever executed or unpickled; rows carry a checksum, and one that
    does not agree counts as unknown. A catalogue holds nothing that could not
    be found again, so it may be removed when nobody uses it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()
        self._database = Database(self.path)

    @classmethod
    def from_settings(cls) -> Catalogue:
        """Open the catalogue that the settings name."""
        return cls(settings().catalogue)

    def records(
        self,
        specs: Iterable[FileSpec],
        *,
        on_bad: Literal["raise", "skip"] = "raise",
        on_empty: Literal["keep", "bad"] = "keep",
        jobs: int | None = None,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
        executor: Executor | None = None,
    ) -> tuple[list[tuple[FileSpec, FileRecord]], dict[str, str]]:
        """Return what is known of files, opening only those that are new or changed.

        Parameters
        ----------
        specs
            The files, such as a :class:`Fileset`.
        on_bad
            Whether files that can't be analysed raise one error that names
            them all, or are left out and returned as problems.
        on_empty
            Whether a tree without entries is fine, or is such a problem.
        jobs
            Files opened at the same time; as suits this machine if not given.
        progress
            Show a bar when this takes more than a moment.
        options
            Options for ``uproot.open``.
        executor
            Opens files elsewhere, such as Dask's ``client.get_executor()`` on
            workers that are near to them.

        Returns
        -------
        list of tuple
            Each spec with its record, in the order given, without bad files.
        dict
            Path to reason, for the bad files.

        Raises
        ------
        BadFileError
            With ``on_bad="raise"``, naming all files that can't be analysed.
        """
        _check_choice("on_bad", on_bad, ("raise", "skip"))
        _check_choice("on_empty", on_empty, ("keep", "bad"))
        specs, options = list(specs), dict(options or {})
        targets = list(dict.fromkeys(_target(spec) for spec in specs))
        found, outdated, problems = self._revalidated(targets, options, progress)
        new = [target for target in targets if target not in found and target not in problems]
        opened = self._remembered(open_all(new, options, jobs=jobs, executor=executor), outdated)
        for target, result in track(opened, len(new), "Opening", enabled=progress):
            if isinstance(result, str):
                problems[target] = result
            else:
                found[target] = result
        if on_empty == "bad":
            empty = [target for target in found if found[target].entries == 0]
            problems |= {t: f"tree {found[t].tree} has no entries" for t in empty}
        bad = {
            without_credentials(s.path): problems[_target(s)]
            for s in specs
            if _target(s) in problems
        }
        if bad and on_bad == "raise":
            raise BadFileError(bad)
        good = [(s, found[_target(s)]) for s in specs if _target(s) not in problems]
        return good, bad

    def known(self) -> Iterator[FileRecord]:
        """Yield every record there is, sorted by path, without looking at the files."""
        rows = self._database.execute("SELECT facts, digest FROM files ORDER BY location, tree")
        for row in rows:
            fact = decoded(*row)
            if fact is not None:
                yield fact[0]

    def forget(self, paths: Iterable[str] | None = None) -> int:
        """Drop what is known of files, or of all files.

        Parameters
        ----------
        paths
            Files, directories (all below them) or globs; ``None`` for everything.

        Returns
        -------
        int
            Number of records dropped.
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
            if checksum(data) == digest:
                return bytes(data)
        return None

    def blob_put(self, kind: str, key: str, data: bytes) -> None:
        """Keep small metadata, such as what belongs to one branch-list fingerprint."""
        digest = checksum(data)
        self._database.change(
            "INSERT OR REPLACE INTO blobs VALUES (?, ?, ?, ?)", [(kind, key, data, digest)]
        )

    def close(self) -> None:
        """Close the file; safe to call again."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Catalogue], tuple[Path]]:
        return Catalogue, (self.path,)

    def __repr__(self) -> str:
        return f"Catalogue({str(self.path)!r})"

    def _revalidated(
        self, targets: Sequence[Target], options: Mapping[str, Any], progress: bool
    ) -> tuple[dict[Target, FileRecord], dict[Target, FileRecord], dict[Target, str]]:
        """Return records that still hold, those that may not, and files that can't be seen."""
        stored = self._stored(targets)
        paths = list(dict.fromkeys(target.path for target in stored))
        looked = look_at(paths, options)
        states = dict(track(looked, len(paths), "Looking at", enabled=progress))
        found: dict[Target, FileRecord] = {}
        outdated: dict[Target, FileRecord] = {}
        problems: dict[Target, str] = {}
        for target, (record, settled) in stored.items():
            state = states[target.path]
            if isinstance(state, str):
                problems[target] = state
            elif settled and state.validator == record.validator:
                found[target] = record
            else:
                outdated[target] = record
        return found, outdated, problems

    def _stored(self, targets: Sequence[Target]) -> dict[Target, tuple[FileRecord, bool]]:
        out = {}
        for target in targets:
            query = "SELECT facts, digest FROM files WHERE location=? AND tree=?"
            for row in self._database.execute(query, (_key(target.path), target.tree)):
                fact = decoded(*row)
                if fact is not None:
                    out[target] = replace(fact[0], path=target.path), fact[1]
        return out

    def _remembered(
        self,
        opened: Iterable[tuple[Target, tuple[FileRecord, Freshness] | str]],
        outdated: Mapping[Target, FileRecord],
    ) -> Iterator[tuple[Target, FileRecord | str]]:
        """Pass results on and write them down, also those of a survey that is interrupted."""
        unsaved: _Found = {}
        saved = time.monotonic()
        try:
            for target, result in opened:
                if isinstance(result, str):
                    yield target, result
                    continue
                record, fresh = _succeeding(result[0], outdated.get(target)), result[1]
                unsaved[target] = record, fresh
                if time.monotonic() - saved > _WRITE_S:
                    self._write(unsaved)
                    unsaved, saved = {}, time.monotonic()
                yield target, record
        finally:
            self._write(unsaved)

    def _write(self, found: _Found) -> None:
        rows = [
            (_key(target.path), target.tree, *encoded(_public(record), fresh.settled))
            for target, (record, fresh) in found.items()
        ]
        if not rows:
            return
        try:
            self._database.change("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
        except CatalogueError as error:
            # The facts are at hand, so the run goes on; they are found again next time.
            warnings.warn(f"not remembered: {error}", UserWarning, stacklevel=3)


def _succeeding(record: FileRecord, before: FileRecord | None) -> FileRecord:
    """Return a record that names the content which its path held before."""
    if before is None:
        return record
    if (before.uuid, before.tag) == (record.uuid, record.tag):
        return replace(record, replaces=before.replaces)
    return replace(record, replaces=f"{before.uuid}-{before.tag}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(name, " or ".join(choices), value)


def _key(path: str) -> str:
    # A token may be another one tomorrow, and is nobody's business.
    return storable(without_credentials(path))


def _public(record: FileRecord) -> FileRecord:
    return replace(record, path=without_credentials(record.path))


def _target(spec: FileSpec) -> Target:
    return Target(location(spec.path), spec.tree or "")
