"""hepcache's Runner: coffea's, reading through the cache and recording what it did."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hepcache.chunks import cut, segment_boundaries
from hepcache.fileset import Catalogue, FileRecord, Fileset, FileSpec
from hepcache.process.executor import Executor, Journal, current_client
from hepcache.process.experience import Experience
from hepcache.process.kernel import kernel_uses, looks
from hepcache.process.last import note_run
from hepcache.process.upstream import (
    DaskExecutor,
    ExecutorBase,
    FileMeta,
    WorkItem,
    coffea_work,
)
from hepcache.process.upstream import Runner as CoffeaRunner
from hepcache.process.work import COLUMNS, RECORDS, Chunk, process_chunk
from hepcache.report.record import RunRecord, versions
from hepcache.settings import settings
from hepcache.telemetry import ChunkRecord

__all__ = ["Runner"]


@dataclass
class Runner(CoffeaRunner):
    """Run a coffea processor over a fileset, cycle after cycle, from the hosts' caches.

    It takes what ``coffea.processor.Runner`` takes, or what
    :func:`hepcache.load_fileset` returns, and returns what coffea's returns;
    processors run unmodified.

    Parameters
    ----------
    executor
        A ``hepcache.Executor``; coffea's ``DaskExecutor`` is taken as one,
        with its client and options; coffea's local executors read through
        this machine's cache; ``None`` stands for the current Dask client.
    name
        Name of the run in its record.
    remember
        Note the columns, for ``hepcache cache warm --like last``.
    run_record
        What the last run did; ``None`` before the first.

    Notes
    -----
    Files are known from the catalogue after their first run, and looked at
    again cheaply each time. Chunks are cut at segment boundaries where the
    chunksize allows.
    """

    executor: ExecutorBase | None = None
    name: str = "run"
    remember: bool = True
    run_record: RunRecord | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.executor is None:
            self.executor = Executor()
        elif type(self.executor) is DaskExecutor:
            options = {**vars(self.executor), "worker_affinity": False}
            self.executor = Executor(**options)
        super().__post_init__()
        self._known: dict[tuple[str, str], FileRecord] = {}
        self._problems: dict[str, str] = {}

    def _preprocess_fileset_root(
        self, fileset: list[FileMeta], uproot_options: Mapping[str, Any]
    ) -> None:
        options = {**uproot_options, "timeout": uproot_options.get("timeout", self.xrootdtimeout)}
        specs = [
            FileSpec(meta.dataset, meta.filename, meta.treename, None, None) for meta in fileset
        ]
        with Catalogue(settings().catalogue) as catalogue:
            found, self._problems = catalogue.records(
                specs,
                on_bad="skip" if self.skipbadfiles else "raise",
                options=options,
                progress=getattr(self.executor, "status", True),
            )
        self._known.update({(spec.path, spec.tree or ""): record for spec, record in found})
        for meta in fileset:
            record = self._known.get((meta.filename, meta.treename))
            if record is not None:
                meta.metadata = {
                    **(meta.metadata or {}),
                    "numentries": record.entries,
                    "uuid": UUID(record.uuid).bytes,
                    "clusters": list(record.clusters),
                }

    def _chunk_generator(self, fileset: list[FileMeta], treename: str) -> Iterator[WorkItem]:
        if self.format != "root":
            yield from super()._chunk_generator(fileset, treename)
            return
        made: defaultdict[str, int] = defaultdict(int)
        for meta in fileset:
            for chunk in self._chunks(meta):
                if self.maxchunks is not None and made[meta.dataset] >= self.maxchunks:
                    break
                made[meta.dataset] += 1
                yield chunk

    def _chunks(self, meta: FileMeta) -> Iterator[Chunk]:
        record = self._known[meta.filename, meta.treename]
        boundaries = segment_boundaries(record.clusters, settings().segment_entries)
        ours = {"numentries", "uuid", "clusters"}
        user = {key: value for key, value in meta.metadata.items() if key not in ours}
        clusters = record.clusters if self.align_clusters else None
        for start, stop in cut(boundaries, self.chunksize, clusters=clusters):
            yield Chunk(
                meta.dataset, meta.filename, meta.treename, start, stop, UUID(record.uuid).bytes,
                user, meta.preload, record.tag, record.validator, boundaries, record.replaces,
            )  # fmt: skip

    def _known_chunks(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Return work items that coffea cut, with what the catalogue knows of their files."""
        if self.format != "root" or all(isinstance(item, Chunk) for item in items):
            return list(items)
        metas = {
            (item.filename, item.treename): FileMeta(item.dataset, item.filename, item.treename)
            for item in items
        }
        self._preprocess_fileset_root(list(metas.values()), {})
        chunks = []
        for item in items:
            record = self._known[item.filename, item.treename]
            boundaries = segment_boundaries(record.clusters, settings().segment_entries)
            chunks.append(
                Chunk(**vars(item), tag=record.tag, validator=record.validator,
                      boundaries=boundaries, replaces=record.replaces)
            )  # fmt: skip
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

        Parameters
        ----------
        fileset
            What :func:`hepcache.load_fileset` returns, or whatever coffea's
            ``Runner`` takes.
        processor_instance
            A coffea processor, or a callable that takes the events.
        treename
            Tree of files that name none. In a :class:`~hepcache.fileset.Fileset`
            a file's own tree comes first; otherwise it is as in coffea.
        **options
            ``uproot_options``, ``iteritems_options`` and ``trace``, as in coffea.

        Returns
        -------
        Any
            What the processor's chunks add up to, after ``postprocess``.
        """
        return super().__call__(fileset, processor_instance, treename=treename, **options)

    def preprocess(
        self, fileset: Any, *, treename: str | None = None, **options: Any
    ) -> Iterator[WorkItem]:
        """Return the chunks of a fileset, which :meth:`run` takes; as in coffea."""
        if isinstance(fileset, Fileset):
            fileset, treename = fileset.to_coffea(treename=treename), None
        chunks: Iterator[WorkItem] = super().preprocess(fileset, treename=treename, **options)
        return chunks

    def _run_impl(
        self, fileset: Any, processor_instance: Any, *, treename: str | None = None, **options: Any
    ) -> Any:
        if isinstance(fileset, Fileset):
            fileset, treename = fileset.to_coffea(treename=treename), None
        if not isinstance(fileset, Mapping | str):
            fileset = self._known_chunks(list(fileset))
        began, clock = time.time(), time.perf_counter()
        self._problems, kernels = {}, looks(self.executor)
        work = self._work(processor_instance)
        journal = getattr(self.executor, "journal", Journal())
        with Catalogue(settings().catalogue) as catalogue:
            journal.experience = Experience.load(catalogue, work)
        # coffea's clusters are promised to come whole; checkpoints are named by entries.
        journal.divisible = not self.align_clusters and self.checkpointer is None
        out = super()._run_impl(fileset, processor_instance, treename=treename, **options)
        if isinstance(out, dict):
            records, columns = out.pop(RECORDS, []), out.pop(COLUMNS, set())
            journal.experience.learn(records, columns)
            with Catalogue(settings().catalogue) as catalogue:
                journal.experience.save(catalogue, work)
            uses = kernel_uses(kernels, looks(self.executor, {one.path for one in records}))
            record = self._recorded(records, columns, began, time.perf_counter() - clock)
            self.run_record = replace(record, kernels=uses)
            if self.remember:
                note_run(self.run_record)
        return out

    def _work(self, processor: Any) -> str:
        """Return the name under which to remember how long this kind of work takes."""
        kind = processor if hasattr(processor, "__qualname__") else type(processor)
        schema = getattr(self.schema, "__qualname__", "")
        return f"{kind.__module__}.{kind.__qualname__}/{schema}"

    def _recorded(
        self, records: list[ChunkRecord], columns: set[str], began: float, wall_s: float
    ) -> RunRecord:
        journal = getattr(self.executor, "journal", None)
        chunks = [one.attributed() for one in records]
        hosts = dict(journal.threads) if journal is not None else {}
        for chunk in chunks:
            hosts.setdefault(chunk.host, 1)
        return RunRecord(
            run=journal.run if journal is not None else "",
            name=self.name,
            began=began,
            wall_s=wall_s,
            hosts=hosts,
            chunks=chunks,
            settings={
                "chunksize": self.chunksize,
                "schema": getattr(self.schema, "__name__", ""),
                "cache": settings().cache_mode,
            },
            versions=versions(),
            problems=self._problems,
            columns=sorted(columns),
            stored_bytes=journal.stored[0] if journal is not None else 0,
            stored_raw_bytes=journal.stored[1] if journal is not None else 0,
            first_chunk_s=self._first_chunk_s(chunks),
        )

    def _first_chunk_s(self, chunks: Sequence[ChunkRecord]) -> float | None:
        """Return how long the cluster's first workers took, for the first run they did."""
        if not isinstance(self.executor, Executor) or not chunks:
            return None
        cluster = getattr(self.executor.client or current_client(), "cluster", None)
        take = getattr(cluster, "take_scaled_at", None)
        scaled_at = None if take is None else take()
        return None if scaled_at is None else min(one.began for one in chunks) - scaled_at

    @staticmethod
    def _work_function(
        format: str,  # noqa: A002 - coffea's name
        xrootdtimeout: int,
        schema: Any,
        use_dataframes: bool,
        savemetrics: bool,
        item: Any,
        processor_instance: Any,
        uproot_options: Mapping[str, Any],
        iteritems_options: Mapping[str, Any],
        checkpointer: Any,
        cache_function: Any,
    ) -> Any:
        work, processor = item if processor_instance == "heavy" else (item, processor_instance)
        if use_dataframes or not isinstance(work, Chunk):
            return coffea_work(
                format, xrootdtimeout, schema, use_dataframes, savemetrics, item,
                processor_instance, uproot_options, iteritems_options, checkpointer,
                cache_function,
            )  # fmt: skip
        return process_chunk(
            work,
            processor,
            schema=schema,
            savemetrics=savemetrics,
            uproot_options={"timeout": xrootdtimeout, **uproot_options},
            iteritems_options=iteritems_options,
            checkpointer=checkpointer,
            buffer_cache=cache_function,
        )
