"""``hepcache cache``: what the caches of this machine hold, and how to look after them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hepcache.cli.options import (
    CacheDirectory,
    Chunksize,
    Files,
    Hosts,
    Json,
    Scheduler,
    SkipBadFiles,
    TreeName,
    WorkersPerHost,
    fileset_of,
    opened,
    report_file,
    skipping,
    tell_missing,
)
from hepcache.display import waiting

if TYPE_CHECKING:
    from rich.table import Table

    from hepcache.cache import ColumnCache
    from hepcache.cache.admin import Item, Use
    from hepcache.fileset import Fileset
    from hepcache.process.derived_maker import DerivedMaker
    from hepcache.report import RunRecord
    from hepcache.report.summary import Summary
    from hepcache.results.store import ResultStore

cache = typer.Typer(
    help="Show, check, warm and clear the columns that this machine's caches hold.",
    no_args_is_help=True,
)

Directory = Annotated[
    list[Path] | None,
    typer.Option(
        "--directory",
        help="A cache, or a directory of caches such as a local cluster's; may be repeated "
        "(default: settings hepcache.cache.directory and hepcache.cache.group).",
    ),
]
Dataset = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="Only of such datasets, as 'DY*'; may be repeated."),
]
File = Annotated[
    list[str] | None, typer.Option("--file", help="Only of such paths or UUIDs, as '*/2024/*'.")
]
Column = Annotated[
    list[str] | None, typer.Option("--column", help="Only such columns, as 'Jet_*'.")
]


def examples(*commands: str) -> str:
    """Return the end of a help text: commands to try."""
    return "\n".join(("Examples:\n", *(f"  hepcache cache {command}" for command in commands)))


def caches_of(directories: list[Path] | None) -> list[ColumnCache]:
    """Open the caches that are meant; a directory may hold several hosts' caches.

    ``directories``: what ``--directory`` named; the configured ones without any.
    Raises ``CacheDirectoryError``: there is no cache, or one is not ours.
    """
    with waiting("Looking for caches"):
        from hepcache.cache import ColumnCache, Limits
        from hepcache.cache.admin import caches_below
        from hepcache.errors import CacheDirectoryError
        from hepcache.settings import settings

    chosen = settings()
    configured = [
        directory
        for directory in (chosen.cache_directory, chosen.group_directory)
        if directory is not None
    ]
    found: dict[Path, None] = {}
    for root in directories or configured:
        here = caches_below(root.expanduser().absolute())
        if directories and not here:
            raise CacheDirectoryError(
                str(root), "there is no cache here; name one with --directory"
            )
        found.update(dict.fromkeys(here))
    if not found:
        raise CacheDirectoryError(
            " or ".join(map(str, configured)),
            "there is no cache yet; run something first, or name another with --directory",
        )
    limits = Limits.configured(chosen)
    return [
        ColumnCache(path, limits=limits, group=bool(path.stat().st_mode & 0o2000))
        for path in found
    ]


def selected(
    column_cache: ColumnCache,
    datasets: list[str] | None = None,
    files: list[str] | None = None,
    columns: list[str] | None = None,
    *,
    silent: bool,
) -> list[Item]:
    """Return what a cache holds and options choose; a terminal is told that this takes time."""
    from rich.console import Console
    from rich.markup import escape

    from hepcache.cache.admin import select

    told = f"Looking through {escape(str(column_cache.directory))}"
    with Console(stderr=True, quiet=silent).status(told):
        return select(
            column_cache, datasets=datasets or (), files=files or (), names=columns or ()
        )


def results_of(column_cache: ColumnCache) -> ResultStore | None:
    """Return the results that are stored beside a cache's columns, if there are any.

    Raises ``CacheDirectoryError``: others could reach into their directory.
    """
    layout = column_cache.layout
    if layout.group or not layout.results.exists():
        return None
    from hepcache.results.store import ResultStore

    return ResultStore.beside(layout, column_cache.limits)


def bytes_of(text: str | None, option: str) -> int | None:
    """Return a size such as ``10 GB``, as bytes."""
    from dask.utils import parse_bytes

    if text is None:
        return None
    try:
        found = int(parse_bytes(text))
    except (ValueError, OverflowError):
        found = -1
    if found < 0:
        raise typer.BadParameter(f"expected a size such as '10 GB': {text}", param_hint=option)
    return found


def seconds_of(text: str | None, option: str) -> float | None:
    """Return a duration such as ``7 days``, in seconds."""
    from dask.utils import parse_timedelta

    if text is None:
        return None
    try:
        found = float(parse_timedelta(text, default=False))
    except (ValueError, KeyError, TypeError):
        found = -1
    if found < 0:
        raise typer.BadParameter(
            f"expected a duration such as '7 days': {text}", param_hint=option
        )
    return found


_TOP = 12  # lines of a table that is not asked for in full


def info_of(column_cache: ColumnCache, items: list[Item]) -> dict[str, Any]:
    """Return the figures of a cache and of what it holds, JSON-ready."""
    from hepcache.cache.admin import usage_of

    store = results_of(column_cache)
    stored = None if store is None else store.usage()
    usage = usage_of(column_cache, items)
    return {
        **usage,
        "by_column": _by_function(usage["by_column"]),
        "results": stored.results if stored else 0,
        "results_bytes": stored.nbytes if stored else 0,
        "results_processors": stored.processors if stored else 0,
    }


def _by_function(found: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return what columns take, derived ones together that are of the same function."""
    from hepcache.results.derived import DERIVED, is_derived

    together: dict[str, tuple[int, int]] = {}
    for name, (count, nbytes) in found.items():
        what = f"{name.partition(DERIVED)[0]} (derived)" if is_derived(name) else name
        before = together.get(what, (0, 0))
        together[what] = before[0] + count, before[1] + nbytes
    return dict(sorted(together.items(), key=lambda item: -item[1][1]))


