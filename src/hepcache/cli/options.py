"""Options of commands that work on a fileset with a cluster, and the cluster they mean."""

from __future__ import annotations

import json as jsonlib
import re
import shutil
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hepcache.cli.preload import METHOD
from hepcache.cli.steps import Steps
from hepcache.errors import (
    BadFileError,
    BadFilesetError,
    ClusterError,
    ConfigurationError,
    IncompleteWarning,
)

if TYPE_CHECKING:
    from rich.console import Console

    from hepcache.fileset import Fileset
    from hepcache.report import RunRecord


def count_of(text: str | int) -> int:
    """Return the number that a user writes as 100000, 100_000, 100k, 1.5M or 1e6.

    Raises ``typer.BadParameter``: it is no whole number from 1.
    """
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\d+)?)([kMG]?)", str(text).strip())
    number = Fraction(match[1]) * _MULTIPLES[match[2]] if match else Fraction(0)
    if number < 1 or number.denominator != 1:
        raise typer.BadParameter(
            f"{text!r}: expected a whole number from 1, such as 100000 or 100k"
        )
    return int(number)


_MULTIPLES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}

Files = Annotated[
    list[str], typer.Argument(help="A fileset's JSON, or ROOT files, globs and directories.")
]
Hosts = Annotated[int, typer.Option(help="Simulated hosts on this machine.")]
WorkersPerHost = Annotated[int, typer.Option(help="Worker processes of a host.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of a running Dask scheduler to use instead.")
]
Chunksize = Annotated[
    int, typer.Option(parser=count_of, metavar="NUMBER", help="Entries per chunk, such as 100k.")
]
TreeName = Annotated[str, typer.Option(help="Tree of files that name none.")]
SkipBadFiles = Annotated[
    bool,
    typer.Option(
        "--skip-bad-files", help="Leave out files and chunks that can't be read; exit with 3."
    ),
]
Condor = Annotated[
    str | None,
    typer.Option(
        metavar="JOBS",
        help="Work in an HTCondor pool instead: a number of jobs, or machines with a number "
        "each, such as 'big-*=16,small-1=4'.",
    ),
]
CacheDirectory = Annotated[
    Path | None, typer.Option(help="Where the simulated hosts keep their caches.")
]


_ANSWER_S = 5.0  # of a scheduler that is asked for a connection


def fileset_of(files: list[str], treename: str) -> Fileset:
    """Return the fileset that arguments name."""
    from hepcache.fileset import load_fileset

    return load_fileset(files[0] if len(files) == 1 else files, treename=treename)


def datasets_of(fileset: Fileset, patterns: Sequence[str]) -> Fileset:
    """Return the datasets of a fileset whose names match; all without patterns.

    Raises ``BadFilesetError``: a pattern matches none.
    """
    from hepcache.fileset import Fileset

    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in fileset.datasets):
            raise BadFilesetError(
                f"no dataset matches {pattern!r}; there are {', '.join(fileset.datasets)}"
            )
    chosen = [
        spec
        for spec in fileset
        if not patterns or any(fnmatchcase(spec.dataset, pattern) for pattern in patterns)
    ]
    return Fileset(chosen)


def check_files(fileset: Fileset) -> None:
    """Look whether the files on this machine are there, before anything is started for them.

    Raises ``BadFileError``: some are not.
    """
    from hepcache.catalogue.catalogue import joined
    from hepcache.fileset.replicas import places_of
    from hepcache.formats.registry import freshness_of
    from hepcache.io.transport import is_url, location

    bad = []
    for spec in fileset:
        places = places_of(spec) or (spec.path,)
        if not any(is_url(place) or Path(location(place)).exists() for place in places):
            try:
                freshness_of(places[0])  # says why
            except BadFileError as error:
                bad.append((spec, error))
    if bad:
        raise joined(bad)


def check_cluster(address: str | None, condor: str | None) -> None:
    """Look whether a scheduler answers, or a pool can be reached, before time goes into the rest.

    Raises ``ClusterError``: no.
    """
    if condor is not None and shutil.which("condor_submit") is None:
        raise ClusterError(
            "--condor needs HTCondor's condor_submit, which is not on the path here: log in to a "
            "submit host, or leave out --condor to use this machine"
        )
    if address is None or condor is not None:
        return
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigurationError("--scheduler", "an address such as tcp://HOST:8786", address)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except OSError as error:
        raise ClusterError(
            f"no scheduler answers at {address} ({error.strerror or error}); start one with 'dask "
            "scheduler', or leave out --scheduler to use this machine"
        ) from None


def dashboard_address(text: str | None, *, started_here: bool) -> str | None:
    """Return the address of a dashboard that ``PORT``, ``:PORT`` or ``HOST:PORT`` means.

    >>> dashboard_address("8787", started_here=True), dashboard_address(":0", started_here=True)
    ('127.0.0.1:8787', ':0')

    ``started_here``: whether the command starts the cluster.
    Raises ``ConfigurationError``: it is no address. ``ImportError``: Bokeh is not installed.
    ``typer.BadParameter``: the cluster runs already.
    """
    if text is None:
        return None
    if not started_here:
        raise typer.BadParameter(
            "it is for a cluster that the command starts on this machine", param_hint="--dashboard"
        )
    _, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError("--dashboard", "a port, or HOST:PORT", text)
    if find_spec("bokeh") is None:
        raise ImportError(
            "the dashboard needs Bokeh: pip install 'hepcache[dashboard]'", name="bokeh"
        )
    return text if colon else f"127.0.0.1:{port}"


