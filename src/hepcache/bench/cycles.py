"""The published benchmark: the same columns of the same events, cycle after cycle.

Every chunk reads about 120 columns (leptons, jets, generator particles, event
quantities) and does nothing with them, so that the time is that of reading.
The first cycle starts with empty caches, an empty catalogue and, where the
kernel permits, without the files in its page cache.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

import dask.config
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from hepcache.bench.frame import drop_page_cache, no_file_known, progress
from hepcache.bench.plan import QUICK, CyclesPlan
from hepcache.bench.result import BenchResult
from hepcache.errors import ClusterError, ConfigurationError
from hepcache.fileset import Fileset
from hepcache.io.emulated_link import bytes_per_s
from hepcache.report import CycleReport, RunRecord
from hepcache.report.render.tables import CYCLE_HEADINGS, cycle_row
from hepcache.settings import settings


def run_cycles(
    plan: CyclesPlan,
    *,
    title: str = "Cycles",
    note: Callable[[str], None] = lambda _: None,
    on_cycle: Callable[[CycleReport], None] = lambda _: None,
    cluster: Any = None,
) -> CycleReport:
    """Run the cycles on a local cluster of their own, or on one that is there.

    ``cluster``: a cluster with cold caches that sees ``plan.directory``; it takes the place of the
    simulated hosts.
    It returns one record per cycle.
    Raises ``ConfigurationError``: a number is not positive, or the files lack the columns.
    Raises ``ClusterError``: a cycle did not read what the first one read.
    """
    if plan.cycles < 1:
        raise ConfigurationError("cycles", "a positive number", plan.cycles)
    settings()  # finds a bad value before anything has been made
    if plan.origin_bandwidth is not None:
        bytes_per_s(plan.origin_bandwidth)
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="hepcache-cycles-", dir=plan.directory)
            )
        )
        stack.enter_context(no_file_known(scratch))
        if plan.files is None:
            segment = {"hepcache.segment.entries": plan.sample.cluster_entries}
            stack.enter_context(dask.config.set(segment))
        fileset = plan.fileset(scratch, note)
        columns = plan.columns_of(fileset)
        return _run(plan, fileset, columns, scratch, title, note, on_cycle, cluster)


def _run(
    plan: CyclesPlan,
    fileset: Fileset,
    columns: Sequence[str],
    scratch: Path,
    title: str,
    note: Callable[[str], None],
    on_cycle: Callable[[CycleReport], None],
    given: Any,
) -> CycleReport:
    # Imported here: coffea takes seconds, and the command's --help must not.
    from coffea.nanoevents import BaseSchema

    from hepcache.api import analyse
    from hepcache.bench.reading import ReadColumns
    from hepcache.clusters import LocalCluster

    processor = ReadColumns(columns, missing="raise" if plan.columns else "skip")
    records: list[RunRecord] = []
    outputs: list[Any] = []
    with ExitStack() as stack:
        cluster = given
        if cluster is None:
            workers = plan.hosts * plan.workers_per_host
            note(f"Starting {_counted(plan.hosts, 'host')}, {_counted(workers, 'worker')}")
            local = LocalCluster(
                hosts=plan.hosts,
                workers_per_host=plan.workers_per_host,
                cache_directory=scratch / "caches",
                origin_bandwidth=plan.origin_bandwidth,
            )
            cluster = stack.enter_context(local)
        drop_page_cache(spec.path for spec in fileset)
        for number in range(1, plan.cycles + 1):
            note(f"Cycle {number} of {plan.cycles}")
            output, record = analyse(
                fileset,
                processor,
                cluster=cluster,
                schema=BaseSchema,
                columns=columns,
                chunksize=plan.entries_per_chunk,
                status=False,
                name=f"cycle {number}",
            )
            outputs.append(output)
            if output != outputs[0]:
                raise ClusterError(f"cycle {number} read {output}, cycle 1 read {outputs[0]}")
            records.append(_with_settings(record, plan, columns))
            on_cycle(CycleReport(tuple(records), title))
    return CycleReport(tuple(records), title)


def cycles_result(report: CycleReport) -> BenchResult:
    """Return a report's figures as a benchmark's result: a row per cycle, and ratios.

    The ratios of cycle 2 are left out where there is none.
    """
    first = report.summaries[0]
    last = report.summaries[-1]
    rows = [
        {
            "cycle": number,
            "wall_s": cycle.wall_s,
            "speed_up": speed_up,
            "events_per_s": cycle.events_per_s,
            "core_events_per_s": cycle.events_per_s / max(cycle.threads, 1),
            "hit_ratio": cycle.hit_ratio,
            "cache_bytes": cycle.cache_bytes,
            "origin_bytes": cycle.origin_bytes,
            "stolen": cycle.stolen_chunks,
            "tail_s": cycle.tail_s,
        }
        for number, (cycle, speed_up) in enumerate(
            zip(report.summaries, report.speed_ups, strict=True), start=1
        )
    ]
    ratios = {"cycle1_over_last": first.wall_s / last.wall_s}
    if len(report) > 1:
        second = report.summaries[1]
        ratios = {
            "cycle1_over_cycle2": first.wall_s / second.wall_s,
            **ratios,
            "hit_ratio_cycle2": second.hit_ratio,
            "origin_bytes_cycle2": float(second.origin_bytes),
        }
    return BenchResult("cycles", rows, ratios)


def bench(
    *,
    more_files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILES]...", help="More of --files.")
    ] = None,
    quick: bool = False,
    out: Path | None = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            help="ROOT file, glob, directory or a fileset's JSON; may be given several times. "
            "A sample is made by default."
        ),
    ] = None,
    cycles: Annotated[
        int | None, typer.Option(min=1, help="Consecutive cycles: 10, with --quick 3.")
    ] = None,
    hosts: Annotated[int, typer.Option(min=1, help="Simulated hosts.")] = 2,
    workers_per_host: Annotated[int, typer.Option(min=1, help="Workers of a host.")] = 1,
    chunksize: Annotated[
        int | None,
        typer.Option(min=1, help="Entries per chunk: 100000, for the sample a file's cluster."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns to read, separated by commas; the published ones by default."),
    ] = None,
    origin_bandwidth: Annotated[
        str | None,
        typer.Option(
            help="Emulate one link between all workers and the files, such as 20MB/s. "
            "With --quick 4MB/s, else none."
        ),
    ] = None,
    events: Annotated[
        int | None, typer.Option(min=1, help="Events of the sample: 100000, with --quick 12000.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where sample and caches are for the time of the run.", exists=True),
    ] = None,
) -> BenchResult:
    """Read about 120 columns of every event, several cycles in a row, cold at first.

    The published system, behind one file server, was 6.3 times faster in the
    second cycle and 14.9 times in the tenth. --out DIR also receives the report
    as report.json and report.html.
    """
    plan = QUICK if quick else CyclesPlan()
    given: dict[str, Any] = {
        "files": [*(files or []), *(more_files or [])] or None,
        "cycles": cycles,
        "hosts": hosts,
        "workers_per_host": workers_per_host,
        "chunksize": chunksize,
        "columns": None if columns is None else [name.strip() for name in columns.split(",")],
        "origin_bandwidth": origin_bandwidth,
        "directory": directory,
        "sample": None if events is None else replace(plan.sample, events=events),
    }
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    with LiveCycles() as live:
        report = run_cycles(plan, title="Cycles", note=live.note, on_cycle=live.cycle)
    if out is not None:
        report.to_json(out / "report.json")
        report.to_html(out / "report.html")
    return cycles_result(report)


class LiveCycles:
    """Shows cycles as they end: a table in a terminal, a line each elsewhere."""

    def __init__(self, console: Console = progress) -> None:
        self._console = console
        self._report: CycleReport | None = None
        # It vanishes in the end: the caller prints the result.
        self._live = Live(console=console, transient=True, refresh_per_second=8)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Say what is being done now."""
        if self._console.is_terminal:
            above: list[RenderableType] = [self._report] if self._report else []
            self._live.update(Group(*above, Spinner("dots", text)))
        else:
            self._console.print(text, soft_wrap=True)

    def cycle(self, report: CycleReport) -> None:
        """Show the report so far; its last cycle has just ended."""
        self._report = report
        if not self._console.is_terminal:
            first, last = report.summaries[0], report.summaries[-1]
            row = cycle_row(len(report), last, first.wall_s)
            cells = zip(CYCLE_HEADINGS, row, strict=True)
            self._console.print(
                ", ".join(f"{heading} {text}" for heading, text in cells), soft_wrap=True
            )


def _with_settings(record: RunRecord, plan: CyclesPlan, columns: Sequence[str]) -> RunRecord:
    added = {"columns": len(columns), "origin bandwidth": plan.origin_bandwidth or "not limited"}
    return replace(record, settings={**record.settings, **added})


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