def info_table(values: dict[str, Any]) -> Table:
    """Return the table of a cache's figures."""
    from rich.markup import escape
    from rich.table import Table

    from hepcache.cache.metrics import user_name
    from hepcache.display import bytes_text, count_text, ratio_text

    used, capacity = values["used_bytes"], values["capacity_bytes"]
    marks = ", ".join(f"{name} {value:.0%}" for name, value in values["watermarks"].items())
    part = ratio_text(used / capacity if capacity else 0)
    place = " ".join(values["volume"].values()) or "unknown"
    free = f"{bytes_text(values['free_bytes'])} of {bytes_text(values['volume_bytes'])} free"
    table = Table.grid(padding=(0, 2))
    table.add_row("[bold]directory", f"[bold]{escape(values['directory'])}")
    table.add_row("volume", escape(f"{place}: {free}"))
    table.add_row("watermarks", marks)
    table.add_row("used", f"{bytes_text(used)} of {bytes_text(capacity)} ({part})")
    if len(values["by_user"]) > 1:
        users = [
            f"{user_name(int(uid))} {bytes_text(size)}" for uid, size in values["by_user"].items()
        ]
        table.add_row("users", escape(", ".join(users)))
    table.add_row(
        "columns", f"{count_text(values['columns'])} of {count_text(values['contents'])} files"
    )
    if values["columns"]:
        table.add_row("stored", f"{_when(values['oldest_s'])} to {_when(values['newest_s'])}")
    if values["results"]:
        processors = values["results_processors"]
        table.add_row(
            "results",
            f"{count_text(values['results'])} of {count_text(processors)} "
            f"{'processor' if processors == 1 else 'processors'}, "
            f"{bytes_text(values['results_bytes'])}",
        )
    table.add_row(
        "beside",
        f"{count_text(values['small_files'])} forms and notes, "
        f"{bytes_text(values['small_bytes'])}",
    )
    table.add_row("generation", count_text(values["generation"]))
    if values["quarantined"]:
        size = bytes_text(values["quarantined_bytes"])
        table.add_row("[yellow]quarantine", f"[yellow]{values['quarantined']} files, {size}")
    return table


