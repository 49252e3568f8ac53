"""``hepcache run``: a coffea processor over a fileset, from the hosts' caches."""

from __future__ import annotations

import ast
import json as jsonlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.cli.options import (
    CacheDirectory,
    Chunksize,
    Condor,
    Hosts,
    Scheduler,
    SkipBadFiles,
    TreeName,
    WorkersPerHost,
    check_cluster,
    check_files,
    client_of,
    count_of,
    dashboard_address,
    datasets_of,
    fileset_of,
    opened,
    skipping,
    tell_missing,
    told,
)
from hepcache.cli.output import dataset_outputs, file_name, prepared_directory, written
from hepcache.cli.preload import preload_workers
from hepcache.cli.provenance import provenance
from hepcache.cli.report import tell_details
from hepcache.cli.steps import Steps
from hepcache.errors import HepcacheError
from hepcache.io.atomic import atomic_file

if TYPE_CHECKING:
    from rich.console import Console

    from hepcache.process import Runner
    from hepcache.process.partial_run import PartialRun
    from hepcache.report import CycleReport


def run(
    processor: Annotated[
        str | None,
        typer.Argument(
            help="FILE.py:NAME or MODULE:NAME; of a single processor the name can be left out."
        ),
    ] = None,
    fileset: Annotated[
        list[str] | None,
        typer.Argument(help="A fileset's JSON, or ROOT files, globs and directories."),
    ] = None,
    hosts: Hosts = 2,
    workers_per_host: WorkersPerHost = 1,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes on this machine, in all: --hosts share them."),
    ] = None,
    scheduler: Scheduler = None,
    condor: Condor = None,
    cycles: Annotated[int, typer.Option(min=1, help="How often to run it in a row.")] = 1,
    chunksize: Chunksize = 100_000,
    maxchunks: Annotated[
        int | None,
        typer.Option(parser=count_of, metavar="NUMBER", help="Chunks per dataset, at most."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only such datasets, as 'tt*'; may be repeated."),
    ] = None,
    schema: Annotated[
        str, typer.Option(help="One of coffea's schemas, or MODULE:NAME.")
    ] = "NanoAODSchema",
    treename: TreeName = "Events",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="An argument of the processor: btag=0.7; may be repeated."
        ),
    ] = None,
    processor_args: Annotated[
        str | None, typer.Option(help='Arguments of the processor, as JSON: {"btag": 0.7}.')
    ] = None,
    skip_bad_files: SkipBadFiles = False,
    collect: Annotated[
        bool,
        typer.Option(
            "--collect",
            help="Go on where a chunk fails: give the result of the others, list what failed, "
            "and end with exit code 3.",
        ),
    ] = False,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Keep the results of chunks on the hosts, and take those that the same code "
            "has computed from the same events before: a run that died goes on where it was.",
        ),
    ] = False,
    retry: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Complete the result in this directory, which a run with --out has left there: "
            "process what failed or was skipped, and only that. Give neither processor nor files.",
        ),
    ] = None,
    divisible: Annotated[
        bool,
        typer.Option(
            "--divisible",
            help="Cut the last long chunks, so that no thread trails; then the entry ranges "
            "that the processor gets differ from cycle to cycle.",
        ),
    ] = False,
    cache_directory: CacheDirectory = None,
    dashboard: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="Show the run in a browser while it lasts: a port of this machine, or HOST:PORT.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the output (out.coffea) and the report.")
    ] = None,
    per_dataset: Annotated[
        bool,
        typer.Option(
            "--per-dataset", help="Also write the output of each dataset: --out/DATASET.coffea."
        ),
    ] = False,
    plots: Annotated[
        bool, typer.Option("--plots", help="Draw the output's histograms into --out, too.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Start nothing: say how many files, chunks and events there are, what is cached "
            "and how long it takes.",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors and what is missing.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the hosts and what to change, too.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the cycles' figures as one JSON object.")
    ] = False,
) -> None:
    """Run a coffea processor over a fileset.

    The first cycle reads the files; every later one, also of another process,
    reads the hosts' caches. The processor runs unmodified.

    Read the output in Python: coffea.util.load("DIRECTORY/out.coffea").
    """
    steps = Steps(shown=not quiet)
    hosts, workers_per_host = _shared(workers, hosts, workers_per_host)
    if retry is not None:
        from hepcache.process.partial_run import PartialRun

        if processor is not None:
            raise typer.BadParameter(
                "it completes a run, whose processor and files it knows; give none",
                param_hint="--retry",
            )
        prepared_directory(retry, "--retry")
        before = PartialRun.load(retry / _UNFINISHED)
        with opened(scheduler, hosts, workers_per_host, cache_directory, condor, steps) as cluster:
            _retry(before, retry, cluster, steps, json=json)
        return
    if processor is None or not fileset:
        raise typer.BadParameter(
            "give a processor and files, or --retry DIRECTORY", param_hint="PROCESSOR FILESET..."
        )
    with steps.step("Checking the arguments"):
        arguments = {**_arguments(processor_args), **dict(map(processor_argument, arg or ()))}
        _check_out(out, {"--plots": plots, "--per-dataset": per_dataset})
        page = dashboard_address(dashboard, started_here=scheduler is None and condor is None)
        if not dry_run:
            check_cluster(scheduler, condor)
        if not dry_run and scheduler is None and condor is None:
            preload_workers()
    # Imported here: coffea takes seconds, and --help must not.
    from rich.console import Console

    with steps.step("Loading coffea and Dask"):
        from hepcache.process import Executor, Runner
        from hepcache.process.named_processor import load_processor, load_schema
        from hepcache.report import CycleReport
    with steps.step(f"Loading {processor}"):
        made = load_processor(processor, arguments)
        chosen = load_schema(schema)
    with steps.step("Looking for the files"):
        files = datasets_of(fileset_of(fileset, treename), dataset or ())
        if not (skip_bad_files or collect):
            check_files(files)
    console = Console(stderr=json, quiet=quiet)
    if dry_run:
        from hepcache.cli.dry_run import forecast

        local = scheduler is None and condor is None
        with steps.step("Looking at files and caches"):
            found = forecast(
                files,
                made,
                schema=chosen,
                treename=treename,
                chunksize=chunksize,
                maxchunks=maxchunks,
                threads=hosts * workers_per_host if local else None,
                cache_directory=cache_directory,
            )
        told(found.to_dict(), str(found), json=json)
        return
    records: list[Any] = []
    with (
        opened(
            scheduler, hosts, workers_per_host, cache_directory, condor, steps, page
        ) as cluster,
        client_of(cluster) as client,
        skipping(skip_bad_files) as skipbadfiles,
    ):
        _tell_dashboard(cluster if page else None, console)
        steps.end("start")
        executor = Executor(client=client, status=not quiet)
        dispatches: list[Any] = []
        if per_dataset:
            # Results of each dataset are then added up apart.
            executor.watch = dispatches.append
        runner = Runner(
            executor,
            schema=chosen,
            chunksize=chunksize,
            maxchunks=maxchunks,
            skipbadfiles=skipbadfiles,
            divisible=divisible,
            failures="collect" if collect else "raise",
            results="reuse" if reuse else "compute",
            notes=provenance(processor, arguments),
        )
        for number in range(1, cycles + 1):
            runner.name = f"cycle {number}"
            with _kept(runner, out, console):
                output = runner(files, made, treename=treename)
            records.append(runner.run_record)
        steps.end("cycles")
        report = CycleReport(tuple(records), processor, dict(steps.seconds))
        console.print(report)
        if verbose:
            tell_details(report, console)
        apart = dataset_outputs(dispatches[-1].partial(), made) if dispatches else None
        _finish(
            out,
            output,
            report,
            runner.partial_run,
            console,
            steps,
            json=json,
            plots=plots,
            datasets=apart,
        )
    tell_missing(records, Console(stderr=json or quiet))


