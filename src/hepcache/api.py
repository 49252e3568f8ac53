"""Analyse a fileset on a cluster with one call, or only warm its caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import filter as matching
from typing import Any, Literal

from coffea.nanoevents import BaseSchema, NanoAODSchema
from distributed import Client

from hepcache.catalogue import Catalogue, columns_of, expand
from hepcache.fileset import Fileset, load_fileset
from hepcache.process import Executor, Runner
from hepcache.process.derived_maker import DerivedMaker, load_maker
from hepcache.process.run_history import calls_directory, last_run
from hepcache.report import RunRecord

__all__ = ["analyse", "choose_columns", "derived_maker", "warm"]


def analyse(
    fileset: Fileset | Mapping[str, Any] | str | Iterable[str],
    processor: Any,
    *,
    cluster: Any,
    treename: str = "Events",
    schema: type | None = None,
    chunksize: int = 100_000,
    maxchunks: int | None = None,
    skipbadfiles: bool | tuple[type[BaseException], ...] = False,
    columns: Iterable[str] | None = None,
    status: bool = True,
    name: str = "run",
    trace: Callable[..., Any] | None = None,
    remember: bool = True,
    divisible: bool = False,
    failures: Literal["raise", "collect"] = "raise",
    results: Literal["compute", "reuse"] = "compute",
) -> tuple[Any, RunRecord]:
    """Run a processor over a fileset once.

    Parameters
    ----------
    fileset
        Anything that :func:`hepcache.fileset.load_fileset` reads.
    processor
        A coffea processor, or a callable that takes the events.
    cluster
        A cluster of hepcache, or a client of one.
    treename
        Tree of files for which the fileset names none.
    schema
        coffea's schema; NanoAODSchema by default.
    chunksize, maxchunks, skipbadfiles
        As in coffea's Runner.
    columns
        Columns to fetch at once before the processor starts.
    status
        Show a progress bar.
    name
        Name of the run in its record.
    trace
        As in coffea's Runner: finds the columns to fetch at once.
    remember
        Record the columns, for ``hepcache cache warm --like last``.
    divisible
        Cut the last long chunks, as :class:`~hepcache.Runner` does.
    failures, results
        What happens if a chunk fails, and whether results of chunks are
        stored and reused, as for :class:`~hepcache.Runner`.

    Returns
    -------
    output
        The sum of the processor's results, after ``postprocess``.
    record : RunRecord
        The record of the run: chunks, hosts, bytes by source.

    Raises
    ------
    BadFilesetError, BadFileError
        Before anything runs; all bad files are named at once.
    """
    files = load_fileset(fileset, treename=treename)
    if columns is not None:
        preload = frozenset(columns)
        files = Fileset(replace(spec, preload=preload) for spec in files)
    with _client_of(cluster) as client:
        runner = Runner(
            executor=Executor(client=client, status=status),
            schema=NanoAODSchema if schema is None else schema,
            chunksize=chunksize,
            maxchunks=maxchunks,
            skipbadfiles=skipbadfiles,
            name=name,
            remember=remember,
            divisible=divisible,
            failures=failures,
            results=results,
        )
        output = runner(files, processor, treename=treename, trace=trace)
    return output, _record_of(runner)


@contextmanager
def _client_of(cluster: Any) -> Iterator[Client]:
    """Lend a client of a cluster; one that was given stays open."""
    client = cluster if isinstance(cluster, Client) else cluster.client()
    try:
        yield client
    finally:
        if client is not cluster:
            client.close()


def _record_of(runner: Runner) -> RunRecord:
    if runner.run_record is None:
        raise AssertionError("unreachable: a run that returns has a record")
    return runner.run_record


def warm(
    fileset: Fileset | Mapping[str, Any] | str | Iterable[str],
    columns: Sequence[str],
    *,
    cluster: Any,
    treename: str = "Events",
    chunksize: int = 100_000,
    skipbadfiles: bool | tuple[type[BaseException], ...] = False,
    status: bool = True,
    derived: DerivedMaker | None = None,
) -> RunRecord:
    """Read columns onto the hosts that will process them, and do nothing else.

    Parameters
    ----------
    fileset, cluster, treename, chunksize, skipbadfiles, status
        As for :func:`analyse`.
    columns
        Names of columns, or patterns as in a shell, such as ``"Jet_*"``.
    derived
        Also makes the derived columns that a run used; :func:`derived_maker` returns it.

    Returns
    -------
    RunRecord
        The columns that were read and those that were cached already; ``record.derived`` has
        the same for derived columns.

    Raises
    ------
    ConfigurationError
        A name or a pattern matches no column of any file; the message names
        similar ones.
    """
    files = load_fileset(fileset, treename=treename)
    chosen = choose_columns(files, columns, skipbadfiles=bool(skipbadfiles), status=status)
    preload = frozenset(chosen)
    with _client_of(cluster) as client:
        runner = Runner(
            executor=Executor(client=client, status=status),
            schema=BaseSchema if derived is None else derived.schema,
            chunksize=chunksize,
            skipbadfiles=skipbadfiles,
            name="warm",
            remember=False,
        )
        runner(
            Fileset(replace(spec, preload=preload) for spec in files),
            _number if derived is None else derived,
            treename=treename,
            iteritems_options=None if derived is None else derived.iteritems_options,
        )
    return _record_of(runner)


def derived_maker() -> DerivedMaker | None:
    """Return a maker of the derived columns that the last run used, for :func:`warm`.

    Returns
    -------
    DerivedMaker or None
        ``None`` if no run was recorded, or the last one used no derived column.

    Raises
    ------
    CatalogueError
        The catalogue can't be read.
    CacheDirectoryError
        Others could access the directory beside it that stores the calls.
    """
    with Catalogue.from_settings() as catalogue:
        last = last_run(catalogue)
    return None if last is None else load_maker(calls_directory(), last.derived)


def choose_columns(
    fileset: Fileset | Mapping[str, Any] | str | Iterable[str],
    patterns: Sequence[str],
    *,
    treename: str = "Events",
    skipbadfiles: bool = False,
    absent: Literal["raise", "skip"] = "raise",
    status: bool = True,
) -> list[str]:
    """Return the columns of a fileset that match patterns.

    Parameters
    ----------
    fileset, treename, skipbadfiles, status
        As for :func:`analyse`.
    patterns
        Names of columns, or patterns as in a shell, such as ``"Jet_*"``.
    absent
        What happens if a pattern matches no column of any file.

    Raises
    ------
    ConfigurationError
        A pattern matches nothing; the message names similar columns.
    """
    files = load_fileset(fileset, treename=treename)
    on_bad: Literal["raise", "skip"] = "skip" if skipbadfiles else "raise"
    with Catalogue.from_settings() as catalogue:
        found, _ = catalogue.records(files, on_bad=on_bad, progress=status)
        there = columns_of(catalogue, (record for _, record in found))
    if absent == "skip":
        patterns = [
            pattern for pattern in patterns if pattern in there or matching(there, pattern)
        ]
    return expand(patterns, there)


def _number(events: Any) -> dict[str, int]:
    return {"events": len(events)}
