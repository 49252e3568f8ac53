"""hepcache's Runner: coffea's Runner, which reads through the cache and records each run."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar
from uuid import UUID, uuid4

from coffea.processor import Err, Ok, ProcessorABC, accumulate
from uproot.exceptions import KeyInFileError

from hepcache.catalogue.catalogue import Catalogue, Opener, joined, open_all
from hepcache.credentials import without_credentials
from hepcache.errors import (
    BadFileError,
    BadFilesetError,
    CatalogueError,
    ConfigurationError,
    FingerprintError,
    IncompleteWarning,
    ProcessorError,
    ResultNotStoredError,
    RetryError,
)
from hepcache.fileset import FileRecord, Fileset, FileSpec
from hepcache.fileset.load import without_replicas
from hepcache.fileset.segments import cut, segment_boundaries
from hepcache.formats.registry import is_parquet
from hepcache.io.replicas import place_label
from hepcache.io.retry import error_text
from hepcache.process.attempts import UNKNOWN_NAME, ChunkFunction, named_by, parquet_metadata
from hepcache.process.chunk import (
    COLUMNS,
    FAILED,
    NOT_STORED,
    RECORDS,
    SKIPPED,
    UNCACHED,
    Chunk,
    Content,
    changed,
    code_name,
    knows_content,
    plain,
)
from hepcache.process.derived_maker import CALLS, Call, has_calls, save_calls
from hepcache.process.executor import (
    CLUSTER_RUN,
    INTERRUPTIONS,
    ClusterRun,
    CompressedLater,
    Executor,
    client_in_force,
    current_client,
    no_result,
    with_missing,
)
from hepcache.process.file_metadata import Extraction
from hepcache.process.fscache_use import looks, uses_since
from hepcache.process.open_files import open_on_workers
from hepcache.process.partial_run import (
    PartialRun,
    check_chunks,
    check_content,
    completed,
    lacking_chunks,
)
from hepcache.process.reuse import Reuse, Work, compact_here, loaded_here
from hepcache.process.run_handle import RunHandle
from hepcache.process.run_history import RunHistory, calls_directory, last_run, note_run, work_name
from hepcache.process.unopened_files import UnopenedFiles
from hepcache.report import RunRecord
from hepcache.report.machine import versions
from hepcache.report.outcomes import MissingChunk, lacking_text
from hepcache.results.derived import is_derived
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord, PlaceUse, place_uses
from hepcache.upstream.coffea import (
    DaskExecutor,
    ExecutorBase,
    FileMeta,
    UprootMissTreeError,
    WorkItem,
    compress,
    decompress,
)
from hepcache.upstream.coffea import Runner as CoffeaRunner
from hepcache.upstream.names import warn_of_missing

# Options that a run has in common with the one that completes it.
_KEPT = (
    "schema",
    "chunksize",
    "maxchunks",
    "skipbadfiles",
    "xrootdtimeout",
    "align_clusters",
    "savemetrics",
    "use_result_type",
    "processor_compression",
    "format",
    "name",
    "failures",
    "results",
    "remember",
)
_PATIENCE_S = 5.0  # with another process's lock on the catalogue; the run waits no longer
_T = TypeVar("_T")


@dataclass
class Runner(CoffeaRunner):
    """Run a coffea processor over a fileset, cycle after cycle, from the hosts' caches.

    It accepts the filesets of ``coffea.processor.Runner`` and those that
    :func:`hepcache.load_fileset` returns, and returns the same output as
    coffea's. Processors run unmodified.

    Parameters
    ----------
    executor
        A ``hepcache.Executor``. coffea's ``DaskExecutor`` is converted to one,
        with its client and options; coffea's local executors read through
        this machine's cache. With ``None``, the current Dask client is used.
    name
        Name of the run in its record.
    remember
        Record the columns, and the calls that made derived ones, for
        ``hepcache cache warm --like last``. Calls with credentials are
        not recorded.
    divisible
        Cut the last long chunks of a run on a cluster, so that all threads
        end together. The cuts depend on the durations of earlier runs, so the
        processor's entry ranges differ from run to run. Don't use it for
        processors that name files or seed random numbers by entries, or do
        anything else than add up over events. Without it, chunks depend only
        on the file, the chunksize, ``align_clusters`` and the setting
        ``hepcache.segment.entries``.
    failures
        What happens if a chunk fails, after all attempts, or a file can't be
        opened, with an exception that ``skipbadfiles`` doesn't name.
        "raise" ends the run with that error. "collect" returns the result of
        the others, warns with :class:`~hepcache.errors.IncompleteWarning`, and
        lists the failed chunks in ``run_record.failed``; :meth:`retry`
        processes only these again.
    results
        "reuse" stores the results of chunks on the hosts that computed them,
        and uses those that the same code has computed from the same events
        before. So a run that died continues where it stopped, and repeating a
        run computes nothing. :func:`hepcache.fingerprint` defines what counts
        as the same code.
    notes
        More settings for its records, such as the command line.
    run_record
        The record of the last run; ``None`` before the first.
    partial_run
        The data that :meth:`retry` needs if the last run's result lacks events.

    Notes
    -----
    After their first run, files are known from the catalogue, and later runs
    check them cheaply. Chunks are cut at segment boundaries if the chunksize
    allows it.

    If the catalogue can't be read or written, for example on a full disk, the
    run warns, opens all files itself, and is not recorded in the catalogue.
    """

    executor: ExecutorBase | None = None
    pre_executor: ExecutorBase | None = None
    metadata_cache: MutableMapping[Any, Any] | None = None
    name: str = "run"
    remember: bool = True
    divisible: bool = False
    failures: Literal["raise", "collect"] = "raise"
    results: Literal["compute", "reuse"] = "compute"
    notes: Mapping[str, str] = field(default_factory=dict)
    run_record: RunRecord | None = field(default=None, init=False, repr=False, compare=False)
    partial_run: PartialRun | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        warn_of_missing()
        self.executor = Executor() if self.executor is None else _ours(self.executor)
        if self.pre_executor is not None:
            self.pre_executor = _ours(self.pre_executor)
        if self.metadata_cache is None:
            # coffea's is of the process, and holds the metadata that users gave to other filesets.
            self.metadata_cache = {}
        super().__post_init__()
        self._known: dict[tuple[str, str | None], FileRecord] = {}
        self._replicas: dict[str, tuple[str, ...]] = {}
        self._places: dict[str, PlaceUse] = {}
        self._unopened = UnopenedFiles()
        self._completing: PartialRun | None = None
        self._remembers = True
        self._not_stored = ""
        self._derived_columns: list[str] = []
        self._calls: set[Call] = set()
        self._known_calls: frozenset[tuple[str, str]] | None = None
        self._run_id = ""
        self._iteritems_options: Mapping[str, Any] = {}
        self._extraction: Extraction | None = None

    def _preprocess_fileset_root(
        self, fileset: list[FileMeta], uproot_options: Mapping[str, Any]
    ) -> None:
        options = {**uproot_options, "timeout": uproot_options.get("timeout", self.xrootdtimeout)}
        self._open_options: Mapping[str, Any] = options
        self._look_up(fileset, options)

    def _look_up(self, fileset: Sequence[FileMeta], options: Mapping[str, Any]) -> None:
        """Give files what the catalogue knows of them."""
        bad = {(spec.path, spec.tree): error for spec, error in self._survey(fileset, options)}
        for meta in fileset:
            error = bad.get((str(meta.filename), meta.treename))
            if error is not None:
                replicas = self._replicas.get(str(meta.filename), ())
                self._unopened.add_file(meta, error, self._outcome(error), replicas)
                # The file is bad now, even if coffea's own cache of metadata has it.
                meta.metadata = None
                continue
            record = self._record(meta)
            meta.metadata = {
                **(meta.metadata or {}),
                "numentries": record.entries,
                "uuid": UUID(record.uuid).bytes,
                "clusters": list(record.clusters),
            }

    def _preprocess_fileset_parquet(self, fileset: list[FileMeta]) -> None:
        """Look up files in the catalogue; of those with other names coffea reads the footers."""
        self._look_up([meta for meta in fileset if self._caches(meta)], {})
        others = [meta for meta in fileset if not self._caches(meta)]
        if others:
            self._read_footers(others)

    def _caches(self, item: FileMeta | WorkItem) -> bool:
        """Tell whether a file is read through the cache, so that the catalogue knows it."""
        return self.format == "root" or is_parquet(str(item.filename))

    def _read_footers(self, fileset: Sequence[FileMeta]) -> None:
        """Read the footers of files as coffea does, in every run."""
        files = {(meta.filename, meta.treename): meta for meta in fileset}
        executor: Any = self.pre_executor
        if isinstance(executor, DaskExecutor):
            executor = executor.copy(heavy_input=None, worker_affinity=False)
        executor = executor.copy(
            function_name="get_metadata", desc="Preprocessing", unit="file", compression=None
        )
        found, _ = executor(list(files.values()), partial(parquet_metadata, self.retries), {})
        bad = []
        for meta in fileset:
            known = found[meta.filename, meta.treename]
            if isinstance(known, Exception):
                path = without_credentials(str(meta.filename))
                error = BadFileError({path: error_text(known)}, type(known))
                error.__cause__ = known
                bad.append((FileSpec(meta.dataset, str(meta.filename), meta.treename), error))
                self._unopened.add_file(meta, error, self._outcome(error))
                meta.metadata = None
            else:
                meta.metadata = {**(meta.metadata or {}), **known}
        self._check_bad(bad)

    def _filter_badfiles(self, fileset: list[FileMeta]) -> list[FileMeta]:
        """Return the files that could be opened: of all others the record tells."""
        return [meta for meta in fileset if meta.populated(clusters=self.align_clusters)]

    def _limit_preprocess_files(self, fileset: list[FileMeta]) -> list[FileMeta]:
        """Return the files to look at: all of them where some of the first may be bad."""
        if self.failures == "collect":
            return fileset
        limited: list[FileMeta] = super()._limit_preprocess_files(fileset)
        return limited

    def _ask(self, question: Callable[[Catalogue], _T]) -> _T:
        """Ask the catalogue; where it can't answer, an empty one in memory."""
        if self._remembers:
            try:
                with Catalogue(settings().catalogue, patience_s=_PATIENCE_S) as catalogue:
                    return question(catalogue)
            except CatalogueError as error:
                self._remembers = False
                warnings.warn(f"the run does without its catalogue: {error}", stacklevel=3)
        with Catalogue.in_memory() as catalogue:
            return question(catalogue)

    def _survey(
        self, metas: Iterable[FileMeta], options: Mapping[str, Any]
    ) -> list[tuple[FileSpec, BadFileError]]:
        """Look up all files in the catalogue; return the bad ones, if the run may lack them.

        Raises ``BadFileError``: it may not lack some; with ``use_result_type`` none, as coffea
        makes the error a result.
        """
        specs = [
            FileSpec(
                meta.dataset,
                str(meta.filename),
                meta.treename,
                replicas=self._replicas.get(str(meta.filename), ()),
            )
            for meta in metas
        ]
        status = getattr(self.executor, "status", True)
        found, damaged = self._ask(
            lambda catalogue: catalogue.survey(
                specs, open_files=self._opener(), options=options, progress=status
            )
        )
        for spec in specs:
            self._known.pop((spec.path, spec.tree), None)
        self._known.update({(spec.path, spec.tree): record for spec, record in found})
        for place, reason in {failure for _, record in found for failure in record.failures}:
            use = {place_label(place): PlaceUse(failures=1, reason=reason)}
            self._places = place_uses(self._places, use)
        bad = [(spec, _coffeas(error)) for spec, error in damaged]
        self._check_bad(bad)
        return bad

    def _opener(self) -> Opener:
        """Return what opens new files: the workers, where a cluster preprocesses."""
        executor = self.pre_executor
        if isinstance(executor, Executor) and executor.client is not None:
            return partial(open_on_workers, client=executor.client, priority=executor.priority)
        return open_all

    def _check_bad(self, bad: Sequence[tuple[FileSpec, BadFileError]]) -> None:
        """Warn of files that can't be opened.

        Raises ``BadFileError``: the run may not lack some of them.
        """
        failed = [(spec, error) for spec, error in bad if self._outcome(error) == "failed"]
        skipped = [(spec, error) for spec, error in bad if self._outcome(error) == "skipped"]
        # Beside dataframes there is no record to list them.
        fatal = [] if self.failures == "collect" and not self.use_dataframes else failed
        if self.use_result_type and self.failures == "raise" and self._completing is None:
            fatal = failed or skipped
        if fatal:
            raise joined(fatal) from fatal[0][1].__cause__
        for word, files in (("Skipped", skipped), ("Failed", failed)):
            if files:
                warnings.warn(f"{word}: {joined(files).listing}", IncompleteWarning, stacklevel=3)

    def _outcome(self, error: BaseException) -> Literal["failed", "skipped"]:
        return "skipped" if named_by(error, self._skip_kinds()) else "failed"

    def _chunk_generator(self, fileset: list[FileMeta], treename: str) -> Iterator[WorkItem]:
        if not any(map(self._caches, fileset)):
            chunks: Iterator[WorkItem] = super()._chunk_generator(fileset, treename)
            return chunks
        # Looked up now: the chunks may be asked for after other files were preprocessed.
        files = [(meta, self._record(meta) if self._caches(meta) else None) for meta in fileset]
        if self._extraction is not None:
            records = [(meta.dataset, record) for meta, record in files if record is not None]
            found = self._extraction.metadata(records, self._ask, self._open_options)
            for (meta, _), values in zip(files, found, strict=True):
                meta.metadata = {**meta.metadata, **values}
        return self._limited(files, self._run_id)

    def _limited(
        self, files: Sequence[tuple[FileMeta, FileRecord | None]], run: str
    ) -> Iterator[Chunk | WorkItem]:
        """Return the chunks of all files, up to ``maxchunks`` of each dataset."""
        before = self._completing
        known = () if before is None else (*before.record.chunks, *before.chunks)
        made = Counter(part.dataset for part in known)
        for meta, record in files:
            chunks: Iterable[WorkItem] = (
                meta.chunks(self.chunksize, self.align_clusters)
                if record is None
                else self._chunks(meta, record, run)
            )
            for chunk in chunks:
                if self.maxchunks is not None and made[meta.dataset] >= self.maxchunks:
                    break
                made[meta.dataset] += 1
                # What a chunk records has no place in a dataframe.
                yield plain(chunk) if self.use_dataframes else chunk

    def _record(self, item: FileMeta | WorkItem) -> FileRecord:
        return self._known[str(item.filename), item.treename]

    def _chunks(self, meta: FileMeta, record: FileRecord, run: str) -> Iterator[Chunk]:
        boundaries = segment_boundaries(record.clusters, settings().segment_entries)
        ours = {"numentries", "uuid", "clusters"}
        user = {key: value for key, value in meta.metadata.items() if key not in ours}
        clusters = record.clusters if self.align_clusters else None
        for start, stop in cut(boundaries, self.chunksize, clusters=clusters):
            item = WorkItem(
                dataset=meta.dataset,
                filename=meta.filename,
                treename=meta.treename,
                entrystart=start,
                entrystop=stop,
                fileuuid=UUID(record.uuid).bytes,
                usermeta=user,
                preload=meta.preload,
            )
            yield _chunk(item, record, boundaries, run)

    def _known_chunks(
        self, items: Sequence[WorkItem], *, looked_at: bool = False
    ) -> list[WorkItem]:
        """Return chunks with what the catalogue knows of their files.

        ``looked_at``: whether files of chunks that know their content are looked at, too.
        """
        if self.use_dataframes:
            return [plain(item) for item in items]
        metas = {
            (item.filename, item.treename): FileMeta(item.dataset, item.filename, item.treename)
            for item in items
            if self._caches(item) and (looked_at or not knows_content(item))
        }
        for item in items:
            if isinstance(item, Chunk) and item.content.places:
                self._replicas.setdefault(str(item.filename), item.content.places)
        bad: dict[tuple[str, str | None], BadFileError] = {}
        if metas:
            surveyed = self._survey(metas.values(), {})
            bad = {(spec.path, spec.tree): error for spec, error in surveyed}
        if not looked_at:
            self._unopened = UnopenedFiles()
            # Chunks that were pickled one by one have as many copies of the same.
            cut = {item.run: item.content.unopened for item in items if isinstance(item, Chunk)}
            for unopened in filter(None, cut.values()):
                self._unopened.update(unopened)
        chunks: list[WorkItem] = []
        for item in items:
            if not self._caches(item):
                chunks.append(plain(item))
                continue
            if isinstance(item, Chunk) and knows_content(item) and not looked_at:
                content = replace(item.content, run=self._run_id, unopened=None)
                chunks.append(changed(item, content=content))
                continue
            if (str(item.filename), item.treename) in bad:
                error = bad[str(item.filename), item.treename]
                self._unopened.add_chunk(item, error, self._outcome(error))
                continue
            record = self._record(item)
            boundaries = segment_boundaries(record.clusters, settings().segment_entries)
            chunks.append(_chunk(plain(item), record, boundaries, self._run_id))
        return chunks

    def __call__(
        self,
        fileset: Fileset | Mapping[str, Any] | str | Iterable[WorkItem],
        processor_instance: Any,
        *,
        treename: str | None = None,
        **options: Any,
    ) -> Any:
        """Run a processor over a fileset.

        ``fileset``: a result of :func:`hepcache.load_fileset`, or anything that coffea's
        ``Runner`` accepts.
        ``treename``: tree of files for which none is named. In a
        :class:`~hepcache.fileset.Fileset` a file's own tree comes first; otherwise as in coffea.
        ``**options``: ``uproot_options``, ``iteritems_options`` and ``trace``, as in coffea.
        It returns the sum of the processor's results, after ``postprocess``.
        """
        return super().__call__(fileset, processor_instance, treename=treename, **options)

    def preprocess(
        self,
        fileset: Any,
        *,
        treename: str | None = None,
        extract: Callable[[Any], Mapping[str, Any]] | None = None,
        reduce: Callable[[list[Mapping[str, Any]]], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Iterator[WorkItem]:
        """Return the chunks of a fileset, for :meth:`run`; as in coffea.

        They record which files could not be opened, even if another Runner runs them.

        Parameters
        ----------
        fileset, treename, options
            As for a call of the Runner.
        extract
            Function that gets each ROOT file once, opened by uproot, and returns
            numbers, texts and lists of them by name. The catalogue stores them by
            the file's content and the function's :func:`~hepcache.fingerprint`,
            and chunks of the file have them in ``events.metadata``.
        reduce
            Function that gets the values of ``extract`` for each file of a
            dataset, and returns the values for all chunks of the dataset.

        Returns
        -------
        iterator of coffea.processor.executor.WorkItem

        Raises
        ------
        BadFileError
            Files can't be opened; all of them are named.
        ConfigurationError
            An extracted value can't be stored, or has a name that coffea uses.
        """
        if extract is None and reduce is not None:
            raise ConfigurationError("reduce", "None without extract", reduce)
        self._replicas = {}
        if extract is not None and self.format != "root":
            raise ConfigurationError("extract", "None for parquet: it gets ROOT files", extract)
        self._extraction = None if extract is None else Extraction(extract, reduce)
        try:
            chunks = self._cut(fileset, treename, options)
        finally:
            self._extraction = None
        unopened = self._unopened
        if not unopened.missing:
            return chunks
        return (
            changed(chunk, content=replace(chunk.content, unopened=unopened))
            if isinstance(chunk, Chunk)
            else chunk
            for chunk in chunks
        )

    def _cut(
        self, fileset: Any, treename: str | None, options: Mapping[str, Any]
    ) -> Iterator[WorkItem]:
        """Return the chunks of a fileset for this Runner itself."""
        fileset, treename = self._as_coffea_takes_it(fileset, treename)
        self._run_id, self._unopened = uuid4().hex, UnopenedFiles()
        with self._auto_dask_client():  # before 2026.9 coffea asks for none here
            chunks: Iterator[WorkItem] = super().preprocess(fileset, treename=treename, **options)
        return chunks

    def _as_coffea_takes_it(self, fileset: Any, treename: str | None) -> tuple[Any, str | None]:
        """Return a fileset and the tree of its files as coffea knows them; note its replicas."""
        fileset, replicas = without_replicas(fileset)
        if replicas and self.format != "root":
            raise BadFilesetError("only ROOT files can have replicas: name one place of each file")
        self._replicas.update(replicas)
        return _as_coffea_takes_it(fileset, treename)

    @contextmanager
    def _auto_dask_client(self) -> Iterator[None]:
        """Lend the current client to executors that have none; coffea starts a cluster here."""
        executors = [self.executor, self.pre_executor]
        without = [
            executor
            for executor in executors
            if isinstance(executor, DaskExecutor) and executor.client is None
        ]
        for executor in without:
            executor.client = client_in_force()
        try:
            yield
        finally:
            for executor in without:
                executor.client = None

    def _run(self, *arguments: Any, **options: Any) -> Any:
        with self._auto_dask_client():
            out = self._run_impl(*arguments, **options)
        return out if self.use_dataframes else self._ended(out)

    def _ended(self, out: dict[str, Any]) -> dict[str, Any]:
        """Return what a run came to, or raise what ended it early if it is not allowed to."""
        error = out["exception"]
        collected = self.failures == "collect" or named_by(error, self._skip_kinds())
        interrupted = isinstance(error, INTERRUPTIONS)
        if isinstance(error, BaseException) and (interrupted or not collected):
            error.partial_output = out["out"]  # type: ignore[attr-defined] # coffea's name
            if interrupted:
                name = "runner" if isinstance(error, KeyboardInterrupt) else "handle"
                error.add_note(f"What was done is kept: {name}.retry() processes the rest.")
            raise error
        return out

    def _run_impl(
        self,
        fileset: Any,
        processor_instance: Any,
        *,
        treename: str | None = None,
        uproot_options: Mapping[str, Any] | None = None,
        iteritems_options: Mapping[str, Any] | None = None,
        trace: Callable[..., Any] | None = None,
    ) -> Any:
        self._check(processor_instance, uproot_options, iteritems_options)
        if isinstance(fileset, Mapping | str | os.PathLike | Fileset):
            self._replicas = {}
        fileset, treename = self._as_coffea_takes_it(fileset, treename)
        self.run_record, self.partial_run, self._run_id = None, None, uuid4().hex
        self._remembers, self._unopened = True, UnopenedFiles()

        def chunks() -> list[WorkItem]:
            if not isinstance(fileset, Mapping | str):
                return self._known_chunks(_work_items(fileset))
            return list(
                self._cut(
                    fileset,
                    treename,
                    {
                        "uproot_options": uproot_options,
                        "trace": trace,
                        "processor_instance": processor_instance,
                    },
                )
            )

        return self._processed(
            chunks, processor_instance, uproot_options or {}, iteritems_options or {}
        )

    def submit(
        self,
        fileset: Fileset | Mapping[str, Any] | str | Iterable[WorkItem],
        processor_instance: Any,
        *,
        treename: str | None = None,
        **options: Any,
    ) -> RunHandle:
        """Begin a run on a cluster, and return at once.

        Parameters
        ----------
        fileset, processor_instance, treename, options
            As for a call of the Runner.

        Returns
        -------
        RunHandle
            Gives the progress of the run and its partial result, also by
            dataset, cancels it, or waits for its result.

        Raises
        ------
        ConfigurationError
            The executor has no cluster.

        Notes
        -----
        The results of each dataset are added up separately until the end, so the
        workers hold one result per dataset.
        """
        if not isinstance(self.executor, Executor):
            raise ConfigurationError(
                "executor", "hepcache.Executor, with the client of a cluster", self.executor
            )
        self._check(processor_instance, options.get("uproot_options"), None)
        runner = replace(self)
        runner.executor = self.executor.copy(client=self.executor.client, status=False)
        runner.metadata_cache = self.metadata_cache
        return RunHandle(
            runner, partial(runner, fileset, processor_instance, treename=treename, **options)
        )

    def retry(self, record: RunRecord | None = None) -> Any:
        """Process only the missing chunks of the last run, and complete its result.

        Parameters
        ----------
        record
            The run; :attr:`run_record` by default, and no other can be retried.

        Returns
        -------
        output
            The output, as of a run. ``run_record`` now describes both runs
            together, and lists chunks that failed again.

        Raises
        ------
        RetryError
            The last run lacks nothing, or ``record`` is of another run; or a file's
            content changed since, so that the parts don't belong together.
        """
        before = self.partial_run
        if before is None or record not in (None, before.record):
            raise RetryError(
                "the last run of this Runner lacks no events"
                if before is None
                else "this is not the record of the last run, which alone can be completed"
            )
        self._check(before.processor, before.uproot_options, before.iteritems_options)
        check_chunks(before)
        self._run_id, self._remembers = uuid4().hex, True
        self._unopened, self._completing = UnopenedFiles(), before

        def chunks() -> list[WorkItem]:
            unopened = list(
                self._cut(before.files, None, {"uproot_options": dict(before.uproot_options)})
                if before.files
                else ()
            )
            known = self._known_chunks(before.chunks, looked_at=True)
            check_content(before, [*known, *unopened])
            return [*known, *unopened]

        try:
            with self._auto_dask_client():
                out = self._ended(
                    self._processed(
                        chunks, before.processor, before.uproot_options, before.iteritems_options
                    )
                )
        finally:
            self._completing = None
        output = (out["out"], out["metrics"]) if self.savemetrics else out["out"]
        if not self.use_result_type:
            return output
        return Err(out["exception"], output) if out["exception"] else Ok(output)

    def _processed(
        self,
        find_chunks: Callable[[], list[WorkItem]],
        processor: Any,
        uproot_options: Mapping[str, Any],
        iteritems_options: Mapping[str, Any],
    ) -> Any:
        """Process chunks, record what was done, and return what coffea's Runner makes of it."""
        before = self._completing
        began, clock = time.time(), time.perf_counter()
        self._not_stored, self._iteritems_options = "", iteritems_options
        work = work_name(processor, self.schema)
        with ThreadPoolExecutor(1) as pool:
            # The workers answer while the catalogue is read.
            looking = pool.submit(copy_context().run, looks, self.executor)
            history, self._known_calls = self._ask(
                lambda catalogue: (
                    RunHistory.load(catalogue, work),
                    self._find_known_calls(catalogue),
                )
            )
            chunks = find_chunks()
            kernels = looking.result()
        if not chunks and (self.use_dataframes or not (before or self._unopened.missing)):
            raise no_result(0, (), (), self._unopened)
        out: Any = None
        error: Any = 0
        if chunks:
            out, error = self._executed(
                chunks, processor, history, uproot_options, iteritems_options
            )
        if self.use_dataframes:
            return out["out"]
        if before is not None:
            out = accumulate([decompress(before.results), out])
        # Somebody's own kind of DaskExecutor says nothing where all chunks were skipped.
        out, failures = with_missing(chunks, out, error)
        if self.use_result_type and not isinstance(error, BaseException):
            opening = [self._unopened.error()] if self._unopened.missing else []
            error = next(iter([*failures, *opening]), 0)
        record = self._recorded(out, began, time.perf_counter() - clock, processor)
        if self.checkpointer is None:
            _check_accounts(chunks, record, self._unopened.missing)
        with _only_warning("what the kernels did is not known"):
            paths = {chunk.path for chunk in record.chunks}
            record = replace(record, kernels=uses_since(kernels, self.executor, paths))
        with _only_warning("its durations and columns are not remembered"):
            self._note(record, history, work)
        if before is not None:
            record = completed(before.record, record)
        self.run_record, self.partial_run = record, None
        unopened = self._unopened
        if not record.complete or isinstance(error, INTERRUPTIONS):
            self.partial_run = PartialRun(
                record=record,
                results=compress(out, 1),
                chunks=tuple(lacking_chunks(record.missing, [*chunks, *unopened.chunks])),
                files=unopened.fileset,
                processor=processor,
                uproot_options=uproot_options,
                iteritems_options=iteritems_options,
                options={name: getattr(self, name) for name in _KEPT},
            )
        if "out" not in out:
            raise no_result(len(chunks), record.missing, failures, unopened, error)
        if len(record.missing) > len(unopened.missing):
            warnings.warn(lacking_text(record.missing), IncompleteWarning, stacklevel=7)
        out["exception"] = error
        _postprocess(processor, out)
        if "metrics" in out:
            out["metrics"] = {
                name: list(value) if isinstance(value, set) else value
                for name, value in out["metrics"].items()
            } | {"chunks": len(chunks) if before is None else len(record.chunks)}
        return out

    def _check(
        self,
        processor_instance: Any,
        uproot_options: Mapping[str, Any] | None,
        iteritems_options: Mapping[str, Any] | None,
    ) -> None:
        """Raise an error about arguments that don't go together, before anything runs."""
        if self.failures not in ("raise", "collect"):
            raise ConfigurationError("failures", "'raise' or 'collect'", self.failures)
        if self.results not in ("compute", "reuse"):
            raise ConfigurationError("results", "'compute' or 'reuse'", self.results)
        if self.results == "reuse" and self.divisible:
            raise ConfigurationError(
                "divisible",
                "False where results are reused, which need the same chunks again",
                True,
            )
        if self.results == "reuse" and self.checkpointer is not None:
            # What a checkpoint holds may be of other code.
            raise ConfigurationError(
                "checkpointer", "None where results are reused, which does the same", "one"
            )
        self._skip_kinds()
        if self.divisible and (self.align_clusters or self.checkpointer is not None):
            # Clusters are promised to come whole; checkpoints are named by entries.
            raise ConfigurationError(
                "divisible",
                "False where align_clusters or a checkpointer keeps chunks whole",
                True,
            )
        if self.format == "parquet" and (uproot_options or iteritems_options):
            raise ValueError(
                "uproot_options/iteritems_options have no effect with format='parquet'"
            )
        if not isinstance(processor_instance, ProcessorABC) and not callable(processor_instance):
            raise ValueError(  # noqa: TRY004 - coffea's type of error
                "Expected processor_instance to derive from ProcessorABC or be a single-argument "
                "callable"
            )
        if isinstance(self.executor, DaskExecutor) and self.executor.client is None:
            current_client()  # says what to do

    def _skip_kinds(self) -> tuple[type[BaseException], ...]:
        """Return the types of exceptions that ``skipbadfiles`` names.

        Raises ``TypeError``: it is something that coffea doesn't take.
        """
        given = self.skipbadfiles
        kinds = (OSError,) if given is True else given or ()
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise TypeError(
                "skipbadfiles: expected True, False, an exception class or a tuple of exception "
                f"classes, found {given!r}"
            )
        return kinds

    def _executed(
        self,
        chunks: Sequence[WorkItem],
        processor: Any,
        history: RunHistory,
        uproot_options: Mapping[str, Any],
        iteritems_options: Mapping[str, Any],
    ) -> tuple[Any, Any]:
        """Let the executor process chunks; return what they add up to, and what ended it early."""
        options: dict[str, Any] = {"unit": "chunk", "function_name": type(processor).__name__}
        work = self._work(chunks, processor, uproot_options, iteritems_options)
        if self.processor_compression is not None:
            later = CompressedLater(processor, self.processor_compression)
            processor = later if isinstance(self.executor, Executor) else later.compressed()
        skips = self._skip_kinds()
        collects: tuple[type[BaseException], ...] = ()
        if self.failures == "collect":
            collects = (Exception,)
        elif self.use_result_type and isinstance(self.executor, Executor):
            # coffea's local executors know by themselves what they can keep.
            collects = skips
        function = ChunkFunction(
            format=self.format,
            xrootdtimeout=self.xrootdtimeout,
            schema=self.schema,
            use_dataframes=self.use_dataframes,
            savemetrics=self.savemetrics,
            uproot_options=uproot_options,
            iteritems_options=iteritems_options,
            checkpointer=self.checkpointer,
            cache_function=partial(self.get_cache, self.cachestrategy),
            processor=processor,
            retries=self.retries,
            # With use_result_type these are no end of the run, but of its completeness.
            skips=() if self.use_result_type else skips,
            collects=collects,
            work=work,
            known_calls=self._known_calls,
        )
        reuse = None if work is None else Reuse(work, self.savemetrics)
        if isinstance(self.executor, DaskExecutor):
            # It sends the processor to every worker once, and tries again elsewhere.
            options["heavy_input"] = processor
            function = replace(function, processor=None, retries=0)
        if isinstance(self.executor, Executor):
            function = replace(function, collects=())
            options |= {
                "history": history,
                "divisible": self.divisible,
                "collects": collects,
                "reuse": reuse,
            }
        executor: Any = self.executor
        executor = executor.copy(**options)
        if reuse is None or isinstance(executor, DaskExecutor):
            found, error = executor(chunks, function, None)
            return found, error
        loaded, rest = loaded_here(chunks, reuse)
        found, error = executor(rest, function, None) if rest else (None, 0)
        compact_here(chunks, reuse)
        return (found if loaded is None else accumulate([loaded, found])), error

    def _work(
        self,
        chunks: Sequence[WorkItem],
        processor: Any,
        uproot_options: Mapping[str, Any],
        iteritems_options: Mapping[str, Any],
    ) -> Work | None:
        """Return what results are stored by; ``None``, with a warning, where they can't be."""
        if self.results != "reuse" or self.use_dataframes:
            return None
        if not all(map(self._caches, chunks)):
            self._not_stored = f"their content is not known: {UNKNOWN_NAME}"
            warnings.warn(
                f"results are neither stored nor reused: {self._not_stored}", stacklevel=7
            )
            return None
        options = {"uproot": dict(uproot_options), "iteritems": dict(iteritems_options)}
        try:
            return Work.of(processor, self.schema, options)
        except FingerprintError as error:
            self._not_stored = str(error)
            self._warn_of_not_storing()
            return None

    def _warn_of_not_storing(self) -> None:
        warnings.warn(f"results are neither stored nor reused: {self._not_stored}", stacklevel=8)

    def _note(self, record: RunRecord, history: RunHistory, work: str) -> None:
        """Remember what a run that is done teaches the next ones."""
        history.learn(record.chunks, [*record.columns, *self._derived_columns])
        if not self._remembers:
            return
        with Catalogue(settings().catalogue, patience_s=_PATIENCE_S) as catalogue:
            history.save(catalogue, work)
            if self.remember:
                note_run(catalogue, record, self._kept_calls())

    def _find_known_calls(self, catalogue: Catalogue) -> frozenset[tuple[str, str]] | None:
        """Return datasets and names of the derived columns whose calls are kept already."""
        if not self.remember or self.use_dataframes:
            return None
        last = last_run(catalogue)
        if last is None or not has_calls(calls_directory()):
            return frozenset()
        return frozenset(
            (dataset, name)
            for dataset, names in last.derived.items()
            for name, kept in names.items()
            if kept
        )

    def _kept_calls(self) -> dict[str, dict[str, bool]]:
        """Keep the calls of marked functions; return which are kept, by dataset and name."""
        if not self._calls:
            return {}
        try:
            return save_calls(
                calls_directory(),
                self._calls,
                self._known_calls or (),
                self.schema,
                self._iteritems_options,
            )
        except (OSError, ResultNotStoredError) as error:
            warnings.warn(f"derived columns can't be warmed like this run: {error}", stacklevel=4)
            return {}

    def _recorded(
        self, out: dict[str, Any], began: float, wall_s: float, processor: Any
    ) -> RunRecord:
        """Take what was recorded out of a run's result, and return it as one record."""
        chunks = [chunk.attributed() for chunk in out.pop(RECORDS, [])]
        names = out.pop(COLUMNS, ())
        self._calls = out.pop(CALLS, set())
        self._derived_columns = sorted(filter(is_derived, names))
        columns = [name for name in names if not is_derived(name)]
        missing = [*self._unopened.missing, *out.pop(SKIPPED, []), *out.pop(FAILED, [])]
        not_stored, uncached = out.pop(NOT_STORED, {}), out.pop(UNCACHED, {})
        if self._not_stored:
            not_stored[self._not_stored] = len(chunks)
        done = out.pop(CLUSTER_RUN, ClusterRun())
        places = place_uses(self._places, *(chunk.places for chunk in chunks))
        self._places = {}
        hosts = dict(done.threads)
        for chunk in chunks:
            hosts.setdefault(chunk.host, 1)
        return RunRecord(
            run=done.run,
            name=self.name,
            began=began,
            wall_s=wall_s,
            hosts=hosts,
            chunks=chunks,
            settings={
                "chunksize": self.chunksize,
                "schema": getattr(self.schema, "__name__", ""),
                "cache": settings().cache_mode,
                "results": self.results,
                "processor": code_name(processor),
                **self.notes,
            },
            versions=versions(),
            skipped=[part for part in missing if part.outcome == "skipped"],
            failed=[part for part in missing if part.outcome == "failed"],
            not_stored=not_stored,
            uncached=uncached,
            overdue=list(done.overdue),
            columns=sorted(columns),
            stored_bytes=done.stored_bytes,
            stored_raw_bytes=done.stored_raw_bytes,
            unkept_bytes=done.unkept_bytes,
            first_chunk_s=self._first_chunk_s(chunks),
            places=places,
        )

    def _first_chunk_s(self, chunks: Sequence[ChunkRecord]) -> float | None:
        """Return how long the cluster's first workers took, for the first run they did."""
        if not isinstance(self.executor, Executor) or not chunks:
            return None
        cluster = getattr(self.executor.client or current_client(), "cluster", None)
        take = getattr(cluster, "take_scaled_at", None)
        scaled_at = None if take is None else take()
        return None if scaled_at is None else min(chunk.began for chunk in chunks) - scaled_at


def _chunk(item: WorkItem, record: FileRecord, boundaries: tuple[int, ...], run: str) -> Chunk:
    """Return a work item with what the catalogue knows of its file."""
    return Chunk(
        **vars(item),
        content=Content(
            tag=record.tag,
            validator=record.validator,
            boundaries=boundaries,
            replaces=record.replaces,
            run=run,
            places=record.places,
        ),
    )


def _check_accounts(
    chunks: Sequence[WorkItem], record: RunRecord, before: Sequence[MissingChunk]
) -> None:
    """Raise ``ProcessorError`` unless every event is in the result or known to be missing.

    ``before``: what was missing before any chunk was processed.
    """
    expected = sum(map(len, chunks))
    counted = sum(chunk.events for chunk in record.chunks)
    counted += record.lacking_events - sum(part.events or 0 for part in before)
    if counted != expected:
        raise ProcessorError(
            f"of {expected:,} events the executor accounts for {counted:,}: the result is not to "
            "be trusted; run again, and report this"
        )


def _postprocess(processor: Any, out: dict[str, Any]) -> None:
    """Let a processor finish what its chunks add up to, as coffea does."""
    if callable(postprocess := getattr(processor, "postprocess", None)):
        finished = postprocess(out["out"])
        if finished is not None:
            out["out"] = finished


def _as_coffea_takes_it(fileset: Any, treename: str | None) -> tuple[Any, str | None]:
    """Return a fileset and the tree of its files in the forms that coffea knows."""
    if isinstance(fileset, Fileset):
        return fileset.to_coffea(treename=treename), None
    return (os.fspath(fileset) if isinstance(fileset, os.PathLike) else fileset), treename


def _work_items(given: Any) -> list[WorkItem]:
    """Return the chunks that a user cut before.

    Raises ``BadFilesetError``: it is something else.
    """
    items = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(item, WorkItem) for item in items):
        kinds = sorted({type(item).__name__ for item in items})
        raise BadFilesetError(
            "Expected fileset to be a mapping dataset: list(files) or filename, found "
            f"{type(given).__name__} of {', '.join(kinds)}; hepcache.load_fileset() makes one of "
            "paths, globs and directories"
        )
    return items


def _ours(executor: ExecutorBase) -> ExecutorBase:
    """Return our executor in the place of coffea's own for Dask, and any other as it is."""
    if type(executor) is not DaskExecutor:
        return executor
    return Executor(**{**vars(executor), "worker_affinity": False})


@contextmanager
def _only_warning(loss: str) -> Iterator[None]:
    """Warn instead of failing: the run is done, and only what is noted of it is lost."""
    try:
        yield
    except Exception as error:
        warnings.warn(f"the run is done, but {loss}: {error or repr(error)}", stacklevel=4)


def _coffeas(error: BadFileError) -> BadFileError:
    """Return an error about a file with coffea's type for a tree that is not there."""
    if not issubclass(error.kind, KeyInFileError):
        return error
    coffeas = BadFileError(error.problems, UprootMissTreeError)
    coffeas.__cause__ = error.__cause__
    return coffeas