def _tell_dashboard(cluster: Any, console: Console) -> None:
    """Say where a cluster's page is; without a cluster, nothing."""
    if cluster is not None:
        address = cluster.dashboard_link.replace("/status", "/hepcache")
        console.print(f"Dashboard: {address}", soft_wrap=True, highlight=False)


def _check_out(out: Path | None, needing: Mapping[str, bool]) -> None:
    """Prepare the directory for what is written; options that need one don't go without."""
    if out is not None:
        prepared_directory(out)
    elif option := next((option for option, given in needing.items() if given), None):
        raise typer.BadParameter("name the directory with --out", param_hint=option)


def _shared(workers: int | None, hosts: int, workers_per_host: int) -> tuple[int, int]:
    """Return hosts and workers of each: as many hosts as can share all workers evenly."""
    if workers is None:
        return hosts, workers_per_host
    shared = math.gcd(hosts, workers)
    return shared, workers // shared


_UNFINISHED = "unfinished"


def _retry(before: PartialRun, directory: Path, cluster: Any, steps: Steps, *, json: bool) -> None:
    """Complete the result in a directory."""
    from rich.console import Console

    from hepcache.process import Executor, Runner
    from hepcache.report import CycleReport

    console = Console(stderr=json)
    with client_of(cluster) as client, skipping(False):
        steps.end("start")
        runner = Runner(Executor(client=client), **before.options)
        runner.partial_run = before
        with _kept(runner, directory, console):
            output = runner.retry()
    record = runner.run_record
    if record is None:
        raise AssertionError("unreachable: a run that returns has a record")
    steps.end("cycles")
    report = CycleReport((record,), f"{directory}, completed", dict(steps.seconds))
    console.print(report)
    _finish(directory, output, report, runner.partial_run, console, steps, json=json)
    tell_missing([record], console)


