"""One call that analyses a fileset on a cluster and says what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coffea.nanoevents import NanoAODSchema
from distributed import Client

from hepcache.fileset import Fileset, load_fileset
from hepcache.process import Executor, Runner
from hepcache.report.record import RunRecord

__all__ = ["analyse"]


def analyse(
    fileset: Fileset | Mapping[str, Any] | str | Iterable[str],
    processor: Any,
    *,
    cluster: Any,
    treename: str = "Events",
    schema: type | None = None,
    chunksize: int = 100_000,
    maxchunks: int | None = None,
    skipbadfiles: bool = False,
    columns: Iterable[str] | None = None,
    status: bool = True,
    name: str = "run",
    trace: Callable[..., Any] | None = None,
) -> tuple[Any, RunRecord]:
    """Run a processor over a fileset once.

    Parameters
    ----------
    fileset
        Whatever :func:`hepcache.fileset.load_fileset` reads.
    processor
        A coffea processor, or a callable that takes the events.
    cluster
        A cluster of hepcache's, or a client of one.
    treename
        Tree of files that name none.
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

    Returns
    -------
    output
        What the processor's chunks add up to, after ``postprocess``.
    record : RunRecord
        What was done: chunks, hosts, bytes by source.

    Raises
    ------
    BadFilesetError, BadFileError
        Before anything runs; all bad files are named at once.
    """
    files = load_fileset(fileset, treename=treename).to_coffea()
    if columns is not None:
        preload = sorted(set(columns))
        files = {dataset: {**entry, "preload": preload} for dataset, entry in files.items()}
    client = cluster if isinstance(cluster, Client) else cluster.client()
    runner = Runner(
        executor=Executor(client=client, status=status),
        schema=NanoAODSchema if schema is None else schema,
        chunksize=chunksize,
        maxchunks=maxchunks,
        skipbadfiles=skipbadfiles,
        name=name,
    )
    try:
        output = runner(files, processor, treename=treename, trace=trace)
    finally:
        if client is not cluster:
            client.close()
    if runner.run_record is None:
        raise AssertionError("unreachable: a run that returns has a record")
    return output, runner.run_record