def occupancy_table(what: str, found: dict[str, tuple[int, int]], show_all: bool) -> Table:
    """Return the table of what takes the space."""
    from rich.text import Text

    from hepcache.display import bytes_text, count_text, plain_table, ratio_text

    total = sum(nbytes for _, nbytes in found.values()) or 1
    table = plain_table(what, "stored", "size", "part")
    for name, (count, nbytes) in list(found.items())[: None if show_all else _TOP]:
        table.add_row(
            Text(name), count_text(count), bytes_text(nbytes), ratio_text(nbytes / total)
        )
    if not show_all and len(found) > _TOP:
        table.add_row(f"and {len(found) - _TOP} more; see --all", "", "", "")
    return table


def line_of(column_cache: ColumnCache, item: Item, use: Use) -> dict[str, Any]:
    """Return the figures of one stored column, JSON-ready."""
    start, stop = item.segment
    return {
        "directory": str(column_cache.directory),
        "dataset": item.dataset,
        "file": item.path,
        "uuid": item.content[0],
        "tree": item.tree,
        "start": start,
        "stop": stop,
        "column": item.column,
        "nbytes": item.stored.nbytes,
        "stored_s": item.stored.stored_ns / 1e9,
        "uses": use.count,
        "idle": use.idle,
    }


def list_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Return the table of stored columns; the cache is named where there are several."""
    from rich.text import Text

    from hepcache.display import bytes_text, count_text, plain_table

    several = len({line["directory"] for line in lines}) > 1
    table = plain_table("column", "entries", "size", "uses", "idle", "stored")
    for heading in ("dataset", "file", *(["cache"] if several else [])):
        table.add_column(heading, overflow="fold")
    for line in lines:
        texts = [line["dataset"], line["file"], *([line["directory"]] if several else [])]
        table.add_row(
            Text(line["column"]),
            f"{line['start']}-{line['stop']}",
            bytes_text(line["nbytes"]),
            count_text(line["uses"]),
            count_text(line["idle"]),
            _when(line["stored_s"]),
            *map(Text, texts),
        )
    return table


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@cache.command(epilog=examples("verify --threads 8", "verify --dataset 'DY*' --json"))
def verify(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    threads: Annotated[int, typer.Option(min=1, help="Columns read at the same time.")] = 4,
    as_json: Json = False,
) -> None:
    """Read every stored byte and compare it with its checksum; workers may go on meanwhile.

    What is damaged is set aside and will be read at its origin again; the
    exit code is then 1. Stored results are checked too, unless some columns
    are chosen: what is damaged of these is removed, and computed again. Files
    that are none of this cache's are named and left alone. Last, the bytes in
    use are counted anew.
    """
    found = [
        _verified(column_cache, dataset, file, column, threads, as_json)
        for column_cache in caches_of(directory)
    ]
    if as_json:
        typer.echo(json.dumps({"caches": found}))
    else:
        from hepcache.display import bytes_text, count_text

        for report in found:
            size = bytes_text(report["sound_bytes"])
            results = ""
            if report["results"]:
                nbytes = bytes_text(report["results_bytes"])
                results = f", {count_text(report['results'])} results sound ({nbytes})"
            typer.echo(
                f"{report['directory']}: {count_text(report['sound'])} columns sound ({size})"
                f"{results}"
            )
            for what, paths in (
                ("damaged, set aside", report["damaged"]),
                ("a result that is damaged or was planted, removed", report["damaged_results"]),
                ("another key's or a later version's, left alone", report["foreign"]),
                ("not known, left alone", report["unknown"]),
            ):
                for path in paths:
                    typer.echo(f"  {what}: {path}")
    if any(report["damaged"] or report["damaged_results"] for report in found):
        raise typer.Exit(1)


def _verified(
    column_cache: ColumnCache,
    dataset: list[str] | None,
    file: list[str] | None,
    column: list[str] | None,
    threads: int,
    silent: bool,
) -> dict[str, Any]:
    from dataclasses import asdict

    from hepcache.cache.admin import check, check_blobs, recount, unknown_files

    items = selected(column_cache, dataset, file, column, silent=silent)
    found = check(column_cache, items, threads, progress=not silent)
    store = None if dataset or file or column else results_of(column_cache)
    results = None if store is None else store.verify()
    return {
        "directory": str(column_cache.directory),
        **asdict(found),
        "damaged": (*found.damaged, *check_blobs(column_cache)),
        "results": results.sound if results else 0,
        "results_bytes": results.sound_bytes if results else 0,
        "damaged_results": results.damaged if results else (),
        "unknown": sorted(unknown_files(column_cache.layout)),
        "used_bytes": recount(column_cache),
    }


@cache.command(
    epilog=examples(
        "evict --to '500 GB'", "evict --dataset 'QCD*' --older-than '30 days' --dry-run"
    )
)
def evict(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="Only what was stored so long ago: '7 days'."
        ),
    ] = None,
    free: Annotated[
        str | None,
        typer.Option(
            "--bytes", metavar="SIZE", help="Free so much of what is chosen, such as '10 GB'."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="SIZE", help="Leave so much of what is chosen, such as '500 GB'."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove chosen columns; workers that use them keep what they have in hand.

    With --bytes or --to, the cache's own policy says what goes first, and both
    count for each cache alone. Stored results stay: 'hepcache cache clear
    --results' removes these.
    """
    if not (dataset or file or column or older_than or free or to):
        raise typer.BadParameter(
            "say which (--dataset, --file, --column, --older-than) or how much (--bytes, --to); "
            "'hepcache cache clear' removes everything"
        )
    if free and to:
        raise typer.BadParameter("give --bytes or --to, one of the two")
    from hepcache.cache.admin import expendable
    from hepcache.display import track

    age_s = seconds_of(older_than, "--older-than") or 0.0
    bytes_free, bytes_to = bytes_of(free, "--bytes"), bytes_of(to, "--to")
    before_ns = time.time_ns() - int(age_s * 1e9)

    def removed(column_cache: ColumnCache) -> tuple[int, int]:
        chosen = [
            item.stored
            for item in selected(column_cache, dataset, file, column, silent=as_json)
            if item.stored.stored_ns <= before_ns
        ]
        unwanted = bytes_free
        if bytes_to is not None:
            unwanted = sum(each.nbytes for each in chosen) - bytes_to
        stored = chosen if unwanted is None else expendable(column_cache, chosen, unwanted)
        if dry_run:
            return len(stored), sum(each.nbytes for each in stored)
        return column_cache.remove(track(stored, len(stored), "Evicting", enabled=not as_json))

    _remove(caches_of(directory), removed, "would be removed" if dry_run else "removed", as_json)


