"""A host with an empty cache beside one that holds every column, behind one link to the files."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import dask.config
import typer

from hepcache.bench.frame import no_file_known, progress
from hepcache.bench.result import BenchResult
from hepcache.errors import HepcacheError

__all__ = ["bench"]

_HOLDER, _LACKING = "host-0", "host-1"
_SOURCES = {"origin": False, "neighbour": True}


@dataclass(frozen=True, slots=True)
class _Plan:
    """``files`` of ``entries`` each; ``rounds`` of both sources in turn."""

    files: int = 4
    entries: int = 50_000
    rounds: int = 3
    origin_bandwidth: str = "100 MB/s"


_QUICK = _Plan(files=2, entries=10_000, rounds=1, origin_bandwidth="20 MB/s")


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,  # noqa: ARG001
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Runs from each source: 3, with --quick 1.")
    ] = None,
    origin_bandwidth: Annotated[
        str | None, typer.Option(help="Of the link to the files: 100 MB/s, with --quick 20 MB/s.")
    ] = None,
) -> BenchResult:
    """Let a host with an empty cache read from the origin, and from another host's cache.

    One host reads the files first. Then another one, with an empty cache each time, goes through
    the same chunks, with and without its neighbour, in turn. Both are on this machine, so the
    connection between them is as fast as memory; the link to the files is emulated.
    """
    plan = _QUICK if quick else _Plan()
    plan = _Plan(
        plan.files, plan.entries, rounds or plan.rounds, origin_bandwidth or plan.origin_bandwidth
    )
    rows = _rows(plan)
    walls = {
        source: median(row["wall_s"] for row in rows if row["source"] == source)
        for source in _SOURCES
    }
    return BenchResult(
        "neighbours", rows, {"origin_over_neighbour": walls["origin"] / walls["neighbour"]}
    )


def _rows(plan: _Plan) -> list[dict[str, Any]]:
    from coffea.nanoevents import BaseSchema
    from coffea.processor import DaskExecutor

    from hepcache.bench.plan import BENCHMARK_COLUMNS
    from hepcache.bench.reading import ReadColumns
    from hepcache.clusters import LocalCluster
    from hepcache.process import Runner
    from hepcache.process.worker import store_pending
    from hepcache.samples.nanoaod import write_nanoaod

    rows = []
    with tempfile.TemporaryDirectory(prefix="hepcache-neighbours-") as scratch:
        directory = Path(scratch)
        progress.print(f"Writing {plan.files} files of {plan.entries:,} events")
        paths = write_nanoaod(
            directory / "files", events=plan.files * plan.entries, files=plan.files,
            cluster=plan.entries // 5, branches=BENCHMARK_COLUMNS, jobs=1,
        )  # fmt: skip
        fileset = {"sample": {"files": {str(path): "Events" for path in paths}}}
        processor = ReadColumns(BENCHMARK_COLUMNS)
        with (
            no_file_known(directory),
            dask.config.set({"hepcache.segment.entries": plan.entries // 5}),
            LocalCluster(
                hosts=2, workers_per_host=1, cache_directory=directory / "caches",
                origin_bandwidth=plan.origin_bandwidth,
            ) as cluster,
            cluster.client() as client,
        ):  # fmt: skip
            client.wait_for_workers(2)
            hosts = {host: address for address, host in client.run(_host_name).items()}
            run = Runner(
                DaskExecutor(client=client, status=False), schema=BaseSchema,
                chunksize=plan.entries // 5,
            )  # fmt: skip

            def processed(worker: str) -> tuple[Any, Any]:
                """Return the output and the record of a run on one host alone."""
                for host, address in hosts.items():
                    status = "running" if host == worker else "paused"
                    client.run_on_scheduler(_set_status, address=address, status=status)
                output = run(fileset, processor)
                client.run(store_pending)
                record = run.run_record
                if record is None or {chunk.host for chunk in record.chunks} != {worker}:
                    raise HepcacheError(f"not every chunk was processed on {worker}")
                return output, record

            progress.print("Reading everything on one host")
            expected, _ = processed(_HOLDER)
            # The first chunks of a process pay for its imports.
            processed(_LACKING)
            for number in range(plan.rounds):
                for source, on in _SOURCES.items():
                    progress.print(f"Round {number + 1} of {plan.rounds}: {source}")
                    client.run(_begin_cold, on=on, workers=[hosts[_LACKING]])
                    output, record = processed(_LACKING)
                    if output != expected:
                        raise HepcacheError(f"from the {source} came {output}, not {expected}")
                    rows.append(_row(source, record))
    return rows


def _row(source: str, record: Any) -> dict[str, Any]:
    from hepcache.report.summary import summarise

    summary = summarise(record)
    began = min(chunk.began for chunk in record.chunks)
    wall_s = max(chunk.ended for chunk in record.chunks) - began
    decoded = sum(summary.cause_bytes.values())
    return {
        "source": source,
        "wall_s": wall_s,
        "decoded_bytes": decoded,
        "decoded_bytes_per_s": decoded / wall_s,
        "neighbour_bytes": summary.neighbour_bytes,
        "origin_bytes": summary.origin_bytes,
    }


def _host_name() -> str:
    from hepcache.settings import settings

    return settings().host


def _begin_cold(*, on: bool) -> None:
    """Empty a host's cache, and let it ask its neighbours or not."""
    from hepcache.cache.admin import clear
    from hepcache.process.worker_state import worker_state

    dask.config.set({"hepcache.cache.neighbours": on})
    clear(worker_state().cache)
    worker_state().neighbourhood.forget()


def _set_status(dask_scheduler: Any, address: str, status: str) -> None:
    dask_scheduler.handle_worker_status_change(status, worker=address, stimulus_id="bench")