INCOMPLETE = 3
"""Exit code of a command that did all but what it was allowed to skip."""


@contextmanager
def skipping(wanted: bool) -> Iterator[Any]:
    """Give the Runner's ``skipbadfiles`` that the option means, without warnings.

    Skipped is any file that can't be opened, for whatever reason, and any
    chunk with an ``OSError``. What it was is told at the end.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteWarning)
        yield (OSError, BadFileError) if wanted else False


def tell_missing(records: Sequence[RunRecord], console: Console) -> None:
    """Say as the last thing what the result lacks, and exit with 3 if it lacks something.

    Raises ``typer.Exit``: files or chunks of a cycle were skipped or failed.
    """
    from hepcache.report.outcomes import lacking_text, missing_lines

    last = records[-1]
    for word, parts in (("failed", last.failed), ("skipped", last.skipped)):
        for line in missing_lines(parts):
            console.print(f"[yellow]{word}[/yellow]", Text(line), soft_wrap=True)
    places = {part.place for part in last.missing}
    for number, record in enumerate(records[:-1], start=1):
        if record.missing and {part.place for part in record.missing} != places:
            console.print(Text(f"Cycle {number}: {lacking_text(record.missing)}"), soft_wrap=True)
    if last.missing:
        for dataset, covered in last.coverage().items():
            if not covered.complete:
                console.print(Text(f"Of dataset {dataset}: {covered}"), soft_wrap=True)
        console.print(Text(lacking_text(last.missing), "bold yellow"), soft_wrap=True)
    if any(not record.complete for record in records):
        raise typer.Exit(INCOMPLETE)


@contextmanager
def opened(
    scheduler: str | None,
    hosts: int,
    workers_per_host: int,
    cache_directory: Path | None,
    condor: str | None = None,
    steps: Steps | None = None,
    dashboard: str | None = None,
) -> Iterator[Any]:
    """Give the cluster that options mean: a running one, jobs of a pool, or this machine.

    ``steps``: of the command; says what is waited for.
    ``dashboard``: address of the dashboard of a cluster on this machine.
    """
    check_cluster(scheduler, condor)
    steps = Steps(shown=False) if steps is None else steps
    with steps.step("Loading coffea and Dask"):
        # Imported here: coffea takes seconds, and --help must not.
        import dask
        from distributed import Client

        from hepcache.clusters import LocalCluster, attach
        from hepcache.upstream.distributed import skip_optional_imports
    with ExitStack() as stack:
        if condor is not None:
            from hepcache.clusters.htcondor import HTCondorCluster

            with steps.step("Waiting for the first job of the pool"):
                pool = HTCondorCluster(cache_directory=cache_directory)
                cluster: Any = stack.enter_context(pool)
                scaled(cluster, condor)
        elif scheduler is None:
            workers = hosts * workers_per_host
            with steps.step(f"Starting {workers} worker{'s' if workers != 1 else ''}"):
                stack.enter_context(dask.config.set(METHOD))
                skip_optional_imports()
                local = LocalCluster(
                    hosts,
                    workers_per_host,
                    cache_directory=cache_directory,
                    dashboard_address=dashboard,
                )
                cluster = stack.enter_context(local)
        else:
            with steps.step(f"Connecting to {scheduler}"):
                cluster = attach(stack.enter_context(Client(scheduler)))
        try:
            yield cluster
        finally:
            with steps.step("Stopping the workers"):
                stack.close()


@contextmanager
def client_of(cluster: Any) -> Iterator[Any]:
    """Give the client of a cluster; one that is running already is its client."""
    from distributed import Client

    if isinstance(cluster, Client):
        yield cluster
    else:
        with cluster.client() as client:
            yield client


def scaled(cluster: Any, jobs: str) -> None:
    """Ask a pool for the jobs that an option means, and wait for the first of them."""
    if jobs.isdecimal() and int(jobs) > 0:
        cluster.scale(jobs=int(jobs))
    else:
        wanted = dict(part.strip().rpartition("=")[::2] for part in jobs.split(","))
        if not all(machine and number.isdecimal() for machine, number in wanted.items()):
            raise ConfigurationError("--condor", "a number, or MACHINE=NUMBER,...", jobs)
        cluster.scale_hosts({machine: int(number) for machine, number in wanted.items()})
    cluster.wait_for_workers(1)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def told(values: Mapping[str, Any], shown: Any, *, json: bool) -> None:
    """Say what was done: in a line or several, a table, or whatever else rich prints."""
    if json:
        typer.echo(jsonlib.dumps(values))
        return
    from rich.console import Console

    several = isinstance(shown, Iterable) and not isinstance(shown, str)
    for part in shown if several else [shown]:
        if isinstance(part, str):
            typer.echo(part)
        else:
            Console().print(part)


def told_files(paths: Iterable[Path], *, json: bool) -> None:
    """Name files and their sizes."""
    sizes = {str(path): path.stat().st_size for path in paths}
    files = [{"path": path, "bytes": size} for path, size in sizes.items()]
    lines = [f"{path}  {size / 1e6:.1f} MB" for path, size in sizes.items()]
    told({"files": files}, lines, json=json)


def report_file(source: Path) -> Path:
    """Return the file of a report that a path names: itself, or the one in a directory."""
    if not source.is_dir():
        return source
    found = [source / name for name in ("report.json", "report.json.gz")]
    return next((path for path in found if path.exists()), found[0])