@cache.command(epilog=examples("clear", "clear --quarantine --yes", "clear --results"))
def clear(
    directory: Directory = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Only the damaged files that were set aside.")
    ] = False,
    results: Annotated[
        bool, typer.Option("--results", help="Only stored results; columns stay.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove everything, stored results too; the next cycle reads the origin."""
    if quarantine and results:
        raise typer.BadParameter("give --quarantine or --results, one of the two")
    from hepcache.cache.admin import clear as clear_all
    from hepcache.cache.admin import clear_quarantine
    from hepcache.display import bytes_text

    caches = caches_of(directory)
    if not yes:
        part = "the quarantine of " if quarantine else "the stored results of " if results else ""
        names = (
            f"{part}{column_cache.directory}"
            if part
            else f"{column_cache.directory} ({bytes_text(column_cache.used_bytes)})"
            for column_cache in caches
        )
        typer.confirm(f"Clear {', '.join(names)}?", abort=True, err=True)

    def removed(column_cache: ColumnCache) -> tuple[int, int]:
        if quarantine:
            return clear_quarantine(column_cache)
        store = results_of(column_cache)
        count, nbytes = (0, 0) if store is None else store.clear()
        if results:
            return count, nbytes
        more, size = clear_all(column_cache, progress=not as_json)
        return count + more, nbytes + size

    _remove(caches, removed, "removed", as_json)


def _remove(
    caches: list[ColumnCache],
    removed: Callable[[ColumnCache], tuple[int, int]],
    verb: str,
    as_json: bool,
) -> None:
    """Remove something of every cache, and say how much."""
    found = [(str(column_cache.directory), *removed(column_cache)) for column_cache in caches]
    if as_json:
        parts = [
            {"directory": where, "files": count, "bytes": nbytes} for where, count, nbytes in found
        ]
        files, size = sum(removal[1] for removal in found), sum(removal[2] for removal in found)
        typer.echo(json.dumps({"files": files, "bytes": size, "caches": parts}))
        return
    from hepcache.display import bytes_text, count_text

    for where, count, nbytes in found:
        typer.echo(f"{where}: {count_text(count)} files {verb}, {bytes_text(nbytes)}")


@cache.command(
    epilog=examples(
        "warm fileset.json --columns 'nJet,Jet_*,MET_pt'",
        "warm fileset.json --like result/report.json --scheduler tcp://head:8786",
        "warm fileset.json --like last",
    )
)
def warm(
    fileset: Files,
    columns: Annotated[
        str | None, typer.Option(help="Names or patterns of columns, with commas: 'nJet,Jet_*'.")
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="REPORT|last",
            help="The columns that a run touched: its report.json or the directory that holds "
            "it, or 'last' for your last run.",
        ),
    ] = None,
    hosts: Hosts = 2,
    workers_per_host: WorkersPerHost = 1,
    scheduler: Scheduler = None,
    chunksize: Chunksize = 100_000,
    treename: TreeName = "Events",
    skip_bad_files: SkipBadFiles = False,
    cache_directory: CacheDirectory = None,
    as_json: Json = False,
) -> None:
    """Read columns onto the hosts that will be asked for them.

    Like the last run, derived columns that it used are made there too.
    Placement is that of a run, so with the same hosts and chunksize the first
    real cycle finds everything. What is there already is not read again.
    """
    if (columns is None) == (like is None):
        raise typer.BadParameter("give --columns or --like, one of the two")
    files = fileset_of(fileset, treename)
    # Before a cluster starts, so that a wrong name costs no time.
    derived = _maker() if like == "last" else None
    names = _names(
        files, columns, like, skip_bad_files, may_lack=derived is not None, silent=as_json
    )
    # Imported here: coffea takes seconds, and --help must not.
    from rich.console import Console

    from hepcache.api import warm as warm_caches
    from hepcache.report.summary import summarise

    with (
        opened(scheduler, hosts, workers_per_host, cache_directory) as cluster,
        skipping(skip_bad_files) as skipbadfiles,
    ):
        record = warm_caches(
            files,
            names,
            cluster=cluster,
            treename=treename,
            chunksize=chunksize,
            skipbadfiles=skipbadfiles,
            status=not as_json,
            derived=derived,
        )
    found = summarise(record)
    if as_json:
        typer.echo(json.dumps(_figures(record, found)))
    else:
        _print(record, found)
    lost = _lost_bytes(found)
    if lost:
        from hepcache.display import bytes_text

        typer.echo(
            f"{bytes_text(lost)} (decoded) were read and not kept: the caches have no room for "
            "them, or their host was busy and another one helped. 'hepcache cache info' shows "
            "how full they are.",
            err=True,
        )
    tell_missing([record], Console(stderr=True))


def _names(
    files: Fileset,
    columns: str | None,
    like: str | None,
    skip_bad_files: bool,
    *,
    may_lack: bool,
    silent: bool,
) -> list[str]:
    """Return the columns that the options mean; ``may_lack``: they may be none."""
    from hepcache.api import choose_columns

    if columns is not None:
        patterns = [pattern.strip() for pattern in columns.split(",") if pattern.strip()]
        if not patterns:
            raise typer.BadParameter("no column is named", param_hint="--columns")
        return choose_columns(files, patterns, skipbadfiles=skip_bad_files, status=not silent)
    touched = _touched(str(like))
    # Other files may lack some: data has no generator's columns.
    names = choose_columns(
        files, touched, skipbadfiles=skip_bad_files, absent="skip", status=not silent
    )
    if not names and not may_lack:
        raise typer.BadParameter(
            f"none of the run's {len(touched)} columns, such as {touched[0]}, is in these files",
            param_hint="--like",
        )
    absent = sorted(set(touched) - set(names))
    if absent:
        typer.echo(f"not in these files, left out: {', '.join(absent)}", err=True)
    return names


def _touched(like: str) -> list[str]:
    """Return the names of the columns that a run touched."""
    from hepcache.errors import RecordError
    from hepcache.report import CycleReport

    if like == "last":
        from hepcache.catalogue import Catalogue
        from hepcache.process.run_history import last_run

        with Catalogue.from_settings() as catalogue:
            last = last_run(catalogue)
        if last is None:
            raise typer.BadParameter(
                "no run is remembered; name a report.json, or use --columns", param_hint="--like"
            )
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last.began))
        typer.echo(f"like {last.name!r} of {when}: {len(last.columns)} columns", err=True)
        return list(last.columns)
    path = report_file(Path(like))
    if not path.exists():
        raise typer.BadParameter(
            f"{path}: no such report; 'hepcache run --out' writes one, and 'last' needs none",
            param_hint="--like",
        )
    touched = sorted({name for run in CycleReport.read(path) for name in run.columns})
    if not touched:
        raise RecordError(str(path), "it names no columns; write it again, or use --columns")
    return touched