def _finish(
    out: Path | None,
    output: Any,
    report: CycleReport,
    partial: PartialRun | None,
    console: Console,
    steps: Steps,
    *,
    json: bool,
    plots: bool = False,
    datasets: Mapping[str, Any] | None = None,
) -> None:
    """Write the output or print it, and print the figures if they are asked for."""
    if out is None:
        console.print(output)
        console.print(report.total_text, soft_wrap=True, highlight=False)
    else:
        _write(out, output, report, partial, console, steps, plots=plots, datasets=datasets or {})
    if json:
        typer.echo(jsonlib.dumps(report.to_dict()))


@contextmanager
def _kept(runner: Runner, out: Path | None, console: Console) -> Iterator[None]:
    """Keep what is known, for ``--retry``, if Ctrl-C ends the block or no chunk succeeds."""
    before = runner.partial_run
    try:
        yield
    except BaseException:
        partial = runner.partial_run
        if out is None or partial is None or partial is before:
            raise
        if _saved(partial, out / _UNFINISHED, console):
            typer.echo(f"To process the rest: hepcache run --retry {out}", err=True)
        raise


def _write(
    out: Path,
    output: Any,
    report: CycleReport,
    partial: PartialRun | None,
    console: Console,
    steps: Steps,
    *,
    plots: bool,
    datasets: Mapping[str, Any],
) -> None:
    """Write the output, the report, and what completes the run if the output lacks events."""
    from coffea.util import save

    from hepcache.cli.bench import write_report
    from hepcache.process.partial_run import PartialRun

    def write(directory: Path) -> None:
        kept = partial is not None and _saved(partial, directory / _UNFINISHED, console)
        with atomic_file(directory / "out.coffea") as file:
            save(output, file)
        for name, part in datasets.items():
            with atomic_file(directory / f"{file_name(name)}.coffea") as file:
                save(part, file)
        if partial is None:
            PartialRun.forget(directory / _UNFINISHED)
        console.print(
            f"Output: [bold]{directory / 'out.coffea'}[/bold]; in Python "
            f"coffea.util.load({str(directory / 'out.coffea')!r})",
            soft_wrap=True,
            highlight=False,
        )
        if datasets:
            console.print(f"Output of each dataset: {len(datasets)} files in {directory}")
        write_report(report, directory, console=console, steps=steps)
        if plots:
            with steps.step("Drawing the histograms"):
                from hepcache.cli.plots import draw

                drawn = draw(output, directory)
            console.print(f"Plots: {len(drawn)} in {directory}", soft_wrap=True)
        if kept:
            console.print(
                f"To process only what is missing: hepcache run --retry {directory}",
                soft_wrap=True,
            )

    written(write, out)


def _saved(partial: PartialRun, directory: Path, console: Console) -> bool:
    """Keep what completes a run; tell whether that was possible: the output is there without."""
    try:
        partial.save(directory)
    except (HepcacheError, OSError) as error:
        console.print(f"[yellow]--retry will not be possible:[/yellow] {error}", soft_wrap=True)
        return False
    return True


def processor_argument(text: str) -> tuple[str, object]:
    """Return the name and the value of ``NAME=VALUE``; what is no number and the like is text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise typer.BadParameter(f"{text!r}: expected NAME=VALUE", param_hint="--arg")
    for read in (jsonlib.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError):
            return name, read(value)
    return name, value


def _arguments(text: str | None) -> dict[str, object]:
    try:
        found = jsonlib.loads(text or "{}")
    except jsonlib.JSONDecodeError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--processor-args") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("expected a JSON object", param_hint="--processor-args")
    return found
