"""Read columns and events through this host's cache, without a Runner or a cluster."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import awkward as ak
from coffea.nanoevents import BaseSchema, NanoAODSchema, NanoEventsFactory

from hepcache.cache.admin import Provenance, note_provenance
from hepcache.catalogue.catalogue import Catalogue, columns_of, expand
from hepcache.errors import CatalogueError, ConfigurationError
from hepcache.fileset import FileRecord, Fileset, FileSpec, load_fileset
from hepcache.fileset.segments import cut, segment_boundaries
from hepcache.formats.reader import Reader
from hepcache.formats.registry import open_source
from hepcache.formats.source import TreeRef
from hepcache.process.lazy_columns import ChunkEvents
from hepcache.process.worker_state import worker_state
from hepcache.settings import settings
from hepcache.telemetry import ReadLog

__all__ = ["arrays", "events", "iterate"]

_T = TypeVar("_T")


def arrays(
    path: str,
    columns: str | Sequence[str] | None = None,
    start: int = 0,
    stop: int | None = None,
    *,
    tree: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ak.Array:
    """Return columns of a file, through this host's cache.

    Parameters
    ----------
    path
        A file or URL, with or without ``:tree`` after it.
    columns
        Names of columns, or patterns as in a shell, such as ``"Jet_*"``; all
        of them by default.
    start, stop
        Entries, as in ``uproot``: ``stop`` excluded, the tree's end by default;
        negative ones count from the end.
    tree
        Name of the tree, if it is not part of the path; by default the only
        one, or ``Events``.
    options
        Options for ``uproot.open``.

    Returns
    -------
    awkward.Array
        Of shape ``(n_entries,)``, with a field for each column, as
        ``uproot``'s ``tree.arrays(columns, entry_start=start, entry_stop=stop)``
        returns it. Buffers are read-only.

    Raises
    ------
    BadFileError
        The file is missing, damaged, or has no such tree.
    ConfigurationError
        A name or pattern matches no column; the message names similar ones.
    OriginError
        A column is not in the cache, and the origin can't be read.

    Notes
    -----
    Several threads may call it at once. A crash loses at most columns that were not stored yet.

    Examples
    --------
    >>> arrays("nano.root:Events", ["nJet", "Jet_pt"], 0, 1000)  # doctest: +SKIP
    <Array [{nJet: 3, Jet_pt: [...]}, ...] type='1000 * {nJet: uint32, ...'>
    """
    file = _File.of(_only(path, tree), options)
    start, stop, _ = slice(start, stop).indices(file.record.entries)
    return file.arrays(file.columns(columns), start, max(start, stop))


def iterate(
    files: Fileset | Mapping[str, Any] | str | Iterable[str],
    columns: str | Sequence[str] | None = None,
    *,
    step_size: int = 100_000,
    tree: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[ak.Array]:
    """Yield columns of files in steps, through this host's cache.

    Parameters
    ----------
    files
        Anything that :func:`hepcache.load_fileset` reads.
    columns, options
        As for :func:`arrays`.
    step_size
        Approximate number of entries of a step, as coffea's ``chunksize``; if
        possible, steps end where segments of the cache end.
    tree
        Name of the tree in files for which none is named.

    Yields
    ------
    awkward.Array
        As :func:`arrays` returns it; each entry once, in order. Its ``attrs``
        have the metadata ``dataset``, ``path``, ``start`` and ``stop``.

    Raises
    ------
    BadFilesetError, BadFileError, ConfigurationError, OriginError
        As for :func:`arrays`; all bad files are named before the first step.
    """
    if step_size < 1:
        raise ConfigurationError("step_size", "a whole number from 1", step_size)
    for file in _files(load_fileset(files, treename=tree), options):
        names = file.columns(columns)
        for start, stop in cut(file.boundaries, step_size):
            where = {"dataset": file.spec.dataset, "path": file.spec.path}
            yield file.arrays(names, start, stop, {**where, "start": start, "stop": stop})


def events(
    path: str,
    start: int = 0,
    stop: int | None = None,
    *,
    tree: str | None = None,
    schema: type[BaseSchema] = NanoAODSchema,
    columns: Iterable[str] = (),
    metadata: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> ak.Array:
    """Return the events of a file as a processor gets them, through this host's cache.

    Parameters
    ----------
    path, start, stop, tree, options
        As for :func:`arrays`.
    schema
        coffea's schema, or one of your own.
    columns
        Columns to fetch at once; all others are read when they are used.
    metadata
        Entries of ``events.metadata`` in addition to coffea's own.

    Returns
    -------
    awkward.Array
        NanoEvents, of shape ``(n_entries,)``.

    Raises
    ------
    BadFileError, OriginError
        As for :func:`arrays`; a column that is read later raises then.

    Examples
    --------
    >>> events("nano.root:Events", stop=1000).Jet.pt  # doctest: +SKIP
    <Array [[71.3, 34.2], [], ...] type='1000 * var * float32[...]'>
    """
    file = _File.of(_only(path, tree), options)
    start, stop, _ = slice(start, stop).indices(file.record.entries)
    return file.events(start, max(start, stop), schema, frozenset(columns), metadata or {})


class _File:
    """A file that is known, and this host's cache of it."""

    def __init__(
        self, spec: FileSpec, record: FileRecord, options: Mapping[str, Any] | None
    ) -> None:
        self.spec, self.record = spec, record
        self.boundaries = segment_boundaries(record.clusters, settings().segment_entries)
        self._cache = worker_state().cache_of(record.path, record.places)
        self._noted = False
        self._ref = TreeRef(
            path=record.path,
            tree=record.tree,
            uuid=record.uuid,
            tag=record.tag,
            validator=record.validator,
            boundaries=self.boundaries,
            options=dict(options or {}),
            replaces=record.replaces,
            store=self._cache,
            places=record.places,
        )

    @classmethod
    def of(cls, spec: FileSpec, options: Mapping[str, Any] | None) -> _File:
        (file,) = _files([spec], options)
        return file

    def columns(self, wanted: str | Sequence[str] | None) -> list[str]:
        """Return the names of columns, given by name or pattern."""
        there = _ask(lambda catalogue: columns_of(catalogue, [self.record]))
        if wanted is None:
            return there
        return expand([wanted] if isinstance(wanted, str) else wanted, there)

    def arrays(
        self, names: Sequence[str], start: int, stop: int, attrs: Mapping[str, Any] | None = None
    ) -> ak.Array:
        """Return columns of an entry range."""
        reader, log = self._reader()
        reader.prefetch((), start, stop, needed=names)
        contents = [reader.array(name, start, stop) for name in names]
        if log.origin_bytes:
            self._note()
        record = ak.contents.RecordArray(contents, list(names), length=stop - start)
        return ak.Array(record, attrs=None if attrs is None else dict(attrs))

    def events(
        self,
        start: int,
        stop: int,
        schema: type[BaseSchema],
        columns: frozenset[str],
        metadata: Mapping[str, Any],
    ) -> ak.Array:
        """Return events of an entry range."""
        reader, log = self._reader()
        form = worker_state().forms.form(self._ref, schema, self._cache, {}, log)
        own = {
            "dataset": self.spec.dataset,
            "filename": self.spec.path,
            "treename": self.record.tree,
            "entrystart": start,
            "entrystop": stop,
            "fileuuid": self.record.uuid,
        }
        if form.uncached:
            warnings.warn(
                f"{self.spec.path} is read by coffea, past the cache: {form.uncached}",
                stacklevel=3,
            )
            return NanoEventsFactory.from_parquet(
                self.record.path,
                schemaclass=schema,
                metadata={**own, **metadata},
                entry_start=start,
                entry_stop=stop,
            ).events()
        made = ChunkEvents(form, reader, start, stop, {**own, **metadata}, None, columns)
        made.prefetch(frozenset())
        self._note()
        return made.events

    def _reader(self) -> tuple[Reader, ReadLog]:
        log = ReadLog()
        # In the mode fscache it is the kernel that keeps what is read.
        cache = None if settings().cache_mode == "fscache" else self._cache
        return Reader(self._ref, cache, open_source, log), log

    def _note(self) -> None:
        """Let the cache tell where its columns come from."""
        if not self._noted:
            known = Provenance(self.spec.path, (self.spec.dataset,))
            note_provenance(self._cache, self.record.uuid, self.record.tag, known)
            self._noted = True


def _only(path: str, tree: str | None) -> FileSpec:
    """Return the file that a path names.

    Raises ``ConfigurationError``: there are several.
    """
    specs = load_fileset(path, treename=tree)
    if len(specs) > 1:
        raise ConfigurationError("path", "one file; hepcache.iterate() takes several", path)
    return specs[0]


def _files(specs: Iterable[FileSpec], options: Mapping[str, Any] | None) -> list[_File]:
    wanted = list(specs)
    found, _ = _ask(lambda catalogue: catalogue.records(wanted, progress=False, options=options))
    return [_File(spec, record, options) for spec, record in found]


def _ask(question: Callable[[Catalogue], _T]) -> _T:
    """Ask the catalogue; where it can't answer, an empty one in memory."""
    try:
        with Catalogue.from_settings() as catalogue:
            return question(catalogue)
    except CatalogueError as error:
        warnings.warn(f"files are opened without the catalogue: {error}", stacklevel=4)
        with Catalogue.in_memory() as catalogue:
            return question(catalogue)