def _maker() -> DerivedMaker | None:
    """Return what makes the derived columns of the last run, and name them."""
    from hepcache.api import derived_maker

    maker = derived_maker()
    if maker is None:
        return None
    if maker.lost:
        typer.echo(
            f"not made, because their calls are not kept: {', '.join(maker.lost)}", err=True
        )
    if not maker.calls:
        return None
    typer.echo(f"derived columns: {', '.join(maker.functions)}", err=True)
    return maker


def _lost_bytes(found: Summary) -> int:
    """Return decoded bytes that were read at the origin and that no cache has kept."""
    read = sum(size for cause, size in found.cause_bytes.items() if cause != "hit")
    # What is kept counts its own description too, so a little less is nothing lost.
    return read - found.stored_raw_bytes if found.stored_raw_bytes < read else 0


def _figures(record: RunRecord, found: Summary) -> dict[str, Any]:
    both = ("chunks", "events", "origin_bytes", "cache_bytes", "hit_ratio")
    return {
        "columns": list(record.columns),
        "wall_s": record.wall_s,
        **_chosen(found, *both, "stored_bytes", "stored_raw_bytes"),
        "not_kept_bytes": _lost_bytes(found),
        "derived": {
            function: _chosen(use, "read", "computed", "seconds", "stored_bytes", "reason")
            for function, use in record.derived.items()
        },
        "hosts": {host.host: _chosen(host, *both, "stolen") for host in found.hosts},
        "problems": record.problems,
        "skipped": [part.to_dict() for part in record.skipped],
        "failed": [part.to_dict() for part in record.failed],
    }


def _chosen(values: object, *names: str) -> dict[str, Any]:
    return {name: getattr(values, name) for name in names}


def _print(record: RunRecord, found: Summary) -> None:
    from rich.console import Console

    from hepcache.display import bytes_text, count_text, ratio_text, seconds_text
    from hepcache.report.render.tables import derived_text, host_table

    console = Console()
    console.print(host_table(found))
    console.print(
        f"{count_text(len(record.columns))} columns of {count_text(found.chunks)} chunks in "
        f"{seconds_text(record.wall_s)}: {bytes_text(found.origin_bytes)} read at the origin, "
        f"{bytes_text(found.stored_bytes)} written to SSDs, "
        f"{ratio_text(found.hit_ratio)} was there already",
        soft_wrap=True,
    )
    for function, use in record.derived.items():
        console.print(derived_text(function, use), soft_wrap=True)


_Order = Literal["size", "age", "use", "name"]
_ORDERS: dict[str, Callable[[Any], Any]] = {
    "size": lambda line: (-line[1].stored.nbytes, line[1].stored.path),
    "age": lambda line: (line[1].stored.stored_ns, line[1].stored.path),
    "use": lambda line: (-line[2].idle, line[2].count, line[1].stored.path),
    "name": lambda line: line[1].stored.path,
}


@cache.command("info", epilog=examples("info --all", "info --directory /ssd/caches --json"))
def info(
    directory: Directory = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every dataset and column.")] = False,
    as_json: Json = False,
) -> None:
    """Show how full the caches are, and what takes the space.

    Capacity and watermarks are those configured here and now; what may be
    stored is decided by the workers' own settings.
    """
    found = [
        (column_cache, selected(column_cache, silent=as_json))
        for column_cache in caches_of(directory)
    ]
    if as_json:
        typer.echo(json.dumps({"caches": [info_of(*pair) for pair in found]}))
        return
    from rich.console import Console

    console = Console()
    for column_cache, items in found:
        values = info_of(column_cache, items)
        console.print(info_table(values))
        for what in ("dataset", "column"):
            if items:
                console.print(occupancy_table(what, values[f"by_{what}"], show_all))


@cache.command(
    epilog=examples("metrics", "metrics --directory '/ssd/hepcache/*/columns' > hepcache.prom")
)
def metrics(
    directory: Annotated[
        list[str] | None,
        typer.Option(
            help="A cache, a directory of caches, or a glob of them, as "
            "'/ssd/hepcache/*/columns'; may be repeated (default: the settings')."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what the caches have counted, as Prometheus reads it.

    Nothing is measured, so it takes no time however much is stored, and nothing
    is changed: chunks by outcome, columns and bytes that were there or not,
    bytes from origins, evictions, damaged files, and bytes in use by user.
    Several caches of one user are added up.
    """
    from hepcache.cache.metrics import metrics_of, prometheus_text
    from hepcache.settings import settings

    chosen = settings()
    configured = [str(path) for path in (chosen.cache_directory, chosen.group_directory) if path]
    found = metrics_of(directory or configured)
    if as_json:
        values = [
            {"name": metric.name, "value": value, **dict(labels)}
            for metric in found
            for labels, value in metric.values.items()
        ]
        typer.echo(json.dumps({"metrics": values}))
    else:
        typer.echo(prometheus_text(found), nl=False)


@cache.command(
    "ls", epilog=examples("ls --dataset 'DY*' --column 'Jet_*'", "ls --sort use --limit 0 --json")
)
def list_columns(
    directory: Directory = None,
    dataset: Dataset = None,
    file: File = None,
    column: Column = None,
    sort: Annotated[
        _Order, typer.Option(help="Largest, oldest, longest unused or by name first.")
    ] = "size",
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Lines at most; 0 for all.")] = 50,
    as_json: Json = False,
) -> None:
    """List stored columns, one line per file, segment and column.

    A column is "idle" for so many uses of the whole cache; workers write uses
    down in batches.
    """
    from hepcache.cache.admin import uses_of

    found: list[tuple[ColumnCache, Item, Use]] = []
    for column_cache in caches_of(directory):
        items = selected(column_cache, dataset, file, column, silent=as_json)
        uses = uses_of(column_cache, items)
        found += [(column_cache, *pair) for pair in zip(items, uses, strict=True)]
    found.sort(key=_ORDERS[sort], reverse=reverse)
    shown = [line_of(*line) for line in found[: limit or None]]
    total = {"all": len(found), "bytes": sum(item.stored.nbytes for _, item, _ in found)}
    if as_json:
        typer.echo(json.dumps({"columns": shown, **total}))
        return
    from rich.console import Console

    from hepcache.display import bytes_text, count_text

    console = Console()
    console.print(list_table(shown))
    said = f"{count_text(total['all'])} columns of segments, {bytes_text(total['bytes'])}"
    more = "" if len(shown) == len(found) else f"; {len(shown)} are shown, see --limit"
    console.print(said + more)
